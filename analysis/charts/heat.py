"""The map of ranks by stage as rows: what it can show, one row a place, the places of ranks that nobody saw left empty.

A rank stands where its number puts it among the ranks of its stage, so that a rank that was not seen leaves a gap instead of lending its
place to the next one. At most `WIDE` places a stage and `MARKS` in all: beyond, neighbouring ranks share one that shows its worst. Where the
sizes of the run are not known, the ranks that were seen stand side by side. Kept apart from the charts, so that the HTML report draws the
same map without loading a charting library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from analysis.rows import Configuration, Rank, Source
from analysis.verdict import size_text

GIB = 2**30
MARKS = 5_000
WIDE = 128
"""Places of a stage side by side that can still be told apart and pointed at."""
UNKNOWN = "unknown"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a rank stands: its stage and its number among the stage's ranks."""

    stage: str
    position: int


def heat_measure(ranks: Sequence[Rank]) -> tuple[str, str]:
    """What the map of these ranks can show, attribute and words: headroom where it is known, its upper bound, else the fullest measure."""
    measures = (("soft_headroom_bytes", "soft headroom"), ("headroom_bound_bytes", "headroom, at most"), ("max_reserved_bytes", "max reserved"),
                ("max_allocated_bytes", "peak allocated"), ("allocated_bytes", "allocated"))
    return max(measures, key=lambda one: sum(getattr(rank, one[0]) is not None for rank in ranks))


def heat_rows(ranks: Sequence[Rank], measure: str, place: Callable[[Source], str] = str, sizes: Configuration | None = None) -> list[Row]:
    """One row a place: stage, position, the worst rank there with its bytes; null bytes where no rank was seen. None without a measured rank."""
    known = [rank for rank in ranks if getattr(rank, measure) is not None]
    whole = _whole(known, sizes)
    stood = _by_number(known, sizes) if whole else _side_by_side(known)
    lengths = dict.fromkeys(map(str, range(sizes.pp or 1)), whole) if whole and sizes else _lengths(stood)
    share = max([1, ceil(sum(lengths.values()) / max(1, MARKS - len(lengths))), *(ceil(length / WIDE) for length in lengths.values())])
    held: dict[tuple[str, int], list[Rank]] = {}
    for rank, at in stood:
        held.setdefault((at.stage, at.position // share), []).append(rank)
    return [_seen(stage, at, held[stage, at], measure, place, min(share, length - at * share)) if (stage, at) in held
            else _empty(stage, at, share, length, sizes)
            for stage, length in lengths.items() for at in range(ceil(length / share))]


def _whole(ranks: Sequence[Rank], sizes: Configuration | None) -> int:
    """How many ranks a stage has, where the sizes are known and hold for every rank seen; else 0."""
    if sizes is None or not ranks or not sizes.world_size or not sizes.pp or not sizes.pp_stride or sizes.world_size % sizes.pp:
        return 0
    fits = all(rank.rank is not None and 0 <= rank.rank < sizes.world_size and rank.stage == _stage(rank.rank, sizes) for rank in ranks)
    return sizes.world_size // sizes.pp if fits else 0


def _stage(rank: int, sizes: Configuration) -> int:
    return rank // (sizes.pp_stride or 1) % (sizes.pp or 1)


def _by_number(ranks: Sequence[Rank], sizes: Configuration | None) -> list[tuple[Rank, _Place]]:
    assert sizes is not None
    stride, stages = sizes.pp_stride or 1, sizes.pp or 1
    return [(rank, _Place(str(rank.stage), (rank.rank or 0) // (stride * stages) * stride + (rank.rank or 0) % stride)) for rank in ranks]


def _rank_at(stage: int, position: int, sizes: Configuration) -> int:
    stride, stages = sizes.pp_stride or 1, sizes.pp or 1
    return position // stride * stride * stages + stage * stride + position % stride


def _side_by_side(ranks: Sequence[Rank]) -> list[tuple[Rank, _Place]]:
    found: list[tuple[Rank, _Place]] = []
    counts: dict[str, int] = {}
    for rank in sorted(ranks, key=lambda one: (one.stage is None, one.stage or 0, one.rank is None, one.rank or 0)):
        stage = UNKNOWN if rank.stage is None else str(rank.stage)
        counts[stage] = counts.get(stage, -1) + 1
        found.append((rank, _Place(stage, counts[stage])))
    return found


def _lengths(stood: Sequence[tuple[Rank, _Place]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, at in stood:
        found[at.stage] = max(found.get(at.stage, 0), at.position + 1)
    return found


def _seen(stage: str, position: int, held: Sequence[Rank], measure: str, place: Callable[[Source], str], of: int) -> Row:
    def worst_first(rank: Rank) -> int:
        size = int(getattr(rank, measure))
        return size if "headroom" in measure else -size

    worst = min(held, key=worst_first)
    size = int(getattr(worst, measure))
    who = worst.rank_label or "?" if worst.rank is None else str(worst.rank)
    return {"stage": stage, "position": position, "who": who if of == 1 else f"{who}, the fullest of {len(held)} seen here",
            "of": of, "seen": len(held), "gib": size / GIB, "bytes": size, "text": size_text(size), "place": place(worst.source)}


def _empty(stage: str, position: int, share: int, length: int, sizes: Configuration | None) -> Row:
    assert sizes is not None
    start, stop = position * share, min((position + 1) * share, length)
    first, last = _rank_at(int(stage), start, sizes), _rank_at(int(stage), stop - 1, sizes)
    return {"stage": stage, "position": position, "who": str(first) if first == last else f"{first} to {last}", "of": stop - start, "seen": 0,
            "gib": None, "bytes": None, "text": "not seen", "place": None}
