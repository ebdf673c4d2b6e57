"""The picture of the page Communication: each rank's lower bound, what the estimate adds, what the upper bound adds, and the measured point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from analysis.charts import Picture
from analysis.communication_rows import RankCommunication
from analysis.heat import BLUE, GIB, ORANGE, SKY
from analysis.verdict import size_text

MOST_RANKS = 256
_PARTS = (("at least (lower bound)", BLUE), ("estimate", SKY), ("at most (upper bound)", "#D9E6EF"))


def bar_rows(ranks: Sequence[RankCommunication]) -> list[dict[str, Any]]:
    """Three stacked pieces a rank, that together reach the upper bound; beyond `MOST_RANKS` the ranks with most."""
    shown = sorted(sorted(ranks, key=lambda one: -one.estimate_bytes)[:MOST_RANKS], key=lambda one: (one.rank is None, one.rank or 0, one.who))
    rows = []
    for at, one in enumerate(shown):
        sizes = (one.lower_bytes, one.estimate_bytes - one.lower_bytes, one.upper_bytes - one.estimate_bytes)
        ends = (one.lower_bytes, one.estimate_bytes, one.upper_bytes)
        rows += [{"order": at, "who": _who(one), "what": name, "place": place, "gib": size / GIB, "bytes": end, "text": size_text(end)}
                 for place, ((name, _), size, end) in enumerate(zip(_PARTS, sizes, ends, strict=True))]
    return rows


def communication_bars(ranks: Sequence[RankCommunication]) -> Picture:
    """Stacked bars by rank; a tick where memory outside torch was measured."""
    rows = bar_rows(ranks)
    order = list(dict.fromkeys(row["who"] for row in rows))
    names = [name for name, _ in _PARTS]
    y = alt.Y("who:N", title="rank", sort=order, axis=alt.Axis(ticks=False, domain=False, labelLimit=180))
    bars = alt.Chart(alt.InlineData(values=rows)).mark_bar(cornerRadius=1).encode(
        y=y, x=alt.X("gib:Q", title="GiB outside torch", stack="zero"), order=alt.Order("place:Q"),
        color=alt.Color("what:N", title=None, sort=names, scale=alt.Scale(domain=names, range=[colour for _, colour in _PARTS]),
                        legend=alt.Legend(orient="bottom", direction="horizontal")),
        tooltip=[alt.Tooltip("who:N", title="rank"), alt.Tooltip("what:N", title="figure"), alt.Tooltip("text:N", title="size"),
                 alt.Tooltip("bytes:Q", title="bytes", format=",")])
    measured = [{"who": _who(one), "gib": one.outside_bytes / GIB, "text": size_text(one.outside_bytes)}
                for one in ranks if one.outside_bytes is not None and _who(one) in order]
    ticks = alt.Chart(alt.InlineData(values=measured)).mark_tick(color=ORANGE, thickness=3).encode(
        y=y, x="gib:Q", tooltip=[alt.Tooltip("who:N", title="rank"), alt.Tooltip("text:N", title="measured: device used - reserved")])
    return alt.layer(bars, ticks).properties(height=110 + 20 * max(2, len(order)))


def _who(one: RankCommunication) -> str:
    return one.who if one.rank is None else str(one.rank)
