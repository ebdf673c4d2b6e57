"""Memory by pipeline stage, and how much the first and the last stage hold above the middle.

The first stage carries the embedding and, under 1F1B, the most micro-batches in flight; the last carries the head, its logits and the loss.
Both are read against the median of the middle stages, each stage by its fullest measured rank: the mean of a stage hides the rank that dies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal

from analysis.rows import Rank, Stage, StageSurplus
from analysis.theory.arguments import Args
from analysis.theory.stages import StageLayout, stage_layout
from ingest.errors import LedgerError

MEASURES = ("allocated_bytes", "max_allocated_bytes", "max_reserved_bytes")
_MOST = ("allocated_bytes", "max_allocated_bytes", "reserved_bytes", "max_reserved_bytes", "device_used_bytes", "outside_bytes")
_LEAST = ("capacity_bytes", "soft_headroom_bytes", "hard_headroom_bytes", "headroom_bound_bytes")


def stage_table(ranks: Sequence[Rank], args: Args) -> tuple[Stage, ...]:
    """One row a stage seen, by its fullest measured rank; headrooms are the least of `ranks`, which may be judged against a given capacity,
    layers those of `args`. The view `stage_memory` tells the same in SQL."""
    held = _holds(args)
    placed: dict[int | None, list[Rank]] = {}
    for rank in ranks:
        if rank.rank is not None:
            placed.setdefault(rank.stage, []).append(rank)
    return tuple(_stage(stage, placed[stage], held.get(stage)) for stage in sorted(placed, key=lambda one: (one is None, one or 0)))


def surpluses(stages: Sequence[Stage], pp: int | None) -> tuple[StageSurplus, ...]:
    """First and last stage above the median of the middle stages seen; empty below three stages or where the ends were not seen."""
    if not pp or pp < 3:
        return ()
    return tuple(_surpluses({one.stage: one for one in stages if one.stage is not None}, pp))


def _surpluses(by_stage: dict[int, Stage], pp: int) -> Iterator[StageSurplus]:
    ends: tuple[tuple[Literal["first", "last"], int], ...] = (("first", 0), ("last", pp - 1))
    for which, stage in ends:
        for measure in MEASURES:
            middle = [size for number, one in by_stage.items() if 0 < number < pp - 1 and (size := getattr(one, measure)) is not None]
            own = getattr(by_stage.get(stage), measure, None)
            if middle and own is not None:
                level = int(median(middle))
                yield StageSurplus(which, stage, measure, own - level, (own - level) / level if level else 0.0, level, len(middle))


def _holds(args: Args) -> dict[int | None, str]:
    """What each stage holds in words; empty where the arguments do not lay the layers out."""
    try:
        layout = stage_layout(args)
    except LedgerError:
        return {}
    return {stage: _in_words(layout, stage) for stage in range(layout.pp)}


def _in_words(layout: StageLayout, stage: int) -> str:
    cells, layers = layout.of_stage(stage), layout.layers_of_stage(stage)
    parts = [f"{layers} layer{'s' * (layers != 1)}"]
    parts += ["embedding"] if any(cell.embedding for cell in cells) else []
    parts += [f"{mtp} MTP"] if (mtp := sum(cell.mtp for cell in cells)) else []
    parts += ["head"] if any(cell.loss for cell in cells) else []
    return ", ".join(parts)


def _stage(stage: int | None, ranks: Sequence[Rank], holds: str | None) -> Stage:
    def known(name: str) -> list[int]:
        return [size for rank in ranks if (size := getattr(rank, name)) is not None]

    most = {name: max(known(name), default=None) for name in _MOST}
    least = {name: min(known(name), default=None) for name in _LEAST}
    numbers = [rank.rank for rank in ranks if rank.rank is not None]
    return Stage(stage=stage, ranks=len(ranks), first_rank=min(numbers), last_rank=max(numbers), holds=holds, **most, **least)
