"""The peak of a rank as the largest of a small schedule of instants, each with what lives then; never a sum of maxima.

Instants: the fullest forward (end of warm-up or later), the loss on the last stage, the fullest backward with its recompute
window, an evaluation, the optimizer step, and the state after it. The pipeline schedule itself is walked, because with virtual stages and
uneven chunks the fullest moment is not where most micro-batches are alive. What is resident differs by instant: the fp32
copy of half-precision gradients lives from the step to the next `zero_grad`, boundary tensors of the last iteration are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.theory.inflight import Schedule, walk


@dataclass(frozen=True, slots=True)
class ChunkBytes:
    """One chunk, one micro-batch: bytes `saved` for its backward, `window` of a layer's recomputation with its gradients,
    for the chunk with the head what the `loss` adds above `saved` (0 elsewhere), and the tensors of its largest `layer`."""

    saved: int
    window: int
    loss: int = 0
    layer: int = 0


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant's name and the bytes of each class then; they add up to `bytes`."""

    name: str
    classes: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """All classes together."""
        return sum(self.classes.values())


@dataclass(frozen=True, slots=True)
class Moments:
    """The fullest moments over a schedule: (activations, of the running chunk besides) in forward, loss and backward."""

    forward: tuple[int, int]
    loss: tuple[int, int]
    backward: tuple[int, int]


def fullest(plan: Schedule, stage: int, chunks: Sequence[ChunkBytes], *, later_backwards: bool = False) -> Moments:
    """Walk the schedule of a stage, as far as it is not periodic yet.

    `later_backwards` looks past the first backward of a step, for gradients that only exist once that is done; a single one counts.
    """
    alive = 0
    first = later_backwards and plan.microbatches * plan.chunks > 1
    forward = loss = backward = (0, 0)
    for chunk, step in walk(replace(plan, microbatches=_enough(plan)), stage):
        one = chunks[chunk]
        if step > 0:
            alive += one.saved
            forward = max(forward, (alive, 0))
            loss = max(loss, (alive, one.loss), key=sum) if one.loss else loss
        else:
            backward = backward if first else max(backward, (alive, one.window), key=sum)
            first = False
            alive -= one.saved
    return Moments(forward, loss, backward)


def _enough(plan: Schedule) -> int:
    """Micro-batches after which a schedule only repeats itself: the warm-up and two rounds of groups; whole groups, and no more than there are."""
    warm_up = 2 * plan.pp // plan.chunks + plan.group
    rounds = -(-warm_up // plan.group) + 2
    rest = plan.microbatches % plan.group
    return min(plan.microbatches, rounds * plan.group + rest)
