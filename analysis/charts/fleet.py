"""Pictures of the fleet's history: measured over theory by family, near ranks by day, errors by stage and case; summed up by SQL before.

How all are drawn: `analysis.charts.picture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from analysis.charts.palette import BLUE, CASES, GREY, NEAR, ORANGE, OUTLINE, SKY
from analysis.charts.picture import EDGE, LINES_OF_BARS, MARKS, Picture, colours, data, largest, names_axis, tip

Row = dict[str, Any]
FAMILIES = 40
DAYS = 400
_AGAINST = {"over printed": ORANGE, "over expected": SKY}


def ratio_boxes(spread: Sequence[Row]) -> Picture:
    """Measured peak over theory by family: whiskers from the least to the most, a box of the middle half, a mark at the median.

    `spread` has the quantiles of each family and theory, from SQL; one to the right of 1 needs more than was said.
    """
    stages: dict[str, int] = {}
    for row in spread:
        stages[row["family"]] = stages.get(row["family"], 0) + row["stages"]
    families, said = largest(list(stages), FAMILIES, lambda family: stages[family], "families, by their stages")
    kept = set(families)
    rows = [dict(row) for row in spread if row["family"] in kept]
    shared = {"y": alt.Y("family:N", title=None, sort=families, axis=names_axis(220)), "yOffset": alt.YOffset("against:N", sort=list(_AGAINST)),
              "tooltip": [tip("family:N", "family"), tip("against:N", "measured"), tip("stages:Q", "stages", ","), *(
                  tip(f"{name}:Q", words, ".3f") for name, words in (("least", "least"), ("low", "a tenth below"), ("quarter", "a quarter below"),
                      ("middle", "median"), ("three_quarters", "a quarter above"), ("high", "a tenth above"), ("most", "most")))]}
    base = data(rows)
    x = alt.X("least:Q", title="measured peak over theory", scale=alt.Scale(zero=False))
    whisker = base.mark_rule(color=GREY).encode(x=x, x2="most:Q", **shared)
    middle = base.mark_bar(height={"band": 0.6}, **EDGE).encode(
        x="quarter:Q", x2="three_quarters:Q", color=colours("against", _AGAINST, [row["against"] for row in rows]), **shared)
    median = base.mark_tick(thickness=3, color=BLUE, height={"band": 0.8}).encode(x="middle:Q", **shared)
    one = data([{"as_said": 1.0}]).mark_rule(color=OUTLINE, strokeDash=[4, 3]).encode(x="as_said:Q")
    chart = alt.layer(one, whisker, middle, median).properties(height=110 + 46 * len(families))
    return Picture(chart, rows, "Measured peak over theory by family: least, middle half, median and most", said)


def near_bars(days: Sequence[Row]) -> Picture:
    """Ranks of each class on each day, stacked; of many days the last ones."""
    told = sorted({row["day"] for row in days})
    last = set(told[-DAYS:])
    order = list(NEAR)
    rows = [{"day": row["day"].isoformat(), "class": row["near_class"], "ranks": row["ranks"], "order": order.index(row["near_class"])}
            for row in days if row["day"] in last][:MARKS]
    said = "" if len(last) == len(told) else f"Drawn are the last {DAYS} days."
    chart = data(rows).mark_bar(**EDGE).encode(
        x=alt.X("day:O", title="day", axis=alt.Axis(labelOverlap=True)), y=alt.Y("ranks:Q", title="ranks"), order="order:Q",
        color=colours("class", NEAR, [row["class"] for row in rows], 5),
        tooltip=[tip("day:N", "day"), tip("class:N", "class"), tip("ranks:Q", "ranks", ",")]).properties(height=340)
    return Picture(chart, rows, "Ranks of each class on each day", said)


def error_bars(ooms: Sequence[Row]) -> Picture:
    """Errors by stage and case, stacked; of many stages those with most."""
    counts: dict[tuple[str, str], int] = {}
    for row in ooms:
        where = "stage unknown" if row["stage"] is None else f"stage {row['stage']} of {row['stages']}"
        case = row["oom_case"] if row["oom_case"] in CASES else "unknown"
        counts[where, case] = counts.get((where, case), 0) + 1
    of_stage: dict[str, int] = {}
    for (where, _), count in sorted(counts.items()):
        of_stage[where] = of_stage.get(where, 0) + count
    kept, said = largest(list(of_stage), LINES_OF_BARS, lambda where: of_stage[where], "stages, by their errors")
    drawn = set(kept)
    rows = [{"where": where, "case": case, "errors": count} for (where, case), count in sorted(counts.items()) if where in drawn]
    chart = data(rows).mark_bar(**EDGE).encode(
        y=alt.Y("where:N", title=None, sort=kept), x=alt.X("errors:Q", title="errors", axis=alt.Axis(tickMinStep=1, format=",d")),
        color=colours("case", CASES, [row["case"] for row in rows], 6),
        tooltip=[tip("where:N", "where"), tip("case:N", "case"), tip("errors:Q", "errors", ",")]).properties(height=150 + 34 * len(kept))
    return Picture(chart, rows, "Errors by stage and case", said)
