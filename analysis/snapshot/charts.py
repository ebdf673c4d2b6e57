"""Pictures of a snapshot: figures in, an Altair chart out; at most `MARKS` marks each, GiB on the axes, bytes in the tooltip.

Class colours are fixed, from the palettes of Okabe and Ito and of Tol, so that a class looks the same in every picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import numpy as np
import pyarrow as pa

from analysis.snapshot.compare import Comparison
from analysis.snapshot.layout import Pool
from analysis.snapshot.levels import Peak
from analysis.snapshot.risers import ELSEWHERE, FRAGMENTATION, NEED, UNDECIDED, Riser
from analysis.snapshot.rules import CATEGORIES
from analysis.snapshot.timeline import Timeline, m4
from analysis.snapshot.trace import Ints
from analysis.snapshot.treemap import Tile

GIB = 2**30
MARKS = 5_000
RANGE, CLICK = "range", "click"
"""Names of what a reader can choose in the timeline: a stretch, or one instant."""

FREE = "free"
COLOURS = {"weights": "#0072B2", "gradient_buffer": "#56B4E9", "optimizer": "#009E73", "activations": "#E69F00", "recomputed": "#F0E442",
           "logits_and_loss": "#D55E00", "workspace": "#CC79A7", "communication": "#7A4EAB", "checkpoint": "#44AA99", "input": "#882255",
           "unknown": "#8C8C8C", FREE: "#F2F2F2"}
_DARK = ("weights", "optimizer", "logits_and_loss", "communication", "input", "unknown")
_KINDS = {NEED: "#0072B2", FRAGMENTATION: "#D55E00", ELSEWHERE: "#CC79A7", UNDECIDED: "#8C8C8C"}

Row = dict[str, Any]
Picture = alt.Chart | alt.LayerChart | alt.FacetChart


def timeline_chart(found: Timeline, peak: Peak, capacity_bytes: int | None = None, times_us: Ints | None = None) -> Picture:
    """Classes stacked over the events, or over the milliseconds of `times_us`; reserved as a line; the peak and the capacity marked.

    Steps where every event is shown; slopes between the instants of a reduced trace, as M4 is meant to be drawn.
    """
    at = _axis(found.event, times_us)
    title = "event" if times_us is None else "milliseconds since the first event"
    x = alt.X("at:Q", title=title, axis=alt.Axis(format=",d" if times_us is None else ",.1f", grid=False), scale=alt.Scale(nice=False, zero=False))
    rows = [{"at": where, "class": name, "gib": size / GIB, "bytes": int(size)}
            for name, sizes in zip(found.categories, found.of_class, strict=True) for where, size in zip(at, sizes.tolist(), strict=True)]
    whole = len(found.event) > 1 and int(found.event[-1] - found.event[0]) < len(found.event)
    how: Literal["step-after", "linear"] = "step-after" if whole else "linear"
    area = _chart(rows).mark_area(interpolate=how, line=False).encode(
        x=x, y=alt.Y("gib:Q", title="GiB", stack="zero"), order=alt.Order("order:Q"),
        color=_colour(found.categories), tooltip=[_tip("class", "class"), _tip("bytes:Q", "bytes", ","), _tip("at:Q", title, ",")]
    ).transform_calculate(order=_order()).add_params(alt.selection_interval(name=RANGE, encodings=["x"]))
    held = _chart([{"at": where, "gib": size / GIB, "event": int(event)}
                   for where, size, event in zip(at, found.reserved.tolist(), found.event, strict=True)])
    reserved = held.mark_line(interpolate=how, color="#333333", strokeWidth=1.2).encode(x=x, y="gib:Q")
    points = held.mark_point(opacity=0, size=60).encode(x=x, y="gib:Q", tooltip=[_tip("event:Q", "event", ","), _tip("gib:Q", "reserved, GiB", ".3f")]
                                                        ).add_params(alt.selection_point(name=CLICK, nearest=True, fields=["event"], on="click"))
    return alt.layer(area, reserved, points, *_marks(found, peak, capacity_bytes, times_us)).properties(height=330)


def empty_timeline() -> Picture:
    """The timeline's frame without levels, for a page to show while it reads them: a browser fetches what draws it meanwhile."""
    drawn: Picture = _chart([{"at": 0, "gib": 0.0}]).mark_point(opacity=0).encode(
        x=alt.X("at:Q", title="event", axis=alt.Axis(labels=False, ticks=False, grid=False)),
        y=alt.Y("gib:Q", title="GiB", axis=alt.Axis(labels=False, ticks=False))).properties(height=330)
    return drawn


