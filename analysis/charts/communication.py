"""The picture of the page Communication: each rank's lower bound, what the estimate adds, what the upper bound adds, and the measured point."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from analysis.charts.heat import GIB, Row
from analysis.charts.palette import BOUNDS, VERMILLION
from analysis.charts.picture import EDGE, Picture, colours, data, largest, names_axis, size_of, sized, tip
from analysis.communication.rows import RankCommunication
from analysis.verdict import size_text

MOST_RANKS = 256


def bar_rows(ranks: Sequence[RankCommunication]) -> list[Row]:
    """Three stacked pieces a rank, that together reach the upper bound; beyond `MOST_RANKS` the ranks with most."""
    kept, _ = _kept(ranks)
    shown = sorted(kept, key=lambda one: (one.rank is None, one.rank or 0, one.who))
    rows: list[Row] = []
    for at, one in enumerate(shown):
        sizes = (one.lower_bytes, one.estimate_bytes - one.lower_bytes, one.upper_bytes - one.estimate_bytes)
        ends = (one.lower_bytes, one.estimate_bytes, one.upper_bytes)
        rows += [{"order": at, "who": _who(one), "what": name, "place": place, "gib": size / GIB, "bytes": end, "text": size_text(end)}
                 for place, (name, size, end) in enumerate(zip(BOUNDS, sizes, ends, strict=True))]
    return rows


def communication_bars(ranks: Sequence[RankCommunication]) -> Picture:
    """Stacked bars by rank; a tick where memory outside torch was measured."""
    rows = bar_rows(ranks)
    order = list(dict.fromkeys(row["who"] for row in rows))
    y = alt.Y("who:N", title="rank", sort=order, axis=names_axis(180))
    bars = data(rows).mark_bar(cornerRadius=1, **EDGE).encode(
        y=y, x=alt.X("gib:Q", title="GiB outside torch", stack="zero"), order=alt.Order("place:Q"),
        color=colours("what", BOUNDS, list(BOUNDS)), tooltip=[tip("who:N", "rank"), tip("what:N", "figure"), *sized()])
    drawn = set(order)
    measured = [{"who": _who(one), "what": "measured: device used - reserved", **size_of(one.outside_bytes)}
                for one in ranks if one.outside_bytes is not None and _who(one) in drawn][:MOST_RANKS]
    ticks = data(measured).mark_tick(color=VERMILLION, thickness=3).encode(
        y=y, x="gib:Q", tooltip=[tip("who:N", "rank"), tip("what:N", "figure"), *sized()])
    chart = alt.layer(bars, ticks).properties(height=110 + 20 * max(2, len(order)))
    return Picture(chart, [*rows, *measured], "Bars of the lower bound, estimate and upper bound of communication by rank", _kept(ranks)[1])


def _kept(ranks: Sequence[RankCommunication]) -> tuple[list[RankCommunication], str]:
    return largest(ranks, MOST_RANKS, lambda one: one.estimate_bytes, "ranks")


def _who(one: RankCommunication) -> str:
    return one.who if one.rank is None else str(one.rank)
