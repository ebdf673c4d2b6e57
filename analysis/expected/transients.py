"""Bytes that live within one operation: gradients of the running layer, the optimizer step, counts and norms of gradients.

Source: Megatron-Core `optimizer/{clip_grads,distrib_optimizer}.py`, `training/utils.py`. They stand at their own instants and are
compared there, not added up.
"""

from __future__ import annotations

from collections.abc import Iterable

from analysis.expected.activations import Saved
from analysis.expected.options import Options
from analysis.expected.weights import Buffer

_RESIDUAL_GRADIENTS = 2


def backward_bytes(saved: Saved, largest_weight: int, hidden: int, options: Options) -> int:
    """The running layer's own gradients: of its largest tensor, or the two along the residual stream (of the output and of the
    branch), and a weight gradient where it is not accumulated in the GEMM."""
    weight = 0 if options.gradient_fusion else largest_weight * options.weight_bytes
    stream = _RESIDUAL_GRADIENTS * options.weight_bytes * hidden * options.local_tokens
    return max(stream, *saved.values()) + weight


def step_bytes(chunks: Iterable[Buffer], options: Options) -> int:
    """The optimizer step's own tensors: moments below fp32 are expanded for the whole group unless both are bf16."""
    if not options.precision_aware or not options.expands_moments:
        return 0
    return sum(8 * buffer.elements // buffer.shards for buffer in chunks)
