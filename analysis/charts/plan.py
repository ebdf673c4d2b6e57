"""Pictures of a plan: each stage before and after, and the tornado of single changes.

How all are drawn: `analysis.charts.picture`.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from analysis.charts.palette import GREY, SIDES, SIGNS
from analysis.charts.picture import EDGE, LINES_OF_BARS, Picture, colours, data, largest, names_axis, size_of, sized, tip
from analysis.plan.change import Plan, Sensitivity


def plan_bars(one: Plan) -> Picture:
    """The peak of each stage before and after the change."""
    kept, said = largest(one.stages, LINES_OF_BARS, lambda stage: stage.peak_bytes, "stages")
    rows = [{"stage": str(stage.stage), "what": what, **size_of(size)} for stage in kept
            for what, size in (("before", stage.before_bytes), ("after", stage.peak_bytes)) if size is not None]
    chart = data(rows).mark_bar(**EDGE).encode(
        y=alt.Y("stage:N", title="stage", sort=[str(stage.stage) for stage in kept]), yOffset=alt.YOffset("what:N", sort=list(SIDES)),
        x=alt.X("gib:Q", title="peak, GiB"), color=colours("what", SIDES, [row["what"] for row in rows]),
        tooltip=[tip("stage:N", "stage"), tip("what:N", "when"), *sized()]).properties(height=170 + 40 * len(kept))
    return Picture(chart, rows, "Peak of each stage before and after the change", said)


def tornado(found: Sequence[Sensitivity]) -> Picture:
    """What each single change saves, to the left, or costs, to the right, the largest first. Changes that move nothing are not drawn."""
    moved = [row for row in found if row.saved_bytes]
    kept, said = largest(moved, LINES_OF_BARS, lambda row: abs(row.saved_bytes or 0), "changes")
    ordered = sorted(kept, key=lambda row: (-abs(row.saved_bytes or 0), row.sentence))
    rows = [{"what": row.sentence.partition(" (")[0], "kind": "saves" if (row.saved_bytes or 0) > 0 else "costs", **size_of(-(row.saved_bytes or 0))}
            for row in ordered]
    bars = data(rows).mark_bar(**EDGE).encode(
        y=alt.Y("what:N", title=None, sort=None, axis=names_axis(340)), x=alt.X("gib:Q", title="change of the fullest rank's peak, GiB"),
        color=colours("kind", SIGNS, [row["kind"] for row in rows]), tooltip=[tip("what:N", "change"), tip("kind:N", "it"), *sized()])
    zero = data([{"gib": 0}]).mark_rule(color=GREY, strokeWidth=1.5).encode(x="gib:Q")
    return Picture(alt.layer(bars, zero).properties(height=90 + 24 * len(rows)), rows, "Bytes that each single change saves or costs", said)
