"""Pictures of a snapshot: figures in, a picture out. How all are drawn: `analysis.charts.picture`; class colours: `analysis.charts.palette`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import altair as alt
import numpy as np

from analysis.charts import palette
from analysis.charts.heat import GIB, Row
from analysis.charts.palette import FREE_GREY, OUTLINE, POOLS, RISERS, SIDES, VERMILLION
from analysis.charts.picture import EDGE, LINES_OF_BARS, MARKS, Picture, colours, data, largest, size_of, sized
from analysis.snapshot.compare import Comparison
from analysis.snapshot.layout import Pool
from analysis.snapshot.levels import Peak
from analysis.snapshot.risers import Riser
from analysis.snapshot.rules import CATEGORIES
from analysis.snapshot.timeline import Timeline, m4
from analysis.snapshot.trace import Ints
from analysis.snapshot.treemap import Tile

RANGE, CLICK = "range", "click"
"""Names of what a reader can choose in the timeline: a stretch, or one instant."""

FREE = palette.FREE
_POOL_BYTES = {"allocated": "allocated_bytes", "pending": "pending_bytes", "free pieces": "split_free_bytes", "free segments": "whole_free_bytes"}
COLOURS = {name: FREE_GREY if name == FREE else palette.CLASSES[palette.class_name(name)] for name in (*CATEGORIES, FREE)}


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
    area = data(rows).mark_area(interpolate=how, line=False).encode(
        x=x, y=alt.Y("gib:Q", title="GiB", stack="zero"), order=alt.Order("order:Q"),
        color=_colour(found.categories),
        tooltip=[_tip("class", "class"), _tip("gib:Q", "GiB", ".3f"), _tip("bytes:Q", "bytes", ","), _tip("at:Q", title, ",")]
    ).transform_calculate(order=_order()).add_params(alt.selection_interval(name=RANGE, encodings=["x"]))
    held = data([{"at": where, "gib": size / GIB, "event": int(event)}
                   for where, size, event in zip(at, found.reserved.tolist(), found.event, strict=True)])
    reserved = held.mark_line(interpolate=how, color=OUTLINE, strokeWidth=1.4).encode(x=x, y="gib:Q")
    points = held.mark_point(opacity=0, size=60).encode(x=x, y="gib:Q", tooltip=[_tip("event:Q", "event", ","), _tip("gib:Q", "reserved, GiB", ".3f")]
                                                        ).add_params(alt.selection_point(name=CLICK, nearest=True, fields=["event"], on="click"))
    chart = alt.layer(area, reserved, points, *_marks(found, peak, capacity_bytes, times_us)).properties(height=330)
    thinned = "" if whole else "Drawn are each column's first, lowest, highest and last instant: no peak is lost."
    return Picture(chart, rows, "Levels of memory by class over the trace, with reserved and the peak", thinned)


def empty_timeline() -> Picture:
    """The timeline's frame without levels, for a page to show while it reads them: a browser fetches what draws it meanwhile."""
    drawn = data([{"at": 0, "gib": 0.0}]).mark_point(opacity=0).encode(
        x=alt.X("at:Q", title="event", axis=alt.Axis(labels=False, ticks=False, grid=False)),
        y=alt.Y("gib:Q", title="GiB", axis=alt.Axis(labels=False, ticks=False))).properties(height=330)
    return Picture(drawn, (), "The snapshot is being read")


def composition_bar(shares: Sequence[tuple[str, int]]) -> Picture:
    """One bar: the classes of an instant side by side."""
    rows = [{"class": name, **size_of(size)} for name, size in shares]
    drawn = data(rows).mark_bar(height=34, **EDGE).encode(
        x=alt.X("gib:Q", title="GiB", stack="zero", axis=alt.Axis(grid=False)), order=alt.Order("order:Q"),
        color=_colour([name for name, _ in shares], legend=False), tooltip=[_tip("class", "class"), *sized()]
    ).transform_calculate(order=_order()).properties(height=90)
    return Picture(drawn, rows, "Bar of the classes live at the instant")