def composition_bar(shares: Sequence[tuple[str, int]]) -> Picture:
    """One bar: the classes of an instant side by side."""
    rows = [{"class": name, "gib": size / GIB, "bytes": size} for name, size in shares]
    drawn: Picture = _chart(rows).mark_bar(height=34).encode(
        x=alt.X("gib:Q", title="GiB", stack="zero", axis=alt.Axis(grid=False)), order=alt.Order("order:Q"),
        color=_colour([name for name, _ in shares], legend=False), tooltip=[_tip("class", "class"), _tip("bytes:Q", "bytes", ",")]
    ).transform_calculate(order=_order()).properties(height=90)
    return drawn


def treemap(tiles: Sequence[Tile]) -> Picture:
    """Stacks as areas, inside the area of their class."""
    rows = [{"class": one.category, "name": one.name, "bytes": one.bytes, "x": one.x, "x2": one.x + one.width, "y": one.y, "y2": one.y + one.height,
             "label": one.label,
             "ink": "white" if one.category in _DARK else "black", "cx": one.x + one.width / 2, "cy": one.y + one.height / 2} for one in tiles]
    base = _chart(rows)
    plain = alt.Axis(labels=False, ticks=False, domain=False, grid=False, title=None)
    area = base.mark_rect(stroke="white", strokeWidth=1).encode(
        x=alt.X("x:Q", axis=plain, scale=alt.Scale(domain=[0, 1])), x2="x2:Q", y=alt.Y("y:Q", axis=plain, scale=alt.Scale(domain=[0, 1])), y2="y2:Q",
        color=_colour(list(dict.fromkeys(one.category for one in tiles)), legend=False),
        tooltip=[_tip("name", "stack"), _tip("class", "class"), _tip("bytes:Q", "bytes", ",")])
    words = base.transform_filter("datum.label != ''").mark_text(fontSize=10, limit=220).encode(
        x="cx:Q", y="cy:Q", text="label:N", color=alt.Color("ink:N", scale=None))
    return alt.layer(area, words).properties(height=330)


def segment_map(rows: Sequence[Row]) -> Picture:
    """Segments as rows from their start, blocks coloured by class, what is free light."""
    segments = list(dict.fromkeys(row["segment"] for row in rows))
    shown = [name for name in (*CATEGORIES, FREE) if any(row["class"] == name for row in rows)]
    drawn: Picture = _chart(list(rows)).mark_bar(stroke="white", strokeWidth=0.3).encode(
        x=alt.X("start:Q", title="MiB from the start of the segment", axis=alt.Axis(grid=False)), x2="stop:Q",
        y=alt.Y("segment:N", title=None, sort=segments, axis=alt.Axis(labelLimit=190)), color=_colour(shown),
        tooltip=[_tip("segment", "segment"), _tip("class", "class"), _tip("bytes:Q", "bytes", ","), _tip("name", "stack")],
    ).properties(height=60 + 15 * len(segments))
    return drawn


def pool_bars(pools: Sequence[Pool], main: int) -> Picture:
    """Each stream and pool: allocated, pending and both kinds of free."""
    parts = (("allocated", "allocated_bytes", "#0072B2"), ("pending", "pending_bytes", "#E69F00"),
             ("free pieces", "split_free_bytes", "#D55E00"), ("free segments", "whole_free_bytes", "#BBBBBB"))
    rows = [{"pool": pool_name(pool, main), "part": part, "gib": size / GIB, "bytes": size, "order": at} for pool in pools
            for at, (part, name, _) in enumerate(parts) if (size := getattr(pool, name)) > 0]
    names = [part for part, _, _ in parts]
    drawn: Picture = _chart(rows).mark_bar().encode(
        x=alt.X("gib:Q", title="GiB", axis=alt.Axis(grid=False)), y=alt.Y("pool:N", title=None, sort=None, axis=alt.Axis(labelLimit=220)),
        color=alt.Color("part:N", title=None, scale=alt.Scale(domain=names, range=[colour for _, _, colour in parts])), order=alt.Order("order:Q"),
        tooltip=[_tip("pool", "stream and pool"), _tip("part", "part"), _tip("bytes:Q", "bytes", ",")]).properties(height=70 + 22 * len(pools))
    return drawn


