"""Pictures of the printed theory: the formula's terms, and the last stage's surplus by part.

How all are drawn: `analysis.charts.picture`.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from analysis.charts.heat import GIB, Row
from analysis.charts.palette import BLUE, ORANGE, SKY
from analysis.charts.picture import EDGE, LINES_OF_BARS, ROOM, Picture, colours, data, largest, names_axis, size_of, tip
from analysis.theory.logits import Part
from analysis.theory.terms import Term
from analysis.verdict import size_text

_PARTS = {"weight_and_optimizer": "weight and optimizer", "activation": "activation"}
_TERMS = {"weight and optimizer": BLUE, "activation": ORANGE}
_KINDS = {"of the head": BLUE, "of the stage's layers": SKY, "measured": ORANGE}


def term_bars(found: Sequence[Term]) -> Picture:
    """One bar a term, the largest first within its part; bytes and the numbers that make them in the tooltip."""
    kept, said = largest(found, LINES_OF_BARS, lambda term: term.bytes, "terms")
    ordered = sorted(kept, key=lambda term: (list(_PARTS).index(term.part), -term.bytes))
    rows: list[Row] = [{"term": term.name.replace("_", " "), "part": _PARTS[term.part], "gib": term.bytes / GIB, "bytes": term.bytes,
                        "text": size_text(term.bytes), "numbers": term.numbers} for term in ordered]
    chart = data(rows).mark_bar(cornerRadius=1, **EDGE).encode(
        y=alt.Y("term:N", title=None, sort=_names(rows, "term"), axis=names_axis()), x=alt.X("gib:Q", title="GiB"),
        color=colours("part", _TERMS, [row["part"] for row in rows]),
        tooltip=[tip("term:N", "term"), tip("text:N", "size"), tip("bytes:Q", "bytes", ",.0f"), tip("numbers:N", "from")],
    ).properties(height=ROOM + 24 * len(rows))
    return Picture(chart, rows, "Bars of the formula's terms, in GiB", said)


def last_stage_bars(parts: Sequence[Part], measured: tuple[int, int]) -> Picture:
    """Each part from its low to its high end, and the measured surplus; the stage's own differences are not part of the head's sum."""
    kept, said = largest([part for part in parts if part.low_bytes or part.high_bytes], LINES_OF_BARS, lambda part: abs(part.high_bytes), "parts")
    rows: list[Row] = [_range(part.name.replace("_", " "), "of the head" if part.of == "head" else "of the stage's layers",
                              part.low_bytes, part.high_bytes) for part in kept]
    rows.append(_range("measured surplus", "measured", *measured))
    base = data(rows).encode(y=alt.Y("part:N", title=None, sort=_names(rows, "part"), axis=names_axis()))
    tips = [tip("part:N", "part"), tip("text:N", "range"), tip("low_bytes:Q", "low, bytes", ","), tip("high_bytes:Q", "high, bytes", ",")]
    colour = colours("kind", _KINDS, [row["kind"] for row in rows])
    ranges = base.mark_bar(cornerRadius=1, height=12, **EDGE).encode(x=alt.X("low:Q", title="GiB"), x2="high:Q", color=colour, tooltip=tips)
    ends = base.mark_point(filled=True, size=60, **EDGE).encode(x="high:Q", color=colour, tooltip=tips)
    chart = alt.layer(ranges, ends).properties(height=ROOM + 24 * len(rows))
    return Picture(chart, rows, "Ranges of the parts of the last stage's surplus, in GiB", said)


def _range(name: str, kind: str, low: int, high: int) -> Row:
    first, second = size_of(low)["text"], size_of(high)["text"]
    return {"part": name, "kind": kind, "low": low / GIB, "high": high / GIB, "low_bytes": low, "high_bytes": high,
            "text": first if first == second else f"{first} to {second}"}


def _names(rows: Sequence[Row], field: str) -> list[str]:
    return list(dict.fromkeys(str(row[field]) for row in rows))
