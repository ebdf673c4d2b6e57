"""Activations, the running layer and the loss at the peak: how many micro-batches of which chunk are alive, and the tensors that each layer keeps.

Source: the schedule, walked to the very moment whose bytes the ledger took (`instants.py`), and the layers of each chunk (`chunk.py`). In-flight
micro-batches by the textbook's formula would not do: with virtual stages and uneven chunks the mix alive then is not the largest count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import prod

from analysis.expected.boundary import boundary_tensor
from analysis.expected.chunk import chunk_layers, largest_gemm, last_offloaded, window_bytes
from analysis.expected.head import embedding_bytes, evaluation_loss_bytes, head_bytes
from analysis.expected.origin.formulas import SAVED, saved_of, values
from analysis.expected.origin.lines import Line, Parts, product, rest
from analysis.expected.transients import backward_bytes
from analysis.theory.inflight import walk

_KINDS = {"moe": "MoE layer", "dense": "dense layer", "M": "Mamba layer", "*": "attention layer", "-": "MLP layer", "E": "expert layer"}

Alive = tuple[int, ...]


def activations(parts: Parts) -> list[Line]:
    """Micro-batches alive by layers by the bytes of each saved tensor; what recomputation frees and what lies on the host is taken off."""
    counts, _ = moment(parts)
    known = values(parts.run)
    found: defaultdict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0] * len(parts.cells))
    for chunk in range(len(parts.cells)):
        for kept in _chunk(parts, chunk):
            found[kept][chunk] += 1
    made = (_line(_named(layer, name), size, counts, layers, saved_of(name, size, known)) for (layer, name, size), layers in found.items())
    return [line for line in made if line.bytes]


def moment(parts: Parts) -> tuple[Alive, int]:
    """Micro-batches alive of each chunk at the peak's instant, and the chunk that runs then."""
    sought = {"forward": parts.moments.forward, "loss": parts.moments.loss, "backward": parts.moments.backward}[parts.instant]
    counts = [0] * len(parts.cells)
    for chunk, direction in walk(parts.run.plan, parts.stage):
        if direction > 0:
            counts[chunk] += 1
        one = parts.alive[chunk]
        now = sum(count * each.saved for count, each in zip(counts, parts.alive, strict=True))
        besides = one.window if direction < 0 else one.loss if parts.instant == "loss" else 0
        if (direction < 0) == (parts.instant == "backward") and (now, besides) == sought:
            return tuple(counts), chunk
        if direction < 0:
            counts[chunk] -= 1
    raise AssertionError(f"the walk of stage {parts.stage} does not come by its own fullest moment")


def running_layer(parts: Parts) -> list[Line]:
    """The layer at work: in backward its recomputed tensors and gradients, in an evaluation its tensors or the logits."""
    return _evaluated(parts) if parts.instant == "evaluation" else _window(parts)


def loss(parts: Parts) -> list[Line]:
    """The head of the last stage: inputs and logits until the backward, and what the loss holds besides."""
    model, options = parts.run.model, parts.run.options
    logits = options.tokens * model.vocabulary // options.tp
    _, chunk = moment(parts)
    depth = parts.cells[chunk].mtp
    head, bare = head_bytes(model, options, depth), head_bytes(replace(model, vocabulary=0), options, depth)
    factors = (1 + depth, 2, options.weight_bytes, model.hidden, options.local_tokens)
    lines = [Line("inputs of final norm and output layer", "(1 + MTP depths) · 2 · w · h · T", product(*factors), prod(factors))]
    lines = rest("what the loss keeps of each token", bare.saved, lines, "(1 + MTP depths) · bytes · S",
                 _each(bare.saved - prod(factors), options.tokens))
    by_logit = f"{product(options.tokens, model.vocabulary)} / {options.tp}"
    lines = rest("logits kept for the backward", head.saved, lines, "bytes a logit · S · V / t",
                 f"{(head.saved - bare.saved) // logits} · {by_logit}")
    lines = rest("held besides while the loss is computed", head.peak, lines, "bytes a logit · S · V / t",
                 f"{(head.peak - head.saved) // logits} · {by_logit}")
    staying = last_offloaded(list(chunk_layers(parts.run, parts.cells[chunk])))
    return rest("what the last layer does not send to the host", head.peak + staying, lines, "bytes", f"{staying:,}")


