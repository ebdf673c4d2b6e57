"""Classes beside state and activations: what stays between steps, the batch, and what FSDP gathers; a line or two each with their inputs.

Source: `boundary.py`, `workspaces.py`, `caches.py`, `head.py`, `fsdp.py`, `low_precision.py`: their functions are asked, with an input switched
off where that tells two terms apart, instead of writing their constants down a second time.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from analysis.expected.boundary import boundary_bytes, boundary_tensor, peak_boundary_bytes
from analysis.expected.caches import rotary_bytes, stand_in_bytes
from analysis.expected.environment import cublas_workspace, te_workspace
from analysis.expected.fsdp import gathered as units_of
from analysis.expected.head import batch_bytes, deferred_bytes, kept_loss_bytes
from analysis.expected.low_precision import gemm_elements, quantised_copies, quantised_shards, quantised_weight_bytes, scale_bytes
from analysis.expected.moe import routed_tokens
from analysis.expected.origin.lines import CUT, ROUNDING, Line, Parts, product, rest
from analysis.expected.parameters import Tensor
from analysis.expected.stage import leftover_bytes
from analysis.expected.weights import Buffer
from analysis.expected.workspaces import global_buffer_bytes, workspace_bytes


def boundary(parts: Parts) -> list[Line]:
    """Inputs and their gradients that chunks still refer to after a step."""
    model, options, one = parts.run.model, parts.run.options, boundary_tensor(parts.run.model, parts.run.options)
    total = boundary_bytes(model, options, parts.cells, expandable=parts.run.env.expandable)
    receiving = sum(1 for cell in parts.cells if not cell.embedding)
    each = total // (receiving * one) if receiving else 0
    return rest(ROUNDING, total, [Line("input and its gradient of each chunk that receives one", "chunks · tensors · w · h · T",
                                       product(receiving, each, options.weight_bytes, model.hidden, options.local_tokens), receiving * each * one)])


def transit(parts: Parts) -> list[Line]:
    """Tensors between stages while a step computes."""
    model, options = parts.run.model, parts.run.options
    total = peak_boundary_bytes(model, options, parts.run.sizes.pp)
    count = total // boundary_tensor(model, options)
    return [Line("an output, its gradient, and what is received ahead", "tensors · w · h · T",
                 product(count, options.weight_bytes, model.hidden, options.local_tokens), total)]


def workspaces(parts: Parts) -> list[Line]:
    """cuBLAS's workspaces, then Transformer Engine's."""
    run = parts.run
    total = workspace_bytes(run.model, run.options, run.env)
    cublas = workspace_bytes(replace(run.model, experts=0), replace(run.options, transformer_engine=False), run.env)
    one, engine = cublas_workspace(run.env), te_workspace(run.env)
    lines = [Line("cuBLAS: forward's thread and autograd's", "threads · bytes", product(cublas // one, one) if one else "0", cublas)]
    if total > cublas:
        lines.append(Line("Transformer Engine: GEMMs, and streams of grouped GEMMs", "workspaces · bytes",
                          product((total - cublas) // engine, engine), total - cublas))
    return lines


def global_buffer(parts: Parts) -> list[Line]:
    """The largest request that shares the buffer."""
    run, options = parts.run, parts.run.options
    total, width, hidden = global_buffer_bytes(run.model, options, run.sizes), options.weight_bytes, run.model.hidden
    asked = (("gather of sequence parallelism", "w · h · S", (width, hidden, options.tokens)),
             ("tokens of the allgather dispatcher", "w · h · T · EP · ETP", (width, hidden, options.local_tokens, run.sizes.ep, run.sizes.etp)),
             ("scores of local layers", "w · a/t · s · S", (width, run.model.heads // options.tp, options.sequence, options.tokens)))
    return next(([Line(f"the largest request: {what}", symbols, product(*factors), total)]
                 for what, symbols, factors in asked if prod(factors) == total), [Line("the largest request", "bytes", f"{total:,}", total)])


def moe_leftovers(parts: Parts) -> list[Line]:
    """Maps and probabilities of each MoE layer's dispatcher."""
    run, options = parts.run, parts.run.options
    layers = sum(1 for each in parts.tensors for tensor in each if tensor.name == "router")
    routed = routed_tokens(run.model, options, run.sizes)
    lines = [Line("routed probabilities of each MoE layer", "layers · 12 · C", product(layers, 12, routed), layers * 12 * routed)]
    local = run.model.experts // run.sizes.ep if run.model.experts else 0
    return rest("map of tokens to local experts of each MoE layer", leftover_bytes(run, list(parts.chunks)), lines,
                "layers · T · EP · ETP · E/EP", product(layers, options.local_tokens, run.sizes.ep, run.sizes.etp, local))


