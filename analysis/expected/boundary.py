"""Tensors that pass between stages and are still referenced when an iteration ends.

Source: `pipeline_parallel/schedules.py`, `p2p_communication.py` of Megatron-Core. Each is [s/(c t), b, h] of the pipeline's
dtype. The received input is the first layer's saved input and is not counted again in activations. When an iteration ends, each
chunk that receives an input still refers to the last one and to its gradient: the chunk with the embedding receives none.
"""

from __future__ import annotations

from collections.abc import Iterable

from analysis.expected.allocator import reused
from analysis.expected.model import Model
from analysis.expected.options import Options
from analysis.theory.stages import Cell

_HELD = 2
_IN_TRANSIT = 3


def boundary_tensor(model: Model, options: Options) -> int:
    """Bytes of one tensor between stages."""
    return options.weight_bytes * model.hidden * options.local_tokens


def peak_boundary_bytes(model: Model, options: Options, pp: int) -> int:
    """Bytes beyond the saved inputs while a stage computes: an output, its gradient, and what is received ahead."""
    return _IN_TRANSIT * boundary_tensor(model, options) if pp > 1 else 0


def boundary_bytes(model: Model, options: Options, cells: Iterable[Cell], *, expandable: bool) -> int:
    """Bytes held at the end of an iteration by the chunks of a stage."""
    receiving = sum(1 for cell in cells if not cell.embedding)
    return _HELD * receiving * reused(boundary_tensor(model, options), expandable=expandable)
