"""Pictures of an overview: rows in, a picture out, nothing read and nothing drawn elsewhere.

How all are drawn: `analysis.charts.picture`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from analysis.charts.heat import UNKNOWN, WIDE, Row, heat_measure, heat_rows
from analysis.charts.palette import FRAMED, GREY, MEASURES, ORANGE, OUTLINE, RAMP, SKY, ink, shade
from analysis.charts.picture import EDGE, LINES_OF_BARS, MARKS, ROOM, Picture, colours, data, largest, names_axis, size_of, sized, tip
from analysis.rows import Comparison, Configuration, Rank, Source, Stage
from analysis.theory.leftout import LeftOut

LABELLED = 16
"""Places side by side that have room for a label on a wide screen."""
LETTER, PADDING = 6.2, 8
"""Pixels of a letter of a label, and of the gap between two."""
_STAGE_BARS = (("allocated_bytes", "allocated"), ("max_allocated_bytes", "peak allocated"), ("max_reserved_bytes", "max reserved"))
_EFFECTS = {"the run needs more": ORANGE, "the formula says too much": SKY}


def heat_map(ranks: Sequence[Rank], place: Callable[[Source], str] = str, sizes: Configuration | None = None) -> Picture:
    """Stage by rank within the stage; the darker, the closer to the limit. Ranks that `sizes` has and nobody saw are dashed places.

    `place` words where a figure was read.
    """
    measure, words = heat_measure(ranks)
    left = "headroom" in measure
    rows = _shaded(heat_rows(ranks, measure, place, sizes), left)
    seen, empty = [row for row in rows if row["seen"]], [row for row in rows if not row["seen"]]
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    wide = max((row["position"] for row in rows), default=0) + 1
    x = alt.X("position:O", title=f"{wide} ranks of a stage, by number" if _single(rows) else "ranks of a stage, by number",
              sort=list(range(wide)), axis=alt.Axis(labels=False, ticks=False, domain=False))
    y = alt.Y("stage:N", title="stage", sort=stages, axis=alt.Axis(ticks=False, domain=False, labelPadding=8))
    tips = [tip("who:N", "rank"), tip("stage:N", "stage"), tip("text:N", words), tip("bytes:Q", "bytes", ","), tip("place:N", "read at")]
    edge: dict[str, Any] = {"stroke": OUTLINE, "strokeWidth": 0.6 if wide <= WIDE // 2 else 0.2}
    cells = data(seen).mark_rect(**edge, cornerRadius=2).encode(x=x, y=y, tooltip=tips, color=alt.Color(
        "gib:Q", title=f"{words}, GiB", scale=alt.Scale(domain=_ends(seen, left), range=list(RAMP[::-1] if left else RAMP)),
        legend=alt.Legend(orient="bottom", direction="horizontal", gradientLength=220, gradientThickness=10)))
    missing = data(empty).mark_rect(fill="transparent", stroke=OUTLINE, strokeDash=[3, 3], strokeWidth=1 if wide <= WIDE // 2 else 0.3).encode(
        x=x, y=y, tooltip=tips[:3])
    labels = _labels(seen, x, y, wide) if wide <= LABELLED and len(rows) * 2 <= MARKS else []
    chart = alt.layer(missing, cells, *labels).properties(height=ROOM + max(40, 36 * len(stages)))
    return Picture(chart, rows, f"Map of stage by rank, coloured by {words}", _told(rows, empty))


def _shaded(rows: list[Row], left: bool) -> list[Row]:
    """With a label of two lines and its ink for each place that was seen."""
    low, high = _ends([row for row in rows if row["seen"]], left)
    for row in rows:
        if row["seen"]:
            share = (row["gib"] - low) / (high - low)
            row |= {"label": f"{row['who']}\n{row['gib']:.1f}", "ink": ink(shade(1 - share if left else share))}
    return rows


def _ends(seen: Sequence[Row], left: bool) -> list[float]:
    """Both ends of the scale: headroom counts from nothing left, anything else from the least."""
    sizes = [row["gib"] for row in seen]
    low, high = (min([0.0, *sizes]) if left else min(sizes, default=0.0)), max(sizes, default=1.0)
    return [low, high] if high > low else [min(low, 0.0), max(high, 1.0)]


def _labels(seen: Sequence[Row], x: alt.X, y: alt.Y, wide: int) -> list[alt.Chart]:
    """Rank and GiB in each place, where the longest label has room in a place of the chart's width.

    A layer an ink: a colour of its own for each label, beside a scale of numbers, makes Vega-Lite 6 fail.
    """
    longest = max((len(line) for row in seen for line in row["label"].split("\n")), default=0)
    room = alt.condition(f"width / {wide} >= {LETTER * longest + PADDING}", alt.value(1), alt.value(0))
    inks = {ink: [row for row in seen if row["ink"] == ink] for ink in sorted({row["ink"] for row in seen})}
    return [data(rows).mark_text(fontSize=11, lineBreak="\n", lineHeight=13, dy=-5, color=ink).encode(x=x, y=y, text="label:N", opacity=room)
            for ink, rows in inks.items()]


def _single(rows: Sequence[Row]) -> bool:
    return all(row["of"] == 1 for row in rows)


def _told(rows: Sequence[Row], empty: Sequence[Row]) -> str:
    single = _single(rows)
    shared = "" if single else "Neighbouring ranks share a place that shows the fullest of those seen."
    dashed = "" if not empty else "Dashed: ranks that were not seen." if single else "Dashed: places of which no rank was seen."
    return f"{shared} {dashed}".strip()


def stage_bars(stages: Sequence[Stage]) -> Picture:
    """Allocated, peak and reserved of each stage's fullest measured rank, with a rule at the smallest capacity where it is known."""
    kept, said = largest(stages, LINES_OF_BARS, lambda one: one.max_reserved_bytes or one.max_allocated_bytes or 0, "stages")
    rows = [{"stage": UNKNOWN if one.stage is None else str(one.stage), "what": words, **size_of(size)}
            for one in kept for name, words in _STAGE_BARS if (size := getattr(one, name)) is not None]
    names = [words for _, words in _STAGE_BARS if any(row["what"] == words for row in rows)]
    bars = data(rows).mark_bar(cornerRadius=1, **EDGE).encode(
        y=alt.Y("stage:N", title="stage", sort=list(dict.fromkeys(row["stage"] for row in rows)), axis=alt.Axis(ticks=False, domain=False)),
        yOffset=alt.YOffset("what:N", sort=names), x=alt.X("gib:Q", title="GiB"), color=colours("what", MEASURES, names, 3),
        tooltip=[tip("stage:N", "stage"), tip("what:N", "measure"), *sized()]).properties(height=ROOM + max(40, 14 * len(rows)))
    known = [one.capacity_bytes for one in stages if one.capacity_bytes is not None]
    limit = [{"what": "capacity", **size_of(min(known))}] if known else []
    rule = data(limit).mark_rule(color=MEASURES["capacity"], strokeDash=[4, 3], strokeWidth=1.5).encode(
        x="gib:Q", tooltip=[tip("text:N", "device memory"), tip("bytes:Q", "bytes", ",")])
    return Picture(alt.layer(bars, rule) if known else alt.layer(bars), [*rows, *limit], "Bars of allocated, peak and reserved memory by stage", said)


