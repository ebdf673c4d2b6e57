"""Pictures of two runs side by side: what each change explains, measured peaks, the change of each class.

How all are drawn: `analysis.charts.picture`.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from analysis.charts.ledger_rows import shown_class
from analysis.charts.palette import CLASSES, GREY, SIDES, SIGNS
from analysis.charts.picture import EDGE, LINES_OF_BARS, MARKS, Picture, colours, data, largest, names_axis, size_of, sized, tip
from analysis.diff.rows import Change, Size

_TOTALS = ("peak", "after a step")


def explained_bars(changes: Sequence[Change]) -> Picture:
    """Bytes of the fullest stage that each changed argument explains."""
    kept, said = largest([one for one in changes if one.explains_bytes], LINES_OF_BARS, lambda one: abs(one.explains_bytes or 0), "changes")
    rows = [{"what": one.name, "kind": "costs" if (one.explains_bytes or 0) > 0 else "saves", "from": one.before, "to": one.after,
             **size_of(one.explains_bytes or 0)} for one in kept]
    bars = data(rows).mark_bar(**EDGE).encode(
        y=alt.Y("what:N", title=None, sort=None, axis=names_axis(320)), x=alt.X("gib:Q", title="explains, GiB"),
        color=colours("kind", SIGNS, [row["kind"] for row in rows]),
        tooltip=[tip("what:N", "changed"), tip("from:N", "from"), tip("to:N", "to"), *sized()])
    zero = data([{"gib": 0}]).mark_rule(color=GREY).encode(x="gib:Q")
    return Picture(alt.layer(bars, zero).properties(height=90 + 26 * len(rows)), rows, "Bytes that each changed argument explains", said)


def measured_bars(sizes: Sequence[Size]) -> Picture:
    """The measured peak of each stage before and after."""
    peaks = [one for one in sizes if one.what == "max_allocated_bytes"]
    kept, said = largest(peaks, LINES_OF_BARS, lambda one: max(one.before_bytes or 0, one.after_bytes or 0), "stages")
    rows = [{"where": one.where, "side": side, **size_of(size)} for one in kept
            for side, size in (("before", one.before_bytes), ("after", one.after_bytes)) if size is not None]
    chart = data(rows).mark_bar(**EDGE).encode(
        y=alt.Y("where:N", title=None, sort=None), yOffset=alt.YOffset("side:N", sort=list(SIDES)), x=alt.X("gib:Q", title="peak allocated, GiB"),
        color=colours("side", SIDES, [row["side"] for row in rows]), tooltip=[tip("where:N", "where"), tip("side:N", "run"), *sized()],
    ).properties(height=150 + 44 * len(kept))
    return Picture(chart, rows, "Measured peak of each stage before and after", said)


def class_bars(sizes: Sequence[Size]) -> Picture:
    """The change of each class of the expected peak, stacked to both sides of nothing, by the classes that every picture has."""
    summed: dict[tuple[str, str], int] = {}
    for one in sizes:
        if one.what not in _TOTALS and one.change_bytes:
            key = one.where, shown_class(one.what)
            summed[key] = summed.get(key, 0) + one.change_bytes
    of_place: dict[str, int] = {}
    for (where, _), size in summed.items():
        of_place[where] = of_place.get(where, 0) + abs(size)
    kept, said = largest(list(of_place), min(LINES_OF_BARS, MARKS // len(CLASSES)), lambda where: of_place[where], "stages, by how much they change")
    drawn = set(kept)
    rows = [{"where": where, "class": name, **size_of(size)} for (where, name), size in summed.items() if where in drawn and size]
    bars = data(rows).mark_bar(**EDGE).encode(
        y=alt.Y("where:N", title=None, sort=kept), x=alt.X("gib:Q", title="change, GiB", stack="zero"),
        color=colours("class", CLASSES, [row["class"] for row in rows]), tooltip=[tip("where:N", "where"), tip("class:N", "class"), *sized()])
    zero = data([{"gib": 0}]).mark_rule(color=GREY).encode(x="gib:Q")
    return Picture(alt.layer(bars, zero).properties(height=180 + 32 * len(kept)), rows, "Change of each class of the expected peak", said)
