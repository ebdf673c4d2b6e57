"""What a page or file gets of one picture: the chart, the rows behind it, what it shows in words, and what was thinned out; and how all are drawn.

A chart has at most `MARKS` marks: a browser stays quick and a reader sees no more. What is beyond is left out from the small end, or neighbours
share a mark that shows their worst, and `said` tells which. GiB on the axes, bytes in the tooltip; colours are those of `analysis.charts.palette`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pyarrow as pa

from analysis.charts.heat import GIB, Row
from analysis.charts.palette import OUTLINE
from analysis.verdict import size_text

Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.HConcatChart
MARKS = 5_000
LINES_OF_BARS = 64
"""Bars below each other that a page still has room for."""
ROOM = 110
"""Height of axis and legend, which a chart that is fitted to its place takes from its bars."""
EDGE: dict[str, Any] = {"stroke": OUTLINE, "strokeWidth": 0.6}
"""The outline of every filled mark: it stands out from both backgrounds where the fill does not."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture. `rows` are those that are drawn, each with its bytes; `said` is empty where nothing was thinned."""

    chart: Chart
    rows: Sequence[Row]
    alt: str
    said: str = ""


def data(rows: Sequence[Row]) -> alt.Chart:
    """A chart over rows as an Arrow table: thousands of rows as values inside the specification would each be checked against its schema."""
    return alt.Chart(table_of(rows) if rows else alt.InlineData(values=[]))


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table, every key of any row a column."""
    return pa.table({name: _column([row.get(name) for row in rows]) for name in dict.fromkeys(name for row in rows for name in row)})


def _column(values: Sequence[Any]) -> pa.Array:
    """Values of one type, or what they read as where they are of several."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if one is None else str(one) for one in values])


def tip(field: str, title: str, form: str | None = None) -> alt.Tooltip:
    """A line of a tooltip."""
    return alt.Tooltip(field, title=title) if form is None else alt.Tooltip(field, title=title, format=form)


def sized() -> list[alt.Tooltip]:
    """The lines of a tooltip that tell a size: as people say it, and its bytes."""
    return [tip("text:N", "size"), tip("bytes:Q", "bytes", ",")]


def size_of(size: int) -> Row:
    """A size as a row holds it."""
    return {"gib": size / GIB, "bytes": size, "text": size_text(size)}


def colours(field: str, palette: Mapping[str, str], shown: Sequence[Any], columns: int = 4, outlined: bool = True) -> alt.Color:
    """The palette's colours of what is shown, in the palette's order, with a legend below; lines are not outlined there either."""
    edge: dict[str, Any] = {"symbolStrokeColor": OUTLINE, "symbolStrokeWidth": EDGE["strokeWidth"]} if outlined else {"symbolStrokeWidth": 3}
    names = [name for name in palette if name in set(shown)]
    return alt.Color(f"{field}:N", title=None, sort=names, scale=alt.Scale(domain=names, range=[palette[name] for name in names]),
                     legend=alt.Legend(orient="bottom", direction="horizontal", columns=columns, **edge))


def names_axis(limit: int = 260) -> alt.Axis:
    """An axis of names beside bars."""
    return alt.Axis(labelLimit=limit, ticks=False, domain=False)


def largest(rows: Sequence[Any], most: int, size: Callable[[Any], float], what: str) -> tuple[list[Any], str]:
    """The `most` largest of `rows`, in their own order, and the sentence that tells what was left out."""
    if len(rows) <= most:
        return list(rows), ""
    kept = set(sorted(range(len(rows)), key=lambda at: -size(rows[at]))[:most])
    return [row for at, row in enumerate(rows) if at in kept], f"Drawn are the {most:,} largest of {len(rows):,} {what}."