def _chunk(parts: Parts, chunk: int) -> Iterator[tuple[str, str, int]]:
    """Kind of layer, name and bytes of each tensor that a chunk keeps; under full recomputation of a layer its input alone."""
    options, cell = parts.run.options, parts.cells[chunk]
    for kind, one, made in chunk_layers(parts.run, cell):
        layer = f"{_KINDS.get(kind, kind)}, "
        if one.saved < sum(made.values()) and options.recompute == "full":
            yield layer, "input, the rest is recomputed", one.saved
            continue
        yield from ((layer, tensor, size) for tensor, size in made.items())
        yield layer, f"recomputed ({', '.join(sorted(options.recompute_modules))})", one.saved + one.offloaded - sum(made.values())
        yield layer, f"on the host ({', '.join(sorted(options.offload_modules))})", -one.offloaded
    if cell.embedding:
        yield "", "dropout mask of the embedding", embedding_bytes(parts.run.model, options)
    if options.legacy_gradients:
        yield "", "received input", boundary_tensor(parts.run.model, options)


def _line(what: str, size: int, counts: Alive, layers: list[int], spelled: tuple[str, str]) -> Line:
    """One tensor of a kind of layer over the chunks that have it and are alive."""
    units = [(chunk, count, layer) for chunk, (count, layer) in enumerate(zip(counts, layers, strict=True)) if count and layer]
    total = sum(count * layer for _, count, layer in units)
    if len(counts) == 1:
        shown = "".join(f"{count} · {layer} · " for _, count, layer in units)
    else:
        shown = "(" + " + ".join(f"{count} · {layer} of chunk {chunk}" for chunk, count, layer in units) + ") · "
    return Line(what, f"alive · layers · {spelled[0]}", f"{shown}{spelled[1]}", total * size)


def _window(parts: Parts) -> list[Line]:
    """The layer whose backward is the largest: what it makes again, its activation gradients, and a weight gradient that is not fused."""
    model, options = parts.run.model, parts.run.options
    _, chunk = moment(parts)
    largest, layers = largest_gemm(parts.tensors[chunk]), list(chunk_layers(parts.run, parts.cells[chunk]))
    if not layers:
        return []
    kind, one, made = max(layers, key=lambda layer: window_bytes(parts.run, layer[1]) + layer[1].offloaded + backward_bytes(
        layer[2], largest, model.hidden, options))
    again, moved = window_bytes(parts.run, one), backward_bytes(made, 0, model.hidden, options)
    stream = backward_bytes({"": 0}, 0, model.hidden, options)
    weight = backward_bytes(made, largest, model.hidden, options) - moved
    lines = [Line(f"{_KINDS.get(kind, kind)}, made again before its backward", "layers at once · bytes",
                  f"{again // one.window if one.window else 1} · {one.window:,}", again),
             Line("brought back from the host before it", "bytes", f"{one.offloaded:,}", one.offloaded),
             Line("gradients along the residual stream" if moved == stream else f"gradient of {_largest(made)}",
                  "2 · w · h · T" if moved == stream else "bytes of the layer's largest tensor",
                  product(2, options.weight_bytes, model.hidden, options.local_tokens) if moved == stream else f"{moved:,}", moved),
             Line("gradient of the largest weight, not added up in the GEMM", "elements · w", product(largest, options.weight_bytes), weight)]
    return [line for line in lines if line.bytes]


def _evaluated(parts: Parts) -> list[Line]:
    """Nothing is kept: the tensors of the largest layer, or the logits where they are more."""
    model, options = parts.run.model, parts.run.options
    logits = evaluation_loss_bytes(model, options) if any(cell.loss for cell in parts.cells) else 0
    layers = [(kind, made) for cell in parts.cells for kind, _, made in chunk_layers(parts.run, cell)]
    if not layers or logits > max(one.layer for one in parts.alive):
        count = options.tokens * model.vocabulary // options.tp
        return [Line("logits and their fp32 copy", "bytes a logit · S · V / t",
                     f"{product(logits // count, options.tokens, model.vocabulary)} / {options.tp}", logits)]
    kind, made = max(layers, key=lambda layer: sum(layer[1].values()))
    return [Line(f"{_KINDS.get(kind, kind)}, {name.replace('_', ' ')}", "bytes", f"{size:,}", size) for name, size in made.items() if size]


def _each(size: int, count: int) -> str:
    return product(size // count, count)


def _named(layer: str, tensor: str) -> str:
    return layer + (tensor.replace("_", " ") if tensor in SAVED else tensor)


def _largest(made: dict[str, int]) -> str:
    return max(made, key=made.__getitem__).replace("_", " ")
