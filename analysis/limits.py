"""How near a rank came to its limit: margin, headroom under a given capacity, and the class that the evidence allows.

near (hard): capacity - outside - peak active <= margin; near (cache): capacity - outside - max reserved <= margin, not hard: a warning
of slowdown, not of death. A rise of the allocator's retries or out-of-memory errors in a step is a touch of the limit whatever the
margin. A rank is judged over its steps of high load (`analysis/sql/asked/attempt_steps.sql` chooses them, `rank_limits.sql` counts): stable = near
in at least 80 % of at least 5, occasional = near at least once otherwise, clear = never, insufficient = fewer than 5. The two kinds are judged apart:
a rank that was once near by live bytes and always by cache is an occasional hard one. Maxima that Megatron never resets are
upper bounds of the steps that did not move them: a clear one clears every step so far, a near one convicts only the step of its rise.
Where nothing outside torch was measured, outside is at least 0.5 GiB and without upper bound: near can be said, clear cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from analysis.capacity import GIB, Capacity
from analysis.database import asked_text, records
from analysis.rows import Class, Near, Rank
from analysis.steps.chances import chance, drifts, wilson

if TYPE_CHECKING:
    import duckdb

LEAST_OUTSIDE_BYTES = GIB // 2
ENOUGH_STEPS = 5
STABLE_SHARE = 0.8

Kind = Literal["hard", "cache"]
_UNBOUNDED_BYTES = 2**60
_NO_OUTSIDE = "what lies outside torch is in no artifact: run with --log-device-memory-used"


def margin(capacity_bytes: int, largest_request_bytes: int = 0) -> int:
    """Near the limit begins here: the largest of 2 GiB, 3 % of capacity, and the largest single request seen in a step."""
    return max(2 * GIB, capacity_bytes * 3 // 100, largest_request_bytes)


def with_capacity(rank: Rank, capacity: Capacity) -> Rank:
    """The rank judged against another capacity."""
    size = capacity.capacity_bytes

    def left(*held: int | None) -> int | None:
        known = [one for one in held if one is not None]
        return size - sum(known) if len(known) == len(held) else None

    return replace(rank, capacity_bytes=size, capacity_source=capacity.source, headroom_bound_bytes=left(rank.max_reserved_bytes),
                   soft_headroom_bytes=left(rank.outside_bytes, rank.max_reserved_bytes),
                   hard_headroom_bytes=left(rank.outside_bytes, rank.peak_bytes))


def near_limits(connection: duckdb.DuckDBPyConnection, ranks: Sequence[Rank], steps_before: int | None, died: set[int | None]) -> tuple[Near, ...]:
    """The class of every rank whose number is known, within `attempt_steps`. `steps_before`: iterations done before, null where not told."""
    named = [rank for rank in ranks if rank.rank is not None]
    counted = _counted(connection, [rank for rank in named if rank.capacity_bytes is not None])
    return tuple(_judged(rank, counted.get(rank.rank or 0), _covered(rank, steps_before), died=rank.rank in died) for rank in named)


def _counted(connection: duckdb.DuckDBPyConnection, ranks: Sequence[Rank]) -> dict[int, dict[str, Any]]:
    """Counts over the steps of each rank, by rank."""
    if not ranks:
        return {}
    sizes = [rank.capacity_bytes or 0 for rank in ranks]
    high = [size - (LEAST_OUTSIDE_BYTES if rank.outside_bytes is None else rank.outside_bytes) for size, rank in zip(sizes, ranks, strict=True)]
    low = [left if rank.outside_bytes is not None else -_UNBOUNDED_BYTES for left, rank in zip(high, ranks, strict=True)]
    given = {"ranks": [rank.rank for rank in ranks], "left_low": low, "left_high": high, "margin": [margin(size) for size in sizes]}
    return {row["rank"]: row for row in records(connection, asked_text("rank_limits"), given)}


def _covered(rank: Rank, steps_before: int | None) -> int | None:
    """Steps that the rank's maximum since the start spans."""
    return None if rank.iteration is None or steps_before is None else rank.iteration - steps_before


def _judged(rank: Rank, counts: dict[str, Any] | None, steps_covered: int | None, *, died: bool) -> Near:
    if died and not (counts and counts["interval_steps"]):
        return _near(rank, "insufficient", "hard", 1, 1, reason="it ran out of memory: one step is known to have been at the limit")
    if rank.capacity_bytes is None:
        return _near(rank, "undetermined", reason="no capacity in the artifacts; give --capacity")
    if rank.max_reserved_bytes is None and rank.peak_bytes is None:
        return _near(rank, "undetermined", reason="no peak in the artifacts")
    if counts is None or (not counts["interval_steps"] and not counts["near"] and not counts["other_near"]):
        return _by_maximum(rank, steps_covered)
    return _by_steps(rank, counts, died=died)


