"""What the steps seen say of the next ones: the chance that a rank comes near its limit, or dies, in the next N steps; or why that is not said.

Steps are taken as exchangeable: nothing drifts, nothing was changed. Where that is known to be false, or cannot be known, there is no number: too few
steps, maxima since the start only, steps whose nearness is not known, a trend of the peak, a staircase that still climbs, the first 5 % of training,
more steps than ten times those seen. Per step the 95 % bounds are Wilson's, for none of n the exact 1 - 0.05^(1/n) (`analysis.steps.chances`); over
N steps 1 - (1 - p)^N, where the lower bound counts only as many independent steps as correlated ones are worth. That a peak above all before comes
in the next N of exchangeable steps has the chance N / (n + N), whatever the law. A law is fitted to the tail only where `analysis.steps.tail` allows
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.database import records
from analysis.limits import ENOUGH_STEPS
from analysis.rows import Near, Overview, Rank, Riser
from analysis.steps.chances import chance, effective
from analysis.steps.tail import Tail, tail

if TYPE_CHECKING:
    import duckdb

FARTHEST = 10
"""So many times the steps seen is as far as steps are counted ahead."""
_EARLY = 0.05
_PEAKS = """
SELECT iteration, max_allocated_bytes AS peak_bytes FROM attempt_steps
WHERE counts AND exact AND max_allocated_bytes IS NOT NULL AND list_contains($ranks, rank) ORDER BY iteration, rank
"""


@dataclass(frozen=True, slots=True)
class RankOutlook:
    """One rank over the next steps: bounds (95 %) of the chance to come near its limit at least once, the upper bound of the chance to die, and the
    chance of a peak above all seen; null with the reason where refused."""

    rank: int
    near_low: float | None
    near_high: float | None
    die_high: float | None
    higher_peak: float | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """The next `steps` training steps, judged from this attempt alone; `tail` is the chance of one step of a rank of the fullest stage."""

    steps: int
    ranks: tuple[RankOutlook, ...]
    refused: str | None
    tail: Tail | None
    tail_stage: int | None


def stage_tail(connection: duckdb.DuckDBPyConnection, ranks: Sequence[Rank]) -> tuple[Tail | None, int | None]:
    """The tail of the fullest rank's stage against its hard limit, within `attempt_steps`; null where stage, capacity or outside is not known."""
    known = [rank for rank in ranks if rank.rank is not None and rank.hard_headroom_bytes is not None and rank.stage is not None]
    top = min(known, key=lambda rank: rank.hard_headroom_bytes or 0, default=None)
    if top is None:
        return None, None
    beside = [rank.rank for rank in known if rank.stage == top.stage and rank.capacity_bytes == top.capacity_bytes]
    seen = records(connection, _PEAKS, {"ranks": beside})
    peaks = np.array([row["peak_bytes"] for row in seen], np.float64)
    return tail(peaks, np.array([row["iteration"] for row in seen], np.int64), (top.capacity_bytes or 0) - (top.outside_bytes or 0)), top.stage


def outlook(found: Overview, steps: int | None = None) -> Outlook:
    """The next `steps` (default: as many as were seen). Ranks whose class is undetermined for want of a capacity are refused like any other."""
    seen = max((one.measured_steps or 0 for one in found.near_limit), default=0)
    ahead = seen if steps is None else steps
    whole = _whole(found)
    last: Mapping[int, Riser] = {one.rank: one for one in found.risers}
    ranks = tuple(_rank(one, ahead, whole or _refused(one, ahead, last.get(one.rank if one.rank is not None else -1), found))
                  for one in found.near_limit if one.rank is not None)
    every = {one.refused for one in ranks}
    return Outlook(ahead, ranks, whole or (next(iter(every)) if len(every) == 1 else None), found.tail, found.tail_stage)


def _whole(found: Overview) -> str | None:
    """What forbids any number for the attempt."""
    facts = found.configuration
    if facts.train_iterations and facts.last_iteration is not None and facts.last_iteration < _EARLY * facts.train_iterations:
        return f"the first {_EARLY:.0%} of training: {facts.last_iteration} of {facts.train_iterations} iterations; routing has not settled"
    return None


def _refused(one: Near, ahead: int, last: Riser | None, found: Overview) -> str | None:
    if one.own_steps == 0 or one.own_steps is None:
        return "maxima since the start only: no step's own peak is known"
    if one.near == "undetermined" or one.steps is None or one.unknown_steps:
        return "whether every step came near is not known"
    if one.steps < ENOUGH_STEPS:
        return f"{one.steps} steps that count; fewer than {ENOUGH_STEPS} tell nothing"
    if one.drifts:
        return "the peak drifts: the steps seen do not stand for the next"
    if last and _late(last, found):
        return f"reserved memory still climbs: last at iteration {last.iteration}"
    if ahead > FARTHEST * (one.measured_steps or 0):
        return f"{ahead} steps are more than {FARTHEST} times the {one.measured_steps} seen"
    return None


def _late(riser: Riser, found: Overview) -> bool:
    """Whether a riser stands in the second half of the attempt."""
    first, last = found.configuration.first_iteration, found.configuration.last_iteration
    return first is not None and last is not None and riser.iteration > (first + last) / 2


def _rank(one: Near, ahead: int, refused: str | None) -> RankOutlook:
    rank = one.rank if one.rank is not None else -1
    if refused or not one.steps:
        return RankOutlook(rank, None, None, None, None, refused or "no step counts")
    counted = max(1.0, ahead * one.steps / max(1, one.measured_steps or one.steps))
    low, high = chance(one.near_steps or 0, one.steps, one.correlation)
    die = chance(0, one.steps, one.correlation)[1]
    worth = max(1.0, effective(round(counted), one.correlation))
    return RankOutlook(rank, 1 - (1 - low) ** worth, 1 - (1 - high) ** counted, 1 - (1 - die) ** counted, counted / (counted + one.steps), None)