def quantised_weights(parts: Parts) -> list[Line]:
    """Low-precision GEMM weights and their scales; a group of buffers is cut over the same ranks."""
    lines: list[Line] = []
    for group in dict.fromkeys(buffer.group for buffer in parts.buffers):
        lines += _quantised(parts, [buffer for buffer in parts.buffers if buffer.group == group])
    return rest(CUT, quantised_weight_bytes(parts.buffers, parts.run.options, parts.run.env), lines)


def _quantised(parts: Parts, chunk: list[Buffer]) -> list[Line]:
    options, elements, shards = parts.run.options, gemm_elements(chunk), quantised_shards(parts.run.options, chunk[0])
    copies, cut, over = quantised_copies(options, parts.run.env), " / ranks" * (shards > 1), f" / {shards}" * (shards > 1)
    lines = [Line(f"quantised {chunk[0].group} GEMM weights", f"copies · elements{cut}", f"{product(copies, elements)}{over}",
                  copies * elements // shards),
             Line("scales of blocks", f"elements / 16{cut}", f"{elements:,} / 16{over}", scale_bytes(elements, options) // shards)]
    return [line for line in lines if line.bytes]


def rotary_caches(parts: Parts) -> list[Line]:
    """Angles, cosines and sines of each latent-attention layer."""
    model, layers = parts.run.model, sum(1 for tensor in _flat(parts) if tensor.name == "kv_down")
    one = rotary_bytes(model, 1)
    widths = (one // (model.yarn_positions * model.rope_width), model.yarn_positions, model.rope_width)
    return [Line("angles, cosines and sines of each latent-attention layer", "layers · bytes · positions · d_r", product(layers, *widths),
                 rotary_bytes(model, layers))]


def stand_in_gradients(parts: Parts) -> list[Line]:
    """One stand-in gradient a weight shape."""
    options, width = parts.run.options, parts.run.options.weight_bytes
    found = {(tensor.name, tensor.elements): tensor for tensor in _flat(parts)}
    return [Line(name.replace("_", " "), "elements · w", product(size, width), total) for (name, size), tensor in found.items()
            if (total := stand_in_bytes([tensor], options))]


def loss_leftovers(parts: Parts) -> list[Line]:
    """Logits and softmax that DeepSpeed's pipeline engine still holds."""
    model, options = parts.run.model, parts.run.options
    logits = options.tokens * model.vocabulary // options.tp
    total = kept_loss_bytes(model, options)
    return [Line("logits and softmax of DeepSpeed's pipeline buffers", "bytes a logit · S · V / t",
                 f"{product(total // logits, options.tokens, model.vocabulary)} / {options.tp}", total)]


def batch(parts: Parts) -> list[Line]:
    """Ids, labels, positions and loss mask, and the attention mask that the loader makes."""
    options = parts.run.options
    ids = batch_bytes(replace(options, mask_in_batch=False))
    lines = [Line("token, label and position ids, loss mask", "28 · S", product(ids // options.tokens, options.tokens), ids)]
    return rest("attention mask made by the loader", batch_bytes(options), lines, "b · s² / c",
                f"{product(options.micro_batch, options.sequence, options.sequence)} / {options.cp}")


def gathered(parts: Parts) -> list[Line]:
    """What FSDP gathers whole: what is in no layer, the units of a window, and the running layer's gradient."""
    run, options = parts.run, parts.run.options
    ends, window, gradient = units_of(run.model, options, run.sizes, parts.cells).parts(parts.instant)
    width, made = options.weight_bytes, options.gradient_bytes
    lines = [Line("embedding, head and norms, whole", "bytes of each", f"{ends:,}", ends),
             Line("the running layer and those gathered ahead of it", "bytes of each", f"{window:,}", window),
             Line("the whole gradient of a running layer", "elements · bytes a gradient", product(gradient // made, made), gradient)]
    if not options.fp8_parameters:
        lines[:2] = [replace(line, symbols="elements · w", numbers=product(line.bytes // width, width)) for line in lines[:2]]
    return [line for line in lines if line.bytes]


def deferred_gradients(parts: Parts) -> list[Line]:
    """Micro-batches whose output-layer weight gradient waits."""
    model, options = parts.run.model, parts.run.options
    total, one = (deferred_bytes(model, given, parts.run.plan.microbatches) for given in (options, replace(options, defer_embedding=1)))
    return [Line("inputs and logits' gradients that wait", "micro-batches · w · (h·T + S·V/t)", product(total // one, one) if one else "0", total)]


def _flat(parts: Parts) -> list[Tensor]:
    return [tensor for each in parts.tensors for tensor in each]