def theory_bars(compared: Sequence[Comparison]) -> Picture:
    """Printed beside measured: one bar each, bytes in the tooltip."""
    rows: list[Row] = []
    for one in compared:
        who = one.measured if one.rank is None else f"rank {one.rank}, {one.measured}"
        rows += [{"what": f"{one.printed}, printed", "kind": "printed", **size_of(one.printed_bytes)},
                 {"what": who, "kind": "measured", **size_of(one.measured_bytes)}]
    kept, said = largest(list({(row["what"], row["bytes"]): row for row in rows}.values()), LINES_OF_BARS, lambda row: row["bytes"], "figures")
    chart = data(kept).mark_bar(cornerRadius=1, **EDGE).encode(
        y=alt.Y("what:N", title=None, sort=None, axis=names_axis()), x=alt.X("gib:Q", title="GiB"),
        color=colours("kind", FRAMED, [row["kind"] for row in kept]), tooltip=[tip("what:N", "figure"), *sized()],
    ).properties(height=ROOM + 24 * len(kept))
    return Picture(chart, kept, "Printed footprint beside measured memory", said)


def left_out_bars(left_out: Sequence[LeftOut]) -> Picture:
    """What the formula left out or counted too much, largest first; to the right the run needs more than was printed."""
    ordered, said = largest(sorted(left_out, key=lambda one: -abs(one.bytes)), LINES_OF_BARS, lambda one: abs(one.bytes), "effects")
    rows = [{"what": one.name.replace("_", " "), "stage": one.stage, "kind": list(_EFFECTS)[one.bytes < 0], **size_of(one.bytes)} for one in ordered]
    chart = data(rows).mark_bar(cornerRadius=1, **EDGE).encode(
        y=alt.Y("what:N", title=None, sort=None, axis=names_axis()), x=alt.X("gib:Q", title="real minus printed, GiB"),
        color=colours("kind", _EFFECTS, [row["kind"] for row in rows]), tooltip=[tip("what:N", "left out"), tip("stage:N", "stage"), *sized()],
    ).properties(height=ROOM + 30 + 22 * len(rows))
    zero = data([{"gib": 0}]).mark_rule(color=GREY).encode(x="gib:Q")
    return Picture(alt.layer(chart, zero), rows, "Bars of what the formula left out, in GiB", said)
