"""The peak of a rank as the largest of a small schedule of instants, each with what lives then; never a sum of maxima.

Instants: the fullest forward (warm-up and steady state), the loss on the last stage, the first backward of the fullest
moment with its recompute window, and the optimizer step. The pipeline schedule itself is walked, because with virtual stages and uneven chunks
the fullest moment is not where most micro-batches are alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.theory.inflight import Schedule, walk


@dataclass(frozen=True, slots=True)
class ChunkBytes:
    """One chunk, one micro-batch: bytes `saved` for its backward, the largest `window` of a layer's recomputation with its
    gradients, and for the chunk with the head what the loss adds above `saved` (0 elsewhere)."""

    saved: int
    window: int
    loss: int = 0


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant's name, and the bytes above what is resident then."""

    name: str
    bytes: int


def schedule_instants(plan: Schedule, stage: int, chunks: Sequence[ChunkBytes]) -> list[Instant]:
    """The fullest forward, loss and backward over the schedule of a stage."""
    alive = 0
    best = {"forward": 0, "loss": 0, "backward": 0}
    for chunk, step in walk(plan, stage):
        one = chunks[chunk]
        if step > 0:
            alive += one.saved
            best["forward"] = max(best["forward"], alive)
            if one.loss:
                best["loss"] = max(best["loss"], alive + one.loss)
        else:
            best["backward"] = max(best["backward"], alive + one.window)
            alive -= one.saved
    return [Instant(name, size) for name, size in best.items() if size]