def staircase(reserved: Ints, risers: Sequence[Riser]) -> Picture:
    """Reserved over the events, each riser coloured by its kind."""
    at = m4(reserved, 500)
    steps = _chart([{"event": int(row) - 1, "gib": int(reserved[row]) / GIB} for row in at])
    line = steps.mark_line(interpolate="step-after", color="#333333").encode(
        x=alt.X("event:Q", axis=alt.Axis(format=",d", grid=False)), y=alt.Y("gib:Q", title="reserved, GiB", scale=alt.Scale(zero=False)))
    largest = sorted(risers, key=lambda one: -one.rise_bytes)[:MARKS // 2]
    rows = [{"event": one.event, "gib": one.reserved_bytes / GIB, "kind": one.kind, "rise": one.rise_bytes, "request": one.request_bytes}
            for one in largest]
    dots = _chart(rows).mark_point(filled=True, size=70, opacity=0.9).encode(
        x="event:Q", y="gib:Q", color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=list(_KINDS), range=list(_KINDS.values()))),
        tooltip=[_tip("event:Q", "event", ","), _tip("rise:Q", "rise, bytes", ","), _tip("request:Q", "request, bytes", ","), _tip("kind", "kind")])
    return alt.layer(line, dots).properties(height=260)


def compared_bars(found: Comparison, before: str, after: str) -> Picture:
    """Each class at the two peaks."""
    rows = [{"class": one.name, "which": which, "gib": size / GIB, "bytes": size} for one in found.classes
            for which, size in ((before, one.before_bytes), (after, one.after_bytes))]
    drawn: Picture = _chart(rows).mark_bar().encode(
        y=alt.Y("class:N", title=None, sort=list(CATEGORIES)), x=alt.X("gib:Q", title="GiB at the peak", axis=alt.Axis(grid=False)),
        yOffset=alt.YOffset("which:N", sort=[before, after]),
        color=alt.Color("which:N", title=None, scale=alt.Scale(domain=[before, after], range=["#56B4E9", "#0072B2"])),
        tooltip=[_tip("class", "class"), _tip("which", "snapshot"), _tip("bytes:Q", "bytes", ",")]).properties(height=40 + 40 * len(found.classes))
    return drawn


def pool_name(pool: Pool, main: int) -> str:
    """A stream and pool in words."""
    stream = "main stream" if pool.stream == main else f"stream {pool.stream & 2**64 - 1:#x}"
    return f"{stream}, {pool.kind}" + (f", private pool {pool.pool}" if pool.private else "") + (", expandable" if pool.expandable else "")


def _marks(found: Timeline, peak: Peak, capacity_bytes: int | None, times_us: Ints | None) -> list[alt.Chart]:
    marks = []
    if len(found.event) and found.event[0] <= peak.event <= found.event[-1]:
        row = [{"at": _axis(np.array([peak.event]), times_us)[0], "gib": peak.bytes / GIB, "bytes": peak.bytes, "event": peak.event}]
        marks.append(_chart(row).mark_point(shape="triangle-down", filled=True, size=110, color="#000000", yOffset=-8).encode(
            x="at:Q", y="gib:Q", tooltip=[_tip("bytes:Q", "peak, bytes", ","), _tip("event:Q", "event", ",")]))
    if capacity_bytes:
        marks.append(_chart([{"gib": capacity_bytes / GIB, "bytes": capacity_bytes}]).mark_rule(strokeDash=[5, 4], color="#B00020").encode(
            y="gib:Q", tooltip=[_tip("bytes:Q", "capacity, bytes", ",")]))
    return marks


def _axis(event: Ints, times_us: Ints | None) -> list[float]:
    """Where events stand on the axis: their index, or milliseconds since the first."""
    if times_us is None or not len(times_us):
        return [int(one) for one in event]
    return [float(one) / 1000 for one in (times_us[np.maximum(event, 0)] - times_us[0])]


def _order() -> str:
    """A Vega expression: the place of a class in `CATEGORIES`."""
    return f"indexof({list(CATEGORIES)}, datum['class'])"


def _colour(shown: Sequence[str], legend: bool = True) -> alt.Color:
    names = [name for name in COLOURS if name in shown]
    words = alt.Legend(orient="bottom", columns=6, labelExpr="replace(datum.label, /_/g, ' ')") if legend else None
    return alt.Color("class:N", title=None, scale=alt.Scale(domain=names, range=[COLOURS[name] for name in names]), legend=words)


def _chart(rows: list[Row]) -> alt.Chart:
    """A chart on an Arrow table: thousands of rows as values inside the specification would each be checked against its schema."""
    return alt.Chart(pa.Table.from_pylist(rows) if rows else alt.InlineData(values=[]))


def _tip(field: str, title: str, form: str | None = None) -> alt.Tooltip:
    named = field if ":" in field else f"{field}:N"
    return alt.Tooltip(named, title=title) if form is None else alt.Tooltip(named, title=title, format=form)
