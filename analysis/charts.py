"""Pictures of an overview: rows in, an Altair chart out, nothing read and nothing drawn elsewhere.

At most `MARKS` marks a chart: beyond, neighbouring ranks share a mark that shows its worst one. Colours are one hue from light to dark
(the darker, the fuller) or from the palette of Okabe and Ito, so that no colour vision is needed. GiB on the axes, bytes in the tooltip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import altair as alt

from analysis.heat import BLUE, GIB, GREY, MARKS, ORANGE, SKY, UNKNOWN, Row, heat_measure, heat_rows
from analysis.rows import Comparison, Rank, Source, Stage
from analysis.theory.leftout import LeftOut
from analysis.verdict import size_text

LABELLED = 64
"""Cells of a map that still have room for a label."""
_STAGE_BARS = (("allocated_bytes", "allocated", BLUE), ("max_allocated_bytes", "peak allocated", SKY),
               ("max_reserved_bytes", "max reserved", ORANGE))
_ROOM = 110
"""Height of axis and legend, which a chart that is fitted to its place takes from its bars."""

Picture = alt.LayerChart | alt.FacetChart


def heat_map(ranks: Sequence[Rank], place: Callable[[Source], str] = str) -> Picture:
    """Stage by rank within the stage; the darker, the closer to the limit. `place` words where a figure was read."""
    measure, words = heat_measure(ranks)
    rows = heat_rows(ranks, measure, place)
    left = "headroom" in measure
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    base = _chart(rows).encode(x=alt.X("position:O", axis=None),
                               y=alt.Y("stage:N", title="stage", sort=stages, axis=alt.Axis(ticks=False, domain=False, labelPadding=8)),
                               tooltip=[_tip("who:N", "rank"), _tip("stage:N", "stage"), _tip("text:N", words), _tip("bytes:Q", "bytes", ","),
                                        _tip("place:N", "read at")])
    cells = base.mark_rect(stroke="white", strokeWidth=0 if len(rows) > LABELLED * 8 else 1.5, cornerRadius=2).encode(
        color=alt.Color("gib:Q", title=f"{words}, GiB", scale=alt.Scale(scheme="tealblues", reverse=left, zero=left),
                        legend=alt.Legend(orient="bottom", direction="horizontal", gradientLength=220, gradientThickness=10)))
    labels = _labels(base, rows, left) if 0 < len(rows) <= LABELLED and max((row["position"] for row in rows), default=0) < 8 else []
    return alt.layer(cells, *labels).properties(height=_ROOM - 20 + max(40, 28 * len(stages)))


def _labels(base: alt.Chart, rows: Sequence[Row], left: bool) -> list[alt.Chart]:
    """Rank and GiB in each cell, white on dark."""
    middle = ((0 if left else min(row["gib"] for row in rows)) + max(row["gib"] for row in rows)) / 2
    dark = f"datum.gib {'<' if left else '>'} {middle}"
    return [base.mark_text(fontSize=11).transform_calculate(label="'rank ' + datum.who + ': ' + format(datum.gib, '.1f')").encode(
        text="label:N", color=alt.condition(dark, alt.value("white"), alt.value("#1d2b33")))]


def stage_bars(stages: Sequence[Stage]) -> Picture:
    """Allocated, peak and reserved of each stage's fullest measured rank, with a rule at the smallest capacity where it is known."""
    rows = [{"stage": UNKNOWN if one.stage is None else str(one.stage), "what": words, "gib": size / GIB, "bytes": size, "text": size_text(size)}
            for one in stages[:MARKS // 3] for name, words, _ in _STAGE_BARS if (size := getattr(one, name)) is not None]
    names = [words for _, words, _ in _STAGE_BARS if any(row["what"] == words for row in rows)]
    bars = _chart(rows).mark_bar(cornerRadius=1).encode(
        y=alt.Y("stage:N", title="stage", sort=list(dict.fromkeys(row["stage"] for row in rows)), axis=alt.Axis(ticks=False, domain=False)),
        yOffset=alt.YOffset("what:N", sort=names), x=alt.X("gib:Q", title="GiB"),
        color=alt.Color("what:N", title=None, sort=names, scale=alt.Scale(domain=names, range=_colours(names)),
                        legend=alt.Legend(orient="bottom", direction="horizontal", columns=3)),
        tooltip=[_tip("stage:N", "stage"), _tip("what:N", "measure"), _tip("text:N", "size"), _tip("bytes:Q", "bytes", ",")],
    ).properties(height=_ROOM + max(40, 14 * len(rows)))
    known = [one.capacity_bytes for one in stages if one.capacity_bytes is not None]
    if not known:
        return alt.layer(bars)
    limit = [{"gib": min(known) / GIB, "bytes": min(known), "text": size_text(min(known))}]
    rule = _chart(limit).mark_rule(color=GREY, strokeDash=[4, 3], strokeWidth=1.5).encode(
        x="gib:Q", tooltip=[_tip("text:N", "device memory"), _tip("bytes:Q", "bytes", ",")])
    return alt.layer(bars, rule)


def theory_bars(compared: Sequence[Comparison]) -> alt.Chart:
    """Printed beside measured: one bar each, bytes in the tooltip."""
    rows: list[Row] = []
    for one in compared:
        who = one.measured if one.rank is None else f"rank {one.rank}, {one.measured}"
        rows += [_side(f"{one.printed}, printed", "printed", one.printed_bytes), _side(who, "measured", one.measured_bytes)]
    rows = list({(row["what"], row["bytes"]): row for row in rows}.values())[:MARKS]
    chart: alt.Chart = _chart(rows).mark_bar(cornerRadius=1).encode(
        y=alt.Y("what:N", title=None, sort=None, axis=alt.Axis(labelLimit=260, ticks=False, domain=False)), x=alt.X("gib:Q", title="GiB"),
        color=alt.Color("kind:N", title=None, legend=alt.Legend(orient="bottom"),
                        scale=alt.Scale(domain=["printed", "measured"], range=[GREY, BLUE])),
        tooltip=[_tip("what:N", "figure"), _tip("text:N", "size"), _tip("bytes:Q", "bytes", ",")],
    ).properties(height=_ROOM + 24 * len(rows))
    return chart


def left_out_bars(left_out: Sequence[LeftOut]) -> alt.Chart:
    """What the formula left out or counted too much, largest first; to the right the run needs more than was printed."""
    rows = [{"what": one.name, "gib": one.bytes / GIB, "bytes": one.bytes, "text": size_text(one.bytes), "stage": one.stage,
             "kind": "the run needs more" if one.bytes >= 0 else "the formula says too much"}
            for one in sorted(left_out, key=lambda one: -abs(one.bytes))[:40]]
    chart: alt.Chart = _chart(rows).mark_bar(cornerRadius=1).encode(
        y=alt.Y("what:N", title=None, sort=None, axis=alt.Axis(labelLimit=260, ticks=False, domain=False)),
        x=alt.X("gib:Q", title="real minus printed, GiB"),
        color=alt.Color("kind:N", title=None, legend=alt.Legend(orient="bottom"),
                        scale=alt.Scale(domain=["the run needs more", "the formula says too much"], range=[ORANGE, SKY])),
        tooltip=[_tip("what:N", "left out"), _tip("stage:N", "stage"), _tip("text:N", "size"), _tip("bytes:Q", "bytes", ",")],
    ).properties(height=_ROOM + 30 + 22 * len(rows))
    return chart


def _side(what: str, kind: str, size: int) -> Row:
    return {"what": what, "kind": kind, "gib": size / GIB, "bytes": size, "text": size_text(size)}


def _colours(names: Sequence[str]) -> list[str]:
    return [colour for _, words, colour in _STAGE_BARS if words in names]


def _tip(field: str, title: str, form: str | None = None) -> alt.Tooltip:
    return alt.Tooltip(field, title=title) if form is None else alt.Tooltip(field, title=title, format=form)


def _chart(rows: list[Row]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=rows))
