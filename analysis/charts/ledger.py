"""Pictures of the expected ledger: each stage's classes beside the measured peak, and where the gap goes.

How all are drawn: `analysis.charts.picture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from analysis.charts.ledger_rows import fullest, part_rows, stage_rows
from analysis.charts.palette import CLASSES, GREY, MEASURES, PARTS
from analysis.charts.picture import EDGE, LINES_OF_BARS, Picture, colours, data, largest, size_of, sized, tip
from analysis.reconcile import Gap, Ledger


def ledger_bars(ledger: Ledger) -> Picture:
    """Expected at the peak, by stage and class, stacked; a mark at the measured peak of the stage's fullest rank."""
    stages = ledger.expected.stages
    kept, said = largest(sorted(stages), LINES_OF_BARS, lambda stage: stages[stage].peak_allocated_bytes, "stages")
    order = {name: at for at, name in enumerate(CLASSES)}
    rows: list[dict[str, Any]] = [{**row, "order": order[row["class"]]} for row in stage_rows(ledger) if int(row["stage"]) in kept]
    y = alt.Y("stage:N", title="stage", sort=[str(stage) for stage in kept])
    bars = data(rows).mark_bar(**EDGE).encode(
        y=y, x=alt.X("gib:Q", title="GiB", stack="zero"), order="order:Q", color=colours("class", CLASSES, [row["class"] for row in rows]),
        tooltip=[tip("stage:N", "stage"), tip("class:N", "class"), *sized(), tip("instant:N", "peaks at")])
    measured = [{"stage": str(one.stage), "class": "measured peak", "rank": one.rank, **size_of(one.max_allocated_bytes)}
                for one in fullest(ledger) if one.stage in kept and one.max_allocated_bytes is not None]
    marks = data(measured).mark_tick(thickness=3, size=22, color=MEASURES["capacity"]).encode(
        y=y, x="gib:Q", tooltip=[tip("rank:Q", "measured peak of rank"), *sized()])
    return Picture(alt.layer(bars, marks).properties(height=170 + 30 * len(kept)), [*rows, *measured],
                   "Expected bytes of each stage by class beside the measured peak", said)


def gap_bars(gaps: Sequence[Gap]) -> Picture:
    """The parts of the gap of each of these ranks, stacked to both sides of nothing."""
    kept, said = largest(gaps, LINES_OF_BARS, lambda one: abs(one.gap_bytes or 0), "ranks")
    rows = part_rows(kept)
    bars = data(rows).mark_bar(**EDGE).encode(
        y=alt.Y("rank:N", title=None, sort=None), x=alt.X("gib:Q", title="GiB", stack="zero"),
        color=colours("part", PARTS, [row["part"] for row in rows], 6), tooltip=[tip("rank:N", "rank"), tip("part:N", "part"), *sized()])
    zero = data([{"gib": 0}]).mark_rule(color=GREY).encode(x="gib:Q")
    return Picture(alt.layer(bars, zero).properties(height=170 + 30 * len(kept)), rows, "The parts of the gap of each stage's fullest rank", said)