def treemap(tiles: Sequence[Tile]) -> Picture:
    """Stacks as areas, inside the area of their class."""
    kept, said = largest(tiles, MARKS // 2, lambda one: one.bytes, "stacks")
    rows = [{"class": one.category, "name": one.name, "bytes": one.bytes, "x": one.x, "x2": one.x + one.width, "y": one.y, "y2": one.y + one.height,
             "label": one.label,
             "ink": palette.ink(COLOURS[one.category]), "cx": one.x + one.width / 2, "cy": one.y + one.height / 2} for one in kept]
    base = data(rows)
    plain = alt.Axis(labels=False, ticks=False, domain=False, grid=False, title=None)
    area = base.mark_rect(**EDGE).encode(
        x=alt.X("x:Q", axis=plain, scale=alt.Scale(domain=[0, 1])), x2="x2:Q", y=alt.Y("y:Q", axis=plain, scale=alt.Scale(domain=[0, 1])), y2="y2:Q",
        color=_colour(list(dict.fromkeys(one.category for one in tiles)), legend=False),
        tooltip=[_tip("name", "stack"), _tip("class", "class"), _tip("bytes:Q", "bytes", ",")])
    words = base.transform_filter("datum.label != ''").mark_text(fontSize=10, limit=220).encode(
        x="cx:Q", y="cy:Q", text="label:N", color=alt.Color("ink:N", scale=None))
    return Picture(alt.layer(area, words).properties(height=330), [{name: row[name] for name in ("class", "name", "bytes")} for row in rows],
                   "Treemap of the stacks live at the instant, inside their classes", said)


def segment_map(rows: Sequence[Row]) -> Picture:
    """Segments as rows from their start, blocks coloured by class, what is free light."""
    rows, said = largest(rows, MARKS, lambda row: row["bytes"], "stretches")
    segments = list(dict.fromkeys(row["segment"] for row in rows))
    shown = [name for name in (*CATEGORIES, FREE) if any(row["class"] == name for row in rows)]
    drawn = data(list(rows)).mark_bar(stroke=OUTLINE, strokeWidth=0.3).encode(
        x=alt.X("start:Q", title="MiB from the start of the segment", axis=alt.Axis(grid=False)), x2="stop:Q",
        y=alt.Y("segment:N", title=None, sort=segments, axis=alt.Axis(labelLimit=190)), color=_colour(shown),
        tooltip=[_tip("segment", "segment"), _tip("class", "class"), _tip("bytes:Q", "bytes", ","), _tip("name", "stack")],
    ).properties(height=60 + 15 * len(segments))
    return Picture(drawn, rows, "Map of the largest segments: blocks by class, free stretches", said)


def pool_bars(pools: Sequence[Pool], main: int) -> Picture:
    """Each stream and pool: allocated, pending and both kinds of free."""
    kept, said = largest(pools, LINES_OF_BARS, lambda pool: pool.reserved_bytes, "streams and pools")
    rows = [{"pool": pool_name(pool, main), "part": part, "order": at, **size_of(size)} for pool in kept
            for at, part in enumerate(POOLS) if (size := getattr(pool, _POOL_BYTES[part])) > 0]
    drawn = data(rows).mark_bar(**EDGE).encode(
        x=alt.X("gib:Q", title="GiB", axis=alt.Axis(grid=False)), y=alt.Y("pool:N", title=None, sort=None, axis=alt.Axis(labelLimit=220)),
        color=colours("part", POOLS, list(POOLS)), order=alt.Order("order:Q"),
        tooltip=[_tip("pool", "stream and pool"), _tip("part", "part"), *sized()]).properties(height=70 + 22 * len(kept))
    return Picture(drawn, rows, "Bars of each stream and pool: allocated, pending, free pieces, free segments", said)


def staircase(reserved: Ints, risers: Sequence[Riser]) -> Picture:
    """Reserved over the events, each riser coloured by its kind."""
    at = m4(reserved, 500)
    steps = [{"event": int(row) - 1, **size_of(int(reserved[row]))} for row in at]
    line = data(steps).mark_line(interpolate="step-after", color=OUTLINE).encode(
        x=alt.X("event:Q", axis=alt.Axis(format=",d", grid=False)), y=alt.Y("gib:Q", title="reserved, GiB", scale=alt.Scale(zero=False)))
    kept, said = largest(risers, MARKS // 2, lambda one: one.rise_bytes, "rises")
    rows = [{"event": one.event, "kind": one.kind, "rise": one.rise_bytes, "request": one.request_bytes, **size_of(one.reserved_bytes)}
            for one in kept]
    dots = data(rows).mark_point(filled=True, size=70, opacity=0.9, **EDGE).encode(
        x="event:Q", y="gib:Q", color=colours("kind", RISERS, [row["kind"] for row in rows]),
        tooltip=[_tip("event:Q", "event", ","), _tip("rise:Q", "rise, bytes", ","), _tip("request:Q", "request, bytes", ","), _tip("kind", "kind")])
    return Picture(alt.layer(line, dots).properties(height=260), [*steps, *rows],
                   "Reserved over the events with each rise to a new maximum", said)


def compared_bars(found: Comparison, before: str, after: str) -> Picture:
    """Each class at the two peaks."""
    sides = dict(zip((before, after), SIDES.values(), strict=True))
    rows = [{"class": palette.class_name(one.name), "which": which, **size_of(size)} for one in found.classes
            for which, size in ((before, one.before_bytes), (after, one.after_bytes))]
    drawn = data(rows).mark_bar(**EDGE).encode(
        y=alt.Y("class:N", title=None, sort=[palette.class_name(name) for name in CATEGORIES]),
        x=alt.X("gib:Q", title="GiB at the peak", axis=alt.Axis(grid=False)), yOffset=alt.YOffset("which:N", sort=[before, after]),
        color=colours("which", sides, [before, after]), tooltip=[_tip("class", "class"), _tip("which", "snapshot"), *sized()],
    ).properties(height=70 + 40 * len(found.classes))
    return Picture(drawn, rows, "Bars of each class at the two peaks")


def pool_name(pool: Pool, main: int) -> str:
    """A stream and pool in words."""
    stream = "main stream" if pool.stream == main else f"stream {pool.stream & 2**64 - 1:#x}"
    return f"{stream}, {pool.kind}" + (f", private pool {pool.pool}" if pool.private else "") + (", expandable" if pool.expandable else "")


def _marks(found: Timeline, peak: Peak, capacity_bytes: int | None, times_us: Ints | None) -> list[alt.Chart]:
    marks = []
    if len(found.event) and found.event[0] <= peak.event <= found.event[-1]:
        row = [{"at": _axis(np.array([peak.event]), times_us)[0], "gib": peak.bytes / GIB, "bytes": peak.bytes, "event": peak.event}]
        marks.append(data(row).mark_point(shape="triangle-down", filled=True, size=110, opacity=1, color=VERMILLION, yOffset=-8, **EDGE).encode(
            x="at:Q", y="gib:Q", tooltip=[_tip("bytes:Q", "peak, bytes", ","), _tip("event:Q", "event", ",")]))
    if capacity_bytes:
        limit = data([{"gib": capacity_bytes / GIB, "bytes": capacity_bytes}])
        marks.append(limit.mark_rule(strokeDash=[5, 4], color=palette.MEASURES["capacity"]).encode(
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


def _tip(field: str, title: str, form: str | None = None) -> alt.Tooltip:
    named = field if ":" in field else f"{field}:N"
    return alt.Tooltip(named, title=title) if form is None else alt.Tooltip(named, title=title, format=form)
