"""Bytes of the optimizer: fp32 master weights, moments, and the fp32 copy of gradients that half-precision buffers need.

Source: `optimizer/optimizer.py`, `distrib_optimizer.py`, `optimizer_config.py`; Transformer Engine `fused_adam.py`. The copy
(`main_param.grad = main_grad.float()`) is a view where the buffer is fp32; elsewhere it lives from the step to the next
`zero_grad`, so it stands in Megatron's memory line. The precision-aware optimizer reads gradients in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from analysis.expected.allocator import booked
from analysis.expected.options import Options
from analysis.expected.parameters import Tensor
from analysis.expected.weights import Buffer

_ONE_MOMENT = ("sgd", "lion")
_MATRIX_OPTIMIZERS = ("muon", "dist_muon")

Widths = Callable[[Tensor], tuple[int, ...]]


def state_widths(options: Options, *, moments_only: bool = False) -> Widths:
    """Bytes a parameter of each tensor the optimizer keeps: master weight and moments. Matrix optimizers keep one momentum of a
    matrix and Adam's two of everything else (embedding, head, norms, biases)."""
    def widths(tensor: Tensor) -> tuple[int, ...]:
        if options.precision_aware:
            return options.moments_bytes if moments_only else (_precise_master(options), *options.moments_bytes)
        matrix = options.optimizer in _MATRIX_OPTIMIZERS and tensor.kind in ("matrix", "grouped")
        moments = (4,) if matrix or options.optimizer in _ONE_MOMENT else (4, 4)
        return moments if moments_only or not options.main_weights else (4, *moments)

    return widths


def copy_widths(options: Options) -> Widths:
    """Bytes a parameter of the fp32 gradient copy: none where the buffer is fp32 or gradients are read in place."""
    copied = () if options.gradient_bytes == 4 or options.precision_aware or not options.half else (4,)
    return lambda tensor: copied


def optimizer_bytes(chunk: Iterable[Buffer], options: Options, widths: Widths, *, expandable: bool) -> int:
    """Bytes of a chunk's tensors of these widths on the device; what is offloaded is not here."""
    kept = 1 - options.offload_fraction
    return int(sum(_tensors(buffer, tensor, options, widths, expandable) for buffer in chunk for tensor in buffer.tensors) * kept)


def _tensors(buffer: Buffer, tensor: Tensor, options: Options, widths: Widths, expandable: bool) -> int:
    if options.distributed_optimizer:
        return sum(tensor.total * width for width in widths(tensor)) // buffer.shards
    return sum(booked(tensor.elements * width, expandable=expandable) * tensor.count for width in widths(tensor))


def _precise_master(options: Options) -> int:
    """int16 remainders beside bf16 weights, unless an fp8 recipe other than delayed scaling switches that off."""
    remainders = options.fp8 is None or options.fp8_recipe == "delayed"
    return 2 if options.master_bytes == 4 and remainders else options.master_bytes
