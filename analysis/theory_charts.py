"""Pictures of the printed theory: the formula's terms, and the last stage's surplus by part. Rows in, an Altair chart out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from analysis.charts import Picture
from analysis.heat import BLUE, GIB, ORANGE, SKY
from analysis.theory.logits import Part
from analysis.theory.terms import Term
from analysis.verdict import size_text

_ROOM = 110
_PARTS = {"weight_and_optimizer": "weight and optimizer", "activation": "activation"}


def term_bars(found: Sequence[Term]) -> alt.Chart:
    """One bar a term, the largest first within its part; bytes and the numbers that make them in the tooltip."""
    ordered = sorted(found, key=lambda term: (list(_PARTS).index(term.part), -term.bytes))
    rows: list[dict[str, Any]] = [{"term": term.name.replace("_", " "), "part": _PARTS[term.part], "gib": term.bytes / GIB, "bytes": term.bytes,
             "text": size_text(term.bytes), "numbers": term.numbers} for term in ordered]
    tips = [alt.Tooltip("term:N", title="term"), alt.Tooltip("text:N", title="size"), alt.Tooltip("bytes:Q", title="bytes", format=",.0f"),
            alt.Tooltip("numbers:N", title="from")]
    chart: alt.Chart = alt.Chart(alt.InlineData(values=rows)).mark_bar(cornerRadius=1).encode(
        y=alt.Y("term:N", title=None, sort=_names(rows, "term"), axis=_axis()), x=alt.X("gib:Q", title="GiB"),
        color=_colours("part", list(_PARTS.values()), [BLUE, ORANGE]), tooltip=tips,
    ).properties(height=_ROOM + 24 * len(rows))
    return chart


def last_stage_bars(parts: Sequence[Part], measured: tuple[int, int]) -> Picture:
    """Each part from its low to its high end, and the measured surplus; the stage's own differences are not part of the head's sum."""
    rows: list[dict[str, Any]] = [_range(part.name.replace("_", " "), "of the head" if part.of == "head" else "of the stage's layers",
                                         part.low_bytes, part.high_bytes) for part in parts if part.low_bytes or part.high_bytes]
    rows.append(_range("measured surplus", "measured", *measured))
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=alt.Y("part:N", title=None, sort=_names(rows, "part"), axis=_axis()))
    tips = [alt.Tooltip("part:N", title="part"), alt.Tooltip("text:N", title="range"), alt.Tooltip("low_bytes:Q", title="low, bytes", format=","),
            alt.Tooltip("high_bytes:Q", title="high, bytes", format=",")]
    colour = _colours("kind", ["of the head", "of the stage's layers", "measured"], [BLUE, SKY, ORANGE])
    ranges = base.mark_bar(cornerRadius=1, height=12).encode(x=alt.X("low:Q", title="GiB"), x2="high:Q", color=colour, tooltip=tips)
    ends = base.mark_point(filled=True, size=60).encode(x="high:Q", color=colour, tooltip=tips)
    return alt.layer(ranges, ends).properties(height=_ROOM + 24 * len(rows))


def _range(name: str, kind: str, low: int, high: int) -> dict[str, Any]:
    first, second = size_text(low), size_text(high)
    return {"part": name, "kind": kind, "low": low / GIB, "high": high / GIB, "low_bytes": low, "high_bytes": high,
            "text": first if first == second else f"{first} to {second}"}


def _names(rows: Sequence[dict[str, Any]], field: str) -> list[str]:
    return list(dict.fromkeys(str(row[field]) for row in rows))


def _axis() -> alt.Axis:
    return alt.Axis(labelLimit=260, ticks=False, domain=False)


def _colours(field: str, domain: list[str], colours: list[str]) -> alt.Color:
    return alt.Color(f"{field}:N", title=None, scale=alt.Scale(domain=domain, range=colours), legend=alt.Legend(orient="bottom"))
