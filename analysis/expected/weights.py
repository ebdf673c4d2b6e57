"""Bytes of the weights that a rank computes with, low-precision copies included.

Source: `param_and_grad_buffer.py` (with the distributed optimizer all weights of a buffer are views of one tensor, each
starting at a multiple of 64 elements, each bucket padded), Transformer Engine's cached quantised weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import lcm

from analysis.expected.allocator import booked
from analysis.expected.fsdp import divided
from analysis.expected.options import Options
from analysis.expected.parameters import Group, Tensor
from analysis.theory.layout import ParallelSizes

_ALIGN = 64
_BUCKET = 128
_WIDE_BUCKET = 65536


@dataclass(frozen=True, slots=True)
class Buffer:
    """One contiguous buffer: elements with padding, and over how many ranks the distributed optimizer cuts it."""

    group: Group
    elements: int
    shards: int
    tensors: tuple[Tensor, ...]


def shards(sizes: ParallelSizes, options: Options, group: Group) -> int:
    """Ranks that share one buffer's optimizer state: DP x CP / instances, for experts their own data-parallel size."""
    whole_group = sizes.edp if group == "expert" else sizes.dp * sizes.cp
    return max(whole_group // options.instances, 1)


def buffers(tensors: Iterable[Tensor], sizes: ParallelSizes, options: Options) -> list[Buffer]:
    """The contiguous buffers of ONE model chunk. Without the distributed optimizer nothing is padded."""
    listed = list(tensors)
    return [_buffer(group, [t for t in listed if t.group == group], shards(sizes, options, group), options)
            for group in ("dense", "expert") if any(t.group == group for t in listed)]


def _buffer(group: Group, tensors: list[Tensor], parts: int, options: Options) -> Buffer:
    if not options.distributed_optimizer:
        return Buffer(group, sum(t.total for t in tensors), parts, tuple(tensors))
    size = sum(-(-t.elements // _ALIGN) * _ALIGN * t.count for t in tensors)
    unit = lcm(parts, _BUCKET, _WIDE_BUCKET if options.pad_buckets else 1)
    return Buffer(group, -(-size // unit) * unit, parts, tuple(tensors))


def weight_bytes(chunk: Iterable[Buffer], options: Options, *, expandable: bool) -> int:
    """Bytes of a chunk's weights: one tensor a parameter, or one a buffer with the distributed optimizer."""
    if options.distributed_optimizer:
        sizes = (buffer.elements * options.weight_bytes // divided("weights", options, buffer.shards) for buffer in chunk)
        return sum(booked(size, expandable=expandable) for size in sizes)
    return sum(booked(t.elements * options.weight_bytes, expandable=expandable) * t.count for buffer in chunk for t in buffer.tensors)
