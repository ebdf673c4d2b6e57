"""What fully sharded data parallelism divides, and the units that it gathers whole while they compute.

Source: Megatron-Core `distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py` and `param_and_grad_buffer.py` at d98e8a64. `optim` shards the
optimizer, `optim_grads` gradients too, `optim_grads_params` weights too. A unit is a transformer or Mamba layer, gathered before it runs
together with those that run next, up to a number of elements, and released after it. What is in no layer (embedding, head, norms) is
gathered where first used and stays until the step ends; since core 0.18 (commit 378d81fb) it stays between steps too where gathers overlap: two
functional tests then rose by 206,053,376 bytes, their embedding and head, and their peaks did not move. PyTorch's FSDP2 and DeepSpeed gather the
ends as units of their own and one unit ahead. Double buffers are two of the largest unit, for weights and for gradients, and stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from analysis.expected.model import Model
from analysis.expected.options import Options
from analysis.expected.parameters import Tensor, cell_tensors, decoder_layers, prediction_layers
from analysis.theory.layout import ParallelSizes
from analysis.theory.stages import Cell

_SHARDED = {"no_shard": frozenset[str](), "optim": frozenset({"optimizer"}), "optim_grads": frozenset({"optimizer", "gradients"}),
            "optim_grads_params": frozenset({"optimizer", "gradients", "weights"})}


@dataclass(frozen=True, slots=True)
class Gathered:
    """Bytes of a stage's gathered weights: the `ends` that are in no layer, the largest `window` of units gathered at once, and the whole
    `gradient` of the largest running unit. `kept` tells which of the ends stay while layers compute and after the step; with `fixed` buffers
    window and gradient never go."""

    ends: int = 0
    window: int = 0
    gradient: int = 0
    kept: tuple[bool, bool] = (False, False)
    fixed: bool = False

    def at(self, instant: str) -> int:
        """What is gathered at an instant of `analysis.expected.instants`."""
        return sum(self.parts(instant))

    def parts(self, instant: str) -> tuple[int, int, int]:
        """Ends, window and gradient at an instant."""
        layers = instant in ("forward", "backward", "evaluation")
        ends = instant == "loss" or (self.kept[0] if layers else self.kept[1])
        return (self.ends if ends else 0, self.window if layers or self.fixed else 0,
                self.gradient if instant == "backward" or self.fixed else 0)


def divided(kind: str, options: Options, shards: int) -> int:
    """By how much FSDP divides `weights` or `gradients`; 1 without it."""
    if options.fsdp is None:
        return 1
    return shards if kind in _SHARDED[options.fsdp] else 1


def gathered(model: Model, options: Options, sizes: ParallelSizes, cells: Sequence[Cell]) -> Gathered:
    """What a stage gathers, in bytes; nothing where weights are not sharded."""
    if options.fsdp != "optim_grads_params":
        return Gathered()
    layers = [layer for cell in cells for layer in (*decoder_layers(model, sizes, cell), *prediction_layers(model, sizes, cell))]
    whole = sum(width(options, cell_tensors(model, sizes, cell)) for cell in cells)
    ends = whole - sum(width(options, layer) for layer in layers)
    largest = max((_elements(layer) for layer in layers), default=0) * options.gradient_bytes
    if options.fsdp_double_buffer:
        return Gathered(ends, 2 * max((width(options, layer) for layer in layers), default=0), 2 * largest, (True, options.fsdp_keeps_ends), True)
    if options.fsdp_units_are_layers:
        return Gathered(ends, _window(options, layers), largest, (True, options.fsdp_keeps_ends))
    alone = [tensor for cell in cells for tensor in cell_tensors(model, sizes, cell) if tensor.kind in ("embedding", "head")]
    before, after = ([[one] for one in alone if one.kind == kind] for kind in ("embedding", "head"))
    return Gathered(max((width(options, [one]) for one in alone), default=0), _window(options, [*before, *layers, *after]), largest)


def width(options: Options, tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors gathered whole: quantised weights as they are, mxfp8 by rows or by columns."""
    return sum(tensor.total * (1 if options.fp8_parameters and tensor.gemm else options.weight_bytes) for tensor in tensors)


def _elements(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.total for tensor in tensors)


def _window(options: Options, units: Sequence[Sequence[Tensor]]) -> int:
    """The most bytes gathered at once: a running unit, and units after it until those hold `fsdp_ahead` elements."""
    elements = [0, *accumulate(_elements(unit) for unit in units)]
    size = [0, *accumulate(width(options, unit) for unit in units)]
    last = most = 0
    for first in range(len(units)):
        last = max(last, first + 1)
        while last < len(units) and elements[last] - elements[first + 1] < options.fsdp_ahead:
            last += 1
        most = max(most, size[last] - size[first])
    return most