def _by_steps(rank: Rank, counts: dict[str, Any], *, died: bool) -> Near:
    hard = counts["hard_near"] or counts["other_hard_near"] or died
    names = ("hard_near", "hard_clear", "other_hard_near") if hard else ("near", "clear", "other_near")
    hits, clear, other = (counts[name] for name in names)
    hits, steps = hits + died, counts["steps"] + died
    kind: Kind | None = "hard" if hard else "cache" if hits or other else None
    unknown = steps - hits - clear
    near, reason = _class(hits, clear, unknown, steps, other, counts, known_outside=rank.outside_bytes is not None)
    low, high = chance(hits, steps, counts["correlation"]) if steps and not unknown else (None, None)
    return _near(rank, near, kind, hits, steps, low, high, reason=reason, rule=_rule(counts), other_near_steps=other, unknown_steps=unknown,
                 cache_near_steps=counts["near"], touched_steps=counts["touched"], measured_steps=counts["measured"],
                 own_steps=counts["interval_steps"], correlation=counts["correlation"],
                 drifts=drifts(counts["steps"], counts["drift_correlation"], counts["drift_bytes"]))


def _class(hits: int, clear: int, unknown: int, steps: int, other: int, counts: dict[str, Any], *, known_outside: bool) -> tuple[Class, str]:
    """The class, and why not another."""
    hidden = "a maximum that was never reset hides the others" if known_outside else _NO_OUTSIDE
    if steps < ENOUGH_STEPS:
        what = "steps of high load" if counts["varies"] else "steps"
        return "insufficient", f"{hits} of {steps} {what} near; fewer than {ENOUGH_STEPS} tell nothing about the rest"
    if hits >= STABLE_SHARE * steps:
        return "stable", f"near in {hits} of {steps} steps"
    if not hits and not other:
        return ("clear", f"never near in {steps} steps") if not unknown else ("undetermined", hidden)
    if hits + unknown >= STABLE_SHARE * steps and unknown:
        return "insufficient", f"{hits} of {steps} steps are known to be near and {clear} clear; {hidden}"
    return "occasional", f"near in {hits} of {steps} steps" if hits else f"near in {other} steps, none of high load"


def _rule(counts: dict[str, Any]) -> str:
    if counts["varies"] is None:
        return "every measured step: no load is known"
    if not counts["varies"]:
        return "every measured step: the load does not vary (largest below 1.05 of the mean)"
    return "steps of high load: at least 1.05 of the rank's median load and in its top 10 %"


def _by_maximum(rank: Rank, steps_covered: int | None) -> Near:
    """A maximum since process start."""
    outside = LEAST_OUTSIDE_BYTES if rank.outside_bytes is None else rank.outside_bytes
    left, near = (rank.capacity_bytes or 0) - outside, margin(rank.capacity_bytes or 0)
    kind: Kind | None = "hard" if _short(left, rank.peak_bytes, near) else "cache" if _short(left, rank.max_reserved_bytes, near) else None
    if kind:
        even = "" if rank.outside_bytes is not None else ", even if only 0.5 GiB lie outside torch"
        reason = f"the maximum since the start is near{even}: one step is known to be, no other is known"
        return _near(rank, "insufficient", kind, 1, 1, reason=reason)
    if rank.outside_bytes is None:
        return _near(rank, "undetermined", reason=_NO_OUTSIDE)
    if steps_covered is None or steps_covered < ENOUGH_STEPS:
        return _near(rank, "insufficient", None, 0, steps_covered, reason=f"clear so far, over fewer than {ENOUGH_STEPS} steps")
    low, high = wilson(0, steps_covered)
    return _near(rank, "clear", None, 0, steps_covered, low, high, reason="the maximum since the start is clear, so every step so far is")


def _short(left: int, held: int | None, near: int) -> bool:
    return held is not None and left - held <= near


def _near(rank: Rank, near: Class, kind: Kind | None = None, hits: int | None = None, steps: int | None = None, low: float | None = None,
          high: float | None = None, *, reason: str, **more: Any) -> Near:
    size = None if rank.capacity_bytes is None else margin(rank.capacity_bytes)
    return Near(rank.rank, near, kind, hits, steps, low, high, rank.hard_headroom_bytes, rank.soft_headroom_bytes, size, reason, **more)
