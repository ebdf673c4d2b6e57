"""Small pictures as SVG text: bars of ranks against their capacity, a map of ranks by stage, steps of the reserved staircase.

Plain shapes keep the file small and need neither script nor font; every mark has a `<title>` with its bytes, its rank and the line it was read
from, so that a pointer shows them. Colours are those of the app's charts (`analysis.charts.palette`). All text goes through `escape`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from analysis.charts.heat import MARKS, heat_measure, heat_rows
from analysis.charts.palette import FRAMED, MEASURES, RISERS, shade
from analysis.rows import Comparison, Configuration, Rank, Riser
from analysis.verdict import size_text

WIDTH, ROW, LEFT = 900, 18, 120
BARS = 48


def rank_bars(ranks: Sequence[Rank]) -> str:
    """The fullest ranks: allocated between steps, peak, reserved and what lies outside torch on one line, capacity as a mark."""
    shown = [rank for rank in ranks if rank.max_reserved_bytes or rank.max_allocated_bytes][:BARS]
    most = max((max(rank.capacity_bytes or 0, _held(rank)) for rank in shown), default=0)
    if not most:
        return ""
    scale = (WIDTH - LEFT - 20) / most
    parts = []
    for at, rank in enumerate(shown):
        top = at * ROW
        parts.append(_text(LEFT - 8, top + 13, _name(rank), anchor="end"))
        layers = ((_held(rank), "outside torch", "with what lies outside torch"), (rank.max_reserved_bytes, "max reserved", "max reserved"),
                  (rank.max_allocated_bytes, "peak allocated", "peak allocated"), (rank.allocated_bytes, "allocated", "allocated between steps"))
        parts += [_rect(LEFT, top + 3, size * scale, ROW - 6, MEASURES[name],
                        f"{_name(rank)}: {size_text(size)} {what} ({size:,} B), read at {rank.source}")
                  for size, name, what in layers if size]
        if rank.capacity_bytes:
            x = LEFT + rank.capacity_bytes * scale
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 1}" y2="{top + ROW - 1}" class="limit"><title>capacity '
                         f"{size_text(rank.capacity_bytes)}, {escape(rank.capacity_source or '')}</title></line>")
    return _svg(len(shown) * ROW, parts, "memory of the fullest ranks")


def _held(rank: Rank) -> int:
    return (rank.max_reserved_bytes or rank.max_allocated_bytes or 0) + (rank.outside_bytes or 0)


def rank_map(ranks: Sequence[Rank], sizes: Configuration | None = None) -> str:
    """Every rank as a cell, a row a stage; the darker, the closer to the limit (or the fuller); dashed where `sizes` has a rank nobody saw."""
    measure, words = heat_measure(ranks) if ranks else ("", "")
    rows = heat_rows(ranks, measure, sizes=sizes)[:MARKS] if ranks else []
    if len(rows) < 2:
        return ""
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    cell = max(3.0, min(28.0, (WIDTH - LEFT) / (max(row["position"] for row in rows) + 1)))
    seen = [row["bytes"] for row in rows if row["seen"]]
    low, high = min(seen), max(seen)
    parts = [_text(LEFT - 8, at * 30 + 19, f"stage {stage}", anchor="end") for at, stage in enumerate(stages)]
    for row in rows:
        x, top = LEFT + row["position"] * cell, stages.index(row["stage"]) * 30 + 3
        if not row["seen"]:
            parts.append(_rect(x, top, cell - 1, 24, "none", f"rank {row['who']}: not seen", "empty"))
            continue
        share = 0.5 if high == low else (row["bytes"] - low) / (high - low)
        title = f"rank {row['who']}: {size_text(row['bytes'])} {words} ({row['bytes']:,} B), {row['place']}"
        parts.append(_rect(x, top, cell - 1, 24, shade(1 - share if "headroom" in measure else share), title))
    return _svg(len(stages) * 30, parts, f"{words} of every measured rank by stage")


def theory_bars(compared: Sequence[Comparison]) -> str:
    """Printed beside measured, a pair of bars each."""
    most = max((max(one.printed_bytes, one.measured_bytes) for one in compared), default=0)
    if not most:
        return ""
    scale, parts = (WIDTH - LEFT - 200) / most, []
    for at, one in enumerate(compared[:12]):
        for line, (size, kind, what) in enumerate(((one.printed_bytes, "printed", f"printed {one.printed}"),
                                                   (one.measured_bytes, "measured", one.measured))):
            top = at * 2 * ROW + line * (ROW - 2)
            parts.append(_text(LEFT + 72, top + 13, what, anchor="end"))
            parts.append(_rect(LEFT + 80, top + 2, size * scale, ROW - 6, FRAMED[kind], f"{what}: {size_text(size)} ({size:,} B), {one.source}"))
    return _svg(min(len(compared), 12) * 2 * ROW, parts, "printed theory beside measured memory")


def staircase(risers: Sequence[Riser]) -> str:
    """Risers over the steps, coloured by kind, the height is the rise."""
    if not risers:
        return ""
    shown = sorted(risers, key=lambda one: -one.rise_bytes)[:400]
    first, last = min(one.iteration for one in shown), max(one.iteration for one in shown)
    most, span = max(one.rise_bytes for one in shown), max(1, last - first)
    parts = [_text(LEFT - 8, 14, size_text(most), anchor="end"), _text(LEFT, 142, f"iteration {first}"),
             _text(WIDTH - 10, 142, str(last), anchor="end"), f'<line x1="{LEFT}" x2="{WIDTH - 8}" y1="126" y2="126" class="axis"/>']
    for one in shown:
        x, height = LEFT + (one.iteration - first) / span * (WIDTH - LEFT - 20), max(2.0, 116 * one.rise_bytes / most)
        title = (f"rank {one.rank}, iteration {one.iteration}: +{size_text(one.rise_bytes)} ({one.rise_bytes:,} B), {one.kind or 'kind not told'}, "
                 f"{one.source}")
        parts.append(_rect(x, 126 - height, 5, height, RISERS[one.kind or "not told"], title))
    return _svg(150, parts, "steps that raised reserved memory")


def _name(rank: Rank) -> str:
    who = f"rank {rank.rank}" if rank.rank is not None else (rank.rank_label or "?")
    return who if rank.stage is None else f"{who} · stage {rank.stage}"


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str, kind: str = "mark") -> str:
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" fill="{colour}" class="{kind}">'
    return f"{shape}<title>{escape(title)}</title></rect>"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text[:40])}</text>'


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
