"""Texts kept once, and names that stand for small numbers (actions, states)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from ingest.parsers.snapshot.limits import damaged
from ingest.parsers.snapshot.values import counted, first_other, many

_MOST_NAMES = 1000
_LARGEST_POOL = 8


class Texts:
    """Distinct texts in the order of their first use."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def index(self, text: str) -> int:
        """The row of a text."""
        return self._index.setdefault(text, len(self._index))

    def indexes(self, texts: list[Any], nothing: tuple[str, ...] = ()) -> pa.Array:
        """The rows of texts, null for None and for those that say `nothing`."""
        return pa.array([self._row(text, nothing) for text in texts] if set(texts) - {None, *nothing} else [None] * len(texts), pa.int32())

    def _row(self, text: str | None, nothing: tuple[str, ...]) -> int | None:
        return None if text is None or text in nothing else self.index(text)

    def pools(self, pools: list[Any]) -> pa.Array:
        """The rows of pool ids as texts: `(0, 1)` is "0,1"."""
        if set(map(type, pools)) - {tuple, list, type(None)}:
            other = next(pool for pool in pools if type(pool) not in (tuple, list, type(None)))
            raise damaged(f"a pool id is a {type(other).__name__} where a pair of numbers is due")
        seen: dict[tuple[Any, ...], int] = {}
        return pa.array([None if pool is None else self._pool(tuple(pool), seen) for pool in pools], pa.int32())

    def _pool(self, pool: tuple[Any, ...], seen: dict[tuple[Any, ...], int]) -> int:
        if len(pool) > _LARGEST_POOL or any(type(part) is not int or abs(part) >= 2**64 for part in pool):
            raise damaged("a pool id is no pair of numbers")
        if pool not in seen:
            seen[pool] = self.index(",".join(map(str, pool)))
        return seen[pool]

    def array(self) -> pa.Array:
        """All texts. Raises `LedgerError` where one is no Unicode."""
        try:
            return pa.array(list(self._index), pa.string())
        except UnicodeEncodeError:
            raise damaged("a text is no valid UTF-8") from None


class Kinds:
    """Names of which some are known: each is a small number, further ones are added and counted."""

    def __init__(self, what: str, known: tuple[str, ...], unknown: Counter[str], same: dict[str, str] | None = None) -> None:
        self._what, self._known, self._unknown, self._same = what, len(known), unknown, same or {}
        self._index = {name: index for index, name in enumerate(known)}

    @property
    def names(self) -> tuple[str, ...]:
        """All names in order."""
        return tuple(self._index)

    def indexes(self, names: list[Any]) -> list[int]:
        """The number of each name."""
        if set(map(type, names)) - {str}:
            raise damaged(f"one {self._what} is a {type(first_other(names, str)).__name__} where a text is due" if any(
                name is not None for name in names) and set(map(type, names)) - {str, type(None)} else f"one entry has no {self._what}")
        for name, count in Counter(names).items():
            if self._index.setdefault(self._same.get(name, name), len(self._index)) >= self._known:
                counted(self._unknown, f"{self._what} {many(name)}", count)
        if len(self._index) > _MOST_NAMES:
            raise damaged(f"names more than {_MOST_NAMES:,} kinds of {self._what}")
        index = {name: self._index[self._same.get(name, name)] for name in (*self._same, *self._index) if self._same.get(name, name) in self._index}
        return [index[name] for name in names]
