"""The map of ranks by stage as rows: what it can show, and one row a mark; and the palette that every picture shares.

At most `MARKS` marks a picture: beyond, neighbouring ranks share a mark that shows its worst one. Kept apart from the charts, so that the HTML
report draws the same map without loading a charting library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from analysis.rows import Rank, Source
from analysis.verdict import size_text

GIB = 2**30
MARKS = 5_000
BLUE, SKY, ORANGE, GREY = "#0072B2", "#56B4E9", "#E69F00", "#8C8C8C"
"""Of the palette of Okabe and Ito, and a grey."""

UNKNOWN = "unknown"

Row = dict[str, Any]


def heat_measure(ranks: Sequence[Rank]) -> tuple[str, str]:
    """What the map of these ranks can show, attribute and words: headroom where it is known, its upper bound, else the fullest measure."""
    measures = (("soft_headroom_bytes", "soft headroom"), ("headroom_bound_bytes", "headroom, at most"), ("max_reserved_bytes", "max reserved"),
                ("max_allocated_bytes", "peak allocated"), ("allocated_bytes", "allocated"))
    return max(measures, key=lambda one: sum(getattr(rank, one[0]) is not None for rank in ranks))


def heat_rows(ranks: Sequence[Rank], measure: str, place: Callable[[Source], str] = str) -> list[Row]:
    """One row a mark: stage, position within it, the worst rank there and its bytes. Ranks without the measure have no mark."""
    stages: dict[str, list[Rank]] = {}
    for rank in sorted(ranks, key=lambda one: (one.stage is None, one.stage or 0, one.rank is None, one.rank or 0)):
        if getattr(rank, measure) is not None:
            stages.setdefault(UNKNOWN if rank.stage is None else str(rank.stage), []).append(rank)
    share = max(1, ceil(sum(map(len, stages.values())) / max(1, MARKS - len(stages))))
    return [_heat_row(stage, at // share, held[at:at + share], measure, place) for stage, held in stages.items() for at in range(0, len(held), share)]


def _heat_row(stage: str, position: int, held: Sequence[Rank], measure: str, place: Callable[[Source], str]) -> Row:
    def worst_first(rank: Rank) -> int:
        size = int(getattr(rank, measure))
        return size if "headroom" in measure else -size

    worst = min(held, key=worst_first)
    size = int(getattr(worst, measure))
    who = worst.rank_label or "?" if worst.rank is None else str(worst.rank)
    return {"stage": stage, "position": position, "who": who if len(held) == 1 else f"{who}, the fullest of {len(held)} neighbours",
            "gib": size / GIB, "bytes": size, "text": size_text(size), "place": place(worst.source)}
