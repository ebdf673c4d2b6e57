"""Lines of a report for a terminal of 100 columns: wrapped text, the places that figures were read from, nothing a terminal would obey."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from analysis.rows import Source

WIDTH = 98


def places(sources: Sequence[Source], indent: str = "  ") -> Iterator[str]:
    """One line a place."""
    for source in sources:
        yield f"{indent}> {source}"


def wrapped(text: str, indent: str = "", further: str | None = None) -> list[str]:
    """Lines of at most `WIDTH`; an empty text gives its indent."""
    return wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent if further is None else further, break_on_hyphens=False) or [indent]


def clean(text: str) -> str:
    """Without control characters an artifact might hold: a terminal must not obey a log."""
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
