"""Rows as aligned text: numbers to the right, a control character of an artifact never reaches the terminal."""

from __future__ import annotations

from collections.abc import Sequence

WIDEST = 60


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A text table; a cell longer than 60 characters is cut with an ellipsis."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(head), *(len(row[at]) for row in cells)) if cells else len(head) for at, head in enumerate(heads)]
    right = [bool(rows) and all(row[at] is None or _is_number(row[at]) for row in rows) for at in range(len(heads))]
    lines = [list(heads), ["-" * width for width in widths], *cells]
    return "\n".join("  ".join(map(_padded, line, widths, right)).rstrip() for line in lines)


def _padded(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    text = "".join(char if char.isprintable() else " " if char in "\r\n\t" else "�" for char in text)
    return text if len(text) <= WIDEST else text[:WIDEST - 1] + "…"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and value.lstrip("-").isdigit())
