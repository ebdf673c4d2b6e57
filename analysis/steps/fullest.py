"""Which rank is the fullest, how often, and whether that moves: over the steps of high load, the rank with the largest peak of live bytes.

Routing moves, and so does the fullest card; a dense run's fullest card stays. Ranks whose peaks lie within one large segment of the allocator
(20 MiB) are as full as each other: the fullest moved only where the one before fell behind by more. A maximum that was never reset is a step's own
only in the step that raised it, so a step is left open where such a bound could hide a fuller rank. SQL: `analysis/sql/asked/fullest_steps.sql`
and `fullest_ranks.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.coverage import shown_ranks
from analysis.database import asked_text, records
from ingest.allocator import LARGE_SEGMENT_BYTES

if TYPE_CHECKING:
    import duckdb

ALIKE_BYTES = LARGE_SEGMENT_BYTES
HIGH, EVERY = "steps of high load of any rank", "every measured step"
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class FullestRank:
    """One rank: in how many of the compared steps it was the fullest or as full, their share, and its largest peak in them."""

    rank: int
    steps: int
    share: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Move:
    """A step in which another rank was the fullest than in the compared step before; the first one names no rank before."""

    iteration: int
    rank_before: int | None
    rank: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Fullest:
    """`steps` compared, chosen by `rule`, of which `unknown_steps` stay open; `moves` counts `moved` without its first."""

    sentence: str
    rule: str
    steps: int
    unknown_steps: int
    ranks_read: int
    moves: int
    ranks: tuple[FullestRank, ...]
    moved: tuple[Move, ...]


def fullest(connection: duckdb.DuckDBPyConnection) -> Fullest | None:
    """The fullest rank over the steps of an attempt, within `attempt_steps`; null where no step was read on two ranks."""
    steps = records(connection, asked_text("fullest_steps"), {"alike_bytes": ALIKE_BYTES})
    if not steps:
        return None
    known = [row for row in steps if row["rank"] is not None]
    given = {"iterations": [row["iteration"] for row in known], "peaks": [row["peak_bytes"] for row in known], "alike_bytes": ALIKE_BYTES}
    ranks = tuple(FullestRank(row["rank"], row["steps"], row["steps"] / len(known), row["peak_bytes"])
                  for row in (records(connection, asked_text("fullest_ranks"), given) if known else ()))
    moved = tuple(Move(row["iteration"], row["rank_before"], row["rank"], row["peak_bytes"]) for row in known
                  if row["rank_before"] is None or row["moved"])
    rule = HIGH if steps[0]["varies"] else EVERY
    sentence = _sentence(ranks, len(known), len(steps), max(0, len(moved) - 1), "steps of high load" if steps[0]["varies"] else "steps")
    return Fullest(sentence, rule, len(known), len(steps) - len(known), max(row["ranks"] for row in steps), max(0, len(moved) - 1), ranks, moved)


def _sentence(ranks: Sequence[FullestRank], known: int, of: int, moves: int, what: str) -> str:
    """What a reader wants first: always the same, or how often it moved and between which."""
    hidden = "" if known == of else f"; in {of - known} more a maximum that was never reset hides which"
    if not known:
        return f"which rank was the fullest is known in none of {of} {what}: a maximum that was never reset hides it"
    always = tuple(one.rank for one in ranks if one.steps == known)
    if always and not moves:
        who = f"ranks {shown_ranks(always)}, alike within 20 MiB," if len(always) > 1 else f"rank {always[0]}"
        where = f"all {known} {what}" if known > 1 else "the one step that tells"
        return f"always {who} {'were' if len(always) > 1 else 'was'} the fullest, in {where}{hidden}"
    named = ", ".join(f"rank {one.rank} in {one.share:.0%}" for one in ranks[:_SHOWN])
    rest = f", {len(ranks) - _SHOWN} more in the rest" if len(ranks) > _SHOWN else ""
    return f"the fullest rank moved {_times(moves)} over {known} {what}: {named}{rest}{hidden}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
