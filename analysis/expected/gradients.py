"""Bytes of the gradient buffers: whole on every rank, whatever the optimizer shards.

Source: `param_and_grad_buffer.py`: one buffer a chunk and dtype, fp32 by default with bf16 and fp16's own otherwise. The
distributed optimizer shards states, not this buffer; only FSDP does.
"""

from __future__ import annotations

from collections.abc import Iterable

from analysis.expected.allocator import booked
from analysis.expected.fsdp import divided
from analysis.expected.options import Options
from analysis.expected.weights import Buffer


def gradient_bytes(chunk: Iterable[Buffer], options: Options, *, expandable: bool) -> int:
    """Bytes of a chunk's gradient buffers."""
    sizes = (buffer.elements * options.gradient_bytes // divided("gradients", options, buffer.shards) for buffer in chunk)
    return sum(booked(size, expandable=expandable) for size in sizes)
