"""Pictures of the steps: what was left rank by step, the fullest rank from step to step, and the reserved staircase beside the peak.

How all are drawn: `analysis.charts.picture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from analysis.charts.heat import GIB, Row
from analysis.charts.palette import BLUE, MEASURES, OUTLINE, RAMP, RISERS, VERMILLION
from analysis.charts.picture import EDGE, MARKS, ROOM, Picture, colours, data, largest, size_of, sized, tip
from analysis.rows import Riser
from analysis.steps.fullest import Fullest

DOTS = 1_000
"""Risers that are drawn: dots of 60 square pixels hide each other beyond, and a browser takes 0.1 s for each thousand."""
_NOT_TOLD = "not told"


def step_map(cells: Sequence[dict[str, Any]]) -> Picture:
    """Headroom of each rank at each step, the darker the less; a cross at cells near the limit. Cells come from `analysis.steps.step_heat`."""
    rows: list[Row] = [{
        "step": one["first_iteration"], "ranks": _span(one["first_rank"], one["last_rank"]),
        "steps": _span(one["first_iteration"], one["last_iteration"]), **size_of(one["headroom_bytes"]),
        "worst": f"rank {one['worst_rank']}, step {one['worst_iteration']}", "near": bool(one["near"]),
        "bound": "" if one["exact"] else "at least: a maximum that never resets"} for one in cells]
    near, told = largest([row for row in rows if row["near"]], max(0, MARKS - len(rows)), lambda row: -row["bytes"], "crosses, by least headroom")
    order = list(dict.fromkeys(row["ranks"] for row in rows))
    columns = max(1, len({row["step"] for row in rows}))
    x, y = alt.X("step:O", title="iteration", axis=alt.Axis(labelOverlap=True)), alt.Y("ranks:N", title="rank", sort=order)
    tips = [tip("ranks:N", "ranks"), tip("steps:N", "steps"), tip("text:N", "left"), tip("bytes:Q", "bytes", ","), tip("worst:N", "worst"),
            tip("bound:N", "bound")]
    edge: dict[str, Any] = {"stroke": OUTLINE, "strokeWidth": 0.4 if columns <= 60 else 0}
    heat = data(rows).mark_rect(**edge).encode(x=x, y=y, tooltip=tips, color=alt.Color(
        "gib:Q", title="left, GiB", scale=alt.Scale(range=list(RAMP[::-1])),
        legend=alt.Legend(orient="bottom", direction="horizontal", gradientLength=220, gradientThickness=10)))
    crosses = data(near).mark_point(
        shape="cross", size=60, opacity=1, filled=True, color=VERMILLION, stroke="white", strokeWidth=0.5, angle=45).encode(x=x, y=y, tooltip=tips)
    shared = any(row["ranks"].find("-") > 0 or row["steps"].find("-") > 0 for row in rows)
    said = " ".join(text for text in ("Neighbouring ranks and steps share a cell that shows its worst." if shared else "", told) if text)
    return Picture(alt.layer(heat, crosses).properties(height=min(640, ROOM + 14 * len(order))), rows, "Headroom of each rank at each step", said)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def fullest_line(top: Fullest) -> Picture:
    """The fullest rank from step to step, at the steps where it changes."""
    kept, said = largest(top.moved, MARKS // 2, lambda one: one.peak_bytes, "changes, by their peak")
    rows = [{"step": one.iteration, "rank": one.rank, **size_of(one.peak_bytes)} for one in kept]
    chart = data(rows).mark_line(interpolate="step-after", point={"size": 40, "filled": True, "color": BLUE}, color=BLUE).encode(
        x=alt.X("step:Q", title="iteration", axis=alt.Axis(format=",d")), y=alt.Y("rank:Q", title="fullest rank", axis=alt.Axis(tickMinStep=1)),
        tooltip=[tip("step:Q", "iteration"), tip("rank:Q", "rank"), *sized()]).properties(height=200)
    return Picture(chart, rows, "The fullest rank from step to step", said)


def staircase(steps: Sequence[dict[str, Any]], risers: Sequence[Riser]) -> Picture:
    """One rank's reserved and peak allocated by step, its risers marked by kind. Steps come from `analysis.steps.step_levels`, already thinned."""
    lines = [{"iteration": one["iteration"], "what": name, **size_of(one[column])} for one in steps
             for name, column in (("reserved", "held_bytes"), ("peak allocated", "max_allocated_bytes")) if one[column] is not None]
    room = max(0, MARKS - len(lines))
    kept, said = largest(risers, min(room, 500), lambda one: one.rise_bytes, "risers")
    dots = [{"iteration": one.iteration, "what": one.kind or _NOT_TOLD, "rise_gib": one.rise_bytes / GIB, "rise_bytes": one.rise_bytes,
             "with": ", ".join(one.coincided), **size_of(one.reserved_bytes)} for one in kept]
    kinds = [name for name in RISERS if any(row["what"] == name for row in dots)]
    x = alt.X("iteration:Q", title="iteration", axis=alt.Axis(format=",d", grid=False), scale=alt.Scale(nice=False, zero=False))
    y = alt.Y("gib:Q", title="GiB", scale=alt.Scale(zero=False))
    stairs = data(lines).mark_line(interpolate="step-after", strokeWidth=1.6).encode(
        x=x, y=y, color=colours("what", MEASURES, [row["what"] for row in lines], outlined=False),
        tooltip=[tip("what:N", "measure"), tip("iteration:Q", "iteration", ","), *sized()])
    marked = data(dots).mark_point(filled=True, size=90, opacity=1, shape="triangle-up", **EDGE).encode(
        x=x, y=y, fill=alt.Fill("what:N", title="riser",
                                legend=alt.Legend(orient="bottom", symbolStrokeColor=OUTLINE, symbolStrokeWidth=EDGE["strokeWidth"]),
                                scale=alt.Scale(domain=kinds, range=[RISERS[name] for name in kinds])),
        tooltip=[tip("what:N", "riser"), tip("iteration:Q", "iteration", ","), tip("rise_bytes:Q", "rise, bytes", ","), tip("with:N", "with"),
                 tip("text:N", "reserved"), tip("bytes:Q", "bytes", ",")])
    chart = alt.layer(stairs, marked).resolve_scale(color="independent", fill="independent").properties(height=280)
    return Picture(chart, [*lines, *dots], "Reserved and peak allocated memory by step, with each rise to a new maximum", said)


def riser_dots(risers: Sequence[Riser]) -> Picture:
    """Every rank's risers over the steps, by kind."""
    kept, said = largest(risers, DOTS, lambda one: one.rise_bytes, "risers")
    rows = [{"iteration": one.iteration, "rank": one.rank, "kind": one.kind or _NOT_TOLD, "with": ", ".join(one.coincided), **size_of(one.rise_bytes)}
            for one in kept]
    chart = data(rows).mark_point(filled=True, size=60, opacity=0.9, **EDGE).encode(
        x=alt.X("iteration:Q", title="iteration", axis=alt.Axis(format=",d")), y=alt.Y("gib:Q", title="rise of reserved, GiB"),
        color=colours("kind", RISERS, [row["kind"] for row in rows]),
        tooltip=[tip("rank:Q", "rank"), tip("iteration:Q", "iteration", ","), tip("kind:N", "kind"), *sized(), tip("with:N", "with")],
    ).properties(height=260)
    return Picture(chart, rows, "Steps that raised reserved memory", said)


