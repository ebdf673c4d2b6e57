"""What a trace does not hold: bytes that predate it, and whether its ring buffer overflowed or recording began late.

The trace says neither. A full ring shows by a length that is a round number, or by annotations older than its first event (they have a
ring of their own); recording that began late shows by bytes held before the first event with neither sign. Source: the ring of
`_record_memory_history(max_entries=...)`; Megatron-LM asks for 100,000 entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.snapshot.levels import Levels
from analysis.snapshot.lives import Lives
from analysis.snapshot.trace import Action, Trace

COMPLETE, OVERFLOWED, LATE, NO_TRACE = "complete", "ring buffer overflowed", "recording began late", "no trace"


@dataclass(frozen=True, slots=True)
class History:
    """What predates the trace, bytes requested and blocks; `began` says how the trace begins and `evidence` by what sign."""

    began: str
    evidence: str
    before_bytes: int
    before_blocks: int
    kept_bytes: int
    kept_blocks: int
    frees_without_alloc: int
    allocs_without_frames: int
    first_time_us: int | None
    last_time_us: int | None


def history(trace: Trace, lives: Lives, levels: Levels, depth: np.ndarray[tuple[int], np.dtype[np.int64]]) -> History:
    """`depth` is the number of frames of each stack of the snapshot, plumbing included."""
    events = trace.events
    before = lives.birth < 0
    kept = before & (lives.completed_at >= lives.events)
    seen = (lives.requested_at >= 0) & (lives.requested_at < lives.events)
    alloc = events.action == Action.ALLOC
    bare = np.append(depth, 0)[events.stack[alloc]] == 0
    began, evidence = _began(trace, levels)
    times = events.time_us if events.time_us is not None and len(events) else None
    return History(
        began, evidence, before_bytes=int(levels.requested[0]), before_blocks=int(before.sum()), kept_bytes=int(lives.size[kept].sum()),
        kept_blocks=int(kept.sum()), frees_without_alloc=int((before & seen).sum()), allocs_without_frames=int(bare.sum()),
        first_time_us=None if times is None else int(times[0]), last_time_us=None if times is None else int(times[-1]))


def _began(trace: Trace, levels: Levels) -> tuple[str, str]:
    count = len(trace.events)
    if not count:
        return NO_TRACE, "no event: the end state alone is known"
    if not levels.requested[0] and not levels.reserved[0]:
        return COMPLETE, "nothing was held before the first event"
    times = trace.events.time_us
    older = sum(one.time_us is not None and times is not None and one.time_us < times[0] for one in trace.annotations)
    if older:
        return OVERFLOWED, f"{older} annotations are older than the first event"
    if count == 1 or (count >= 1_000 and (count % 10_000 == 0 or count & (count - 1) == 0)):
        return OVERFLOWED, f"exactly {count:,} event{'s' * (count > 1)}, the size of a full ring"
    return LATE, f"{int(levels.requested[0]):,} bytes were held before the first event, and the trace is not of a ring's size"
