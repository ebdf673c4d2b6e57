"""Tables of the pages: sizes in GiB or, where the session asks, in exact bytes; one ticked row, kept in the address, with the lines it was read from.

GiB of whole bytes below 2^53 are exact in floating point (a division by a power of two), so that bytes are had back from them to the byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

import streamlit as st

from analysis.rows import Source
from analysis.verdict import size_text
from app_pages._address import place_of, remember
from app_pages._origin import origin
from app_pages._picture import kept_rows

EXACT = "exact"
ROWS = 2_000
"""A table of more rows shows the first ones, says so, and gives all of them as a file: a browser would be sent a megabyte for each page."""
_UNITS = {"GiB": 2**30, "MiB": 2**20}
_SIZED = re.compile(r"(?:(.*?),? )?(GiB|MiB)")
Row = Mapping[str, Any]
T = TypeVar("T")
R = TypeVar("R")


class Made(Sequence[R]):
    """Rows, or what is told of a row, made of `items` as they are looked at: of 4,096 ranks a page lists 2,000, and a file of all is seldom asked
    for."""

    def __init__(self, items: Sequence[T], how: Callable[[T], R]) -> None:
        self._items, self._how = items, how

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, at: int) -> R: ...

    @overload
    def __getitem__(self, at: slice) -> list[R]: ...

    def __getitem__(self, at: int | slice) -> R | list[R]:
        return [self._how(one) for one in self._items[at]] if isinstance(at, slice) else self._how(self._items[at])


def exact() -> bool:
    """Whether this session wants bytes in place of GiB (page Settings)."""
    return bool(st.session_state.get(EXACT))


def size(value: float | None) -> str:
    """A size for a reader of this session."""
    return f"{value:,.0f} B" if value is not None and exact() else size_text(value)


def table(rows: Sequence[Row], key: str | None = None, formats: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Rows, each column whose name ends in a unit as a number of it; `formats` says how others, or those, are written."""
    given, drawn = formats or {}, rows[:ROWS]
    names = list(drawn[0]) if drawn else []
    shown = {name: _name(name, names) for name in names}
    config = {}
    for name, new in shown.items():
        if new != name:
            config[new] = st.column_config.NumberColumn(format="localized")
        elif name in given or _SIZED.fullmatch(name):
            config[name] = st.column_config.NumberColumn(format=given.get(name, "%.2f"))
    listed = [{new: _value(name, row[name]) if new != name else row[name] for name, new in shown.items() if new} for row in drawn]
    answer = st.dataframe(listed, hide_index=True, placeholder="-", key=key, column_config={**config, **more.pop("column_config", {})}, **more)
    if len(rows) > ROWS:
        _cut(rows, key or "table")
    return answer


def _cut(rows: Sequence[Row], name: str) -> None:
    """What is not listed, and the way to it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"The first {ROWS:,} of {len(rows):,} rows are listed.", width="content")
        kept_rows(f"all-{name.partition(' ')[0]}", lambda: rows)


def ticked(rows: Sequence[Row], key: str, link: str, names: Sequence[str], formats: Mapping[str, str] | None = None, **more: Any) -> int | None:
    """The row that is ticked, at first the one that the address names as `link`; `names` are what it is called there."""
    at = place_of(link, names)
    default: Any = {"selection": {"rows": [] if at is None or at >= ROWS else [at]}}
    scope = f"{key} {st.session_state.get('run')} {st.session_state.get('attempt')}"
    chosen = table(rows, scope, formats, on_select="rerun", selection_mode="single-row", selection_default=default, **more)
    picked = next((row for row in chosen.selection.rows if row < len(names)), at if at is not None and at >= ROWS else None)
    if picked is not None or at is not None:
        remember(link, None if picked is None else names[picked])
    return picked


def opened(rows: Sequence[Row], key: str, link: str, names: Sequence[str], sources: Sequence[Sequence[Source | None]],
           formats: Mapping[str, str] | None = None, *, shows: str = "the lines it was read from", **more: Any) -> int | None:
    """The same, with the lines that the ticked row was read from below it; `shows` says which those are."""
    picked = ticked(rows, key, link, names, formats, **more)
    if picked is None:
        st.caption(f"Tick a row to see {shows}.")
        return None
    for source in dict.fromkeys(sources[picked]):
        if source is not None:
            origin(source)
    return picked


def _name(name: str, names: Sequence[str]) -> str:
    """What a column is called in exact bytes; empty where the table has them in a column of their own."""
    sized = _SIZED.fullmatch(name) if exact() else None
    if sized is None:
        return name
    what = f"{sized[1]}, bytes" if sized[1] else "bytes"
    return "" if what in names else what


def _value(name: str, value: float | None) -> int | None:
    sized = _SIZED.fullmatch(name)
    return None if value is None or sized is None else round(value * _UNITS[sized[2]])
