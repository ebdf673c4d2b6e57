"""How near a rank came to its limit: margin, headroom under a given capacity, and the class that the evidence allows.

near (hard): capacity - outside - peak active <= margin; near (cache): capacity - outside - max reserved <= margin, not hard: a warning
of slowdown, not of death. A rise of the allocator's retries or out-of-memory errors in a step is a touch of the limit whatever the
margin. Maxima that Megatron never resets prove more than one step: a clear final maximum clears every step so far; a near one proves
one step only. Where nothing outside torch was measured, outside is at least 0.5 GiB and without upper bound: near can be said, clear cannot.
Every step counts here: steps of high load are not told apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

from analysis.capacity import GIB, Capacity
from analysis.rows import Class, Near, Rank

LEAST_OUTSIDE_BYTES = GIB // 2
ENOUGH_STEPS = 5
STABLE_SHARE = 0.8
_Z = 1.959964

Step = Mapping[str, Any]


def margin(capacity_bytes: int) -> int:
    """Near the limit begins here: the larger of 2 GiB and 3 % of capacity."""
    return max(2 * GIB, capacity_bytes * 3 // 100)


def with_capacity(rank: Rank, capacity: Capacity) -> Rank:
    """The rank judged against another capacity."""
    size = capacity.capacity_bytes

    def left(*held: int | None) -> int | None:
        known = [one for one in held if one is not None]
        return size - sum(known) if len(known) == len(held) else None

    return replace(rank, capacity_bytes=size, capacity_source=capacity.source, headroom_bound_bytes=left(rank.max_reserved_bytes),
                   soft_headroom_bytes=left(rank.outside_bytes, rank.max_reserved_bytes),
                   hard_headroom_bytes=left(rank.outside_bytes, rank.peak_bytes))


def near_limit(rank: Rank, steps: Sequence[Step], steps_covered: int | None, *, died: bool = False) -> Near:
    """The class of one rank.

    `steps` are its records with interval peaks (`max_allocated_bytes`, `max_reserved_bytes`, `touched`); `steps_covered` says how many
    steps its cumulative maximum spans, null where unknown; `died` tells that the rank ran out of memory.
    """
    if died:
        return _near(rank, "insufficient", "hard", 1, 1, None, None, "it ran out of memory: one step is known to have been at the limit")
    if rank.capacity_bytes is None:
        return _undetermined(rank, "no capacity in the artifacts; give --capacity")
    if rank.max_reserved_bytes is None and rank.peak_bytes is None:
        return _undetermined(rank, "no peak in the artifacts")
    if rank.outside_bytes is None:
        return _without_outside(rank)
    if steps:
        return _by_steps(rank, steps)
    return _by_maximum(rank, steps_covered)


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a chance seen `hits` times in `of`; for none the exact upper bound, about 3/n."""
    if hits == 0:
        return 0.0, 1 - 0.05 ** (1 / of)
    share, square = hits / of, _Z * _Z
    centre, half = share + square / (2 * of), _Z * sqrt(share * (1 - share) / of + square / (4 * of * of))
    return max(0.0, (centre - half) / (1 + square / of)), min(1.0, (centre + half) / (1 + square / of))


def _by_steps(rank: Rank, steps: Sequence[Step]) -> Near:
    kinds = [_kind(rank, step["max_allocated_bytes"], step["max_reserved_bytes"], touched=bool(step["touched"])) for step in steps]
    hits, count = sum(kind is not None for kind in kinds), len(steps)
    low, high = wilson(hits, count)
    kind = "hard" if "hard" in kinds else "cache" if hits else None
    near: Class = "insufficient" if count < ENOUGH_STEPS else "stable" if hits >= STABLE_SHARE * count else "occasional" if hits else "clear"
    return _near(rank, near, kind, hits, count, low, high, "every measured step counts alike; steps of high load are not told apart")


def _by_maximum(rank: Rank, steps_covered: int | None) -> Near:
    """A maximum since process start."""
    kind = _kind(rank, rank.peak_bytes, rank.max_reserved_bytes, touched=False)
    if kind:
        return _near(rank, "insufficient", kind, 1, 1, None, None, "the maximum since the start is near: one step is known to be, no other is known")
    if steps_covered is None or steps_covered < ENOUGH_STEPS:
        return _near(rank, "insufficient", None, 0, steps_covered, None, None, f"clear so far, over fewer than {ENOUGH_STEPS} steps")
    low, high = wilson(0, steps_covered)
    return _near(rank, "clear", None, 0, steps_covered, low, high, "the maximum since the start is clear, so every step so far is")


def _without_outside(rank: Rank) -> Near:
    least = _with_least_outside(rank)
    if _kind(least, least.peak_bytes, least.max_reserved_bytes, touched=False):
        kind = _kind(least, least.peak_bytes, least.max_reserved_bytes, touched=False)
        return _near(rank, "insufficient", kind, 1, 1, None, None, "near even if only 0.5 GiB lie outside torch")
    return _undetermined(rank, "what lies outside torch is in no artifact: run with --log-device-memory-used")


def _with_least_outside(rank: Rank) -> Rank:
    """The rank as if only the least there can be lay outside torch: an upper bound of its headroom."""
    capacity = Capacity(rank.capacity_bytes or 0, rank.capacity_source or "")
    return with_capacity(replace(rank, outside_bytes=LEAST_OUTSIDE_BYTES), capacity)


def _kind(rank: Rank, peak: int | None, reserved: int | None, *, touched: bool) -> Any:
    """`hard`, `cache`, or null where the step stayed clear."""
    assert rank.capacity_bytes is not None
    left, near = rank.capacity_bytes - (rank.outside_bytes or 0), margin(rank.capacity_bytes)
    if peak is not None and left - peak <= near:
        return "hard"
    return "cache" if touched or (reserved is not None and left - reserved <= near) else None


def _undetermined(rank: Rank, reason: str) -> Near:
    return _near(rank, "undetermined", None, None, None, None, None, reason)


def _near(rank: Rank, near: Class, kind: Any, hits: int | None, steps: int | None, low: float | None, high: float | None, reason: str) -> Near:
    size = None if rank.capacity_bytes is None else margin(rank.capacity_bytes)
    return Near(rank.rank, near, kind, hits, steps, low, high, rank.hard_headroom_bytes, rank.soft_headroom_bytes, size, reason)
