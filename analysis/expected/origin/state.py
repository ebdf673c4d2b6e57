"""Weights, gradients and optimizer, tensor by tensor: parameters by their width, over shards, with padding and rounding as lines of their own.

Source: `weights.py`, `gradients.py`, `optimizer.py`. A total times a width is not the class: the distributed optimizer pads each tensor and each
buffer, and the allocator books whole blocks; what these add is said apart, so that the product of the line above stays what one would write down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from analysis.expected.fsdp import divided
from analysis.expected.gradients import gradient_bytes
from analysis.expected.low_precision import gemm_elements, quantised_shards, replaced_bytes
from analysis.expected.optimizer import Widths, copy_widths, optimizer_bytes, state_widths
from analysis.expected.origin.formulas import elements_of, values
from analysis.expected.origin.lines import CUT, ROUNDING, Line, Parts, product, rest
from analysis.expected.parameters import Tensor, elements
from analysis.expected.transients import step_bytes
from analysis.expected.weights import Buffer, weight_bytes

_GROUPS = {"dense": "parameters", "expert": "experts' parameters"}


def weights(parts: Parts) -> list[Line]:
    """Each kind of tensor by its count, elements and width."""
    options, known = parts.run.options, values(parts.run)
    kinds = Counter[tuple[str, int]]()
    for buffer in parts.buffers:
        for tensor in buffer.tensors:
            kinds[tensor.name, tensor.elements] += tensor.count
    lines = [_weight(name, size, count, options.weight_bytes, elements_of(name, size, known)) for (name, size), count in kinds.items()]
    total = sum(weight_bytes(chunk, options, expandable=parts.run.env.expandable) for chunk in parts.chunks)
    lines = rest(ROUNDING, total, _held(parts, "weights", options.weight_bytes, lines))
    replaced = sum(replaced_bytes(chunk, options) for chunk in parts.chunks)
    return rest(CUT, total - replaced, [*lines, *_replaced(parts)]) if replaced else lines


def _replaced(parts: Parts) -> Iterator[Line]:
    """The weights in whose place quantised parameters stand, by the ranks that share them."""
    options = parts.run.options
    counted = Counter[int]()
    for buffer in parts.buffers:
        counted[quantised_shards(options, buffer)] += gemm_elements([buffer])
    for shards, count in counted.items():
        cut, over = (" / ranks", f" / {shards}") if shards > 1 else ("", "")
        yield Line("quantised parameters in their place", f"- w · elements{cut}", f"- {product(options.weight_bytes, count)}{over}",
                   -(options.weight_bytes * count // shards))


def gradients(parts: Parts) -> list[Line]:
    """Whole buffers by the width of a gradient; only FSDP divides them."""
    options = parts.run.options
    width = options.gradient_bytes
    lines = [Line(f"gradients of the {_GROUPS[group]}", "P · bytes a gradient", product(count, width), count * width)
             for group, count in _counted(parts.buffers).items()]
    total = sum(gradient_bytes(chunk, options, expandable=parts.run.env.expandable) for chunk in parts.chunks)
    return rest(ROUNDING, total, _held(parts, "gradients", width, lines))


def second_gradients(parts: Parts) -> list[Line]:
    """The second set of gradients that old data-parallel wrappers hold in backward."""
    width, count = parts.run.options.weight_bytes, sum(elements(buffer.tensors) for buffer in parts.buffers)
    return [Line("a second set of gradients", "P · w", product(count, width), count * width)]


def optimizer(parts: Parts) -> list[Line]:
    """Master weights and moments by their widths, over the ranks that share them; what is offloaded is taken off."""
    options = parts.run.options
    return _states(parts, state_widths(options), state_widths(options, moments_only=True))


def gradient_copy(parts: Parts) -> list[Line]:
    """The fp32 copy of half-precision gradients, over the same ranks."""
    return _states(parts, copy_widths(parts.run.options), None)


def step(parts: Parts) -> list[Line]:
    """Moments expanded to fp32 for the step."""
    lines = [Line(f"moments of the {_GROUPS[buffer.group]} in fp32", "8 · padded P / n", f"{product(8, buffer.elements)} / {buffer.shards}", size)
             for chunk in parts.chunks for buffer in chunk if (size := step_bytes([buffer], parts.run.options))]
    return lines


def _weight(name: str, size: int, count: int, width: int, spelled: tuple[str, str]) -> Line:
    return Line(name.replace("_", " "), f"count · {spelled[0]} · w", f"{count:,} · {spelled[1]} · {width}", count * size * width)


def _counted(buffers: Iterable[Buffer]) -> Counter[str]:
    counted = Counter[str]()
    for buffer in buffers:
        counted[buffer.group] += elements(buffer.tensors)
    return counted


def _held(parts: Parts, kind: str, width: int, lines: list[Line]) -> list[Line]:
    """What padding adds to a buffer, and what FSDP takes from it."""
    padding = sum(buffer.elements - elements(buffer.tensors) for buffer in parts.buffers)
    if padding:
        lines = [*lines, Line("padding of each tensor and each buffer", "(padded P - P) · bytes", product(padding, width), padding * width)]
    cut = [(buffer.elements * width, divided(kind, parts.run.options, buffer.shards)) for buffer in parts.buffers]
    return lines + [Line("on the other data-parallel ranks (FSDP)", "- bytes · (n - 1) / n", f"- {size:,} · {n - 1:,} / {n:,}", size // n - size)
                    for size, n in cut if n > 1]


def _states(parts: Parts, widths: Widths, moments: Widths | None) -> list[Line]:
    """One line a state and kind of tensor, then what rounds and what is offloaded."""
    run = parts.run
    made, left = (sum(optimizer_bytes(chunk, options, widths, expandable=run.env.expandable) for chunk in parts.chunks)
                  for options in (replace(run.options, offload_fraction=0.0), run.options))
    counted = Counter[tuple[str, int, tuple[str, int]]]()
    for buffer in parts.buffers:
        shards = buffer.shards if run.options.distributed_optimizer else 1
        for tensor in buffer.tensors:
            for state in _named(tensor, widths, moments):
                counted[buffer.group, shards, state] += tensor.total
    lines = [_state(group, shards, state, count) for (group, shards, state), count in counted.items()]
    lines = rest(CUT if run.options.distributed_optimizer else ROUNDING, made, lines)
    return rest("offloaded to the host", left, lines, "- bytes · fraction", f"- {made:,} · {run.options.offload_fraction:g}")


def _state(group: str, shards: int, state: tuple[str, int], count: int) -> Line:
    name, width = state
    over = f" / {shards:,}" if shards > 1 else ""
    return Line(f"{name} of the {_GROUPS[group]}", "P · bytes / n" if over else "P · bytes", product(count, width) + over, count * width // shards)


def _named(tensor: Tensor, widths: Callable[[Tensor], tuple[int, ...]], moments: Widths | None) -> list[tuple[str, int]]:
    """States of a tensor with their names: the widths that are no moments are the master weight's."""
    found = widths(tensor)
    if moments is None:
        return [("fp32 copy of the gradients", width) for width in found]
    kept = len(moments(tensor))
    names = ["master weights"] * (len(found) - kept) + (["momentum"] if kept == 1 else ["first moments", "second moments"])
    return list(zip(names, found, strict=True))
