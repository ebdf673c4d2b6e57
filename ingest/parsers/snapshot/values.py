"""Columns of values out of lists of dictionaries, each of the type that the format declares, or one sentence why not.

Types are compared exactly (`type(x) is int`): a bool or a float in a column of sizes is a damaged file, not a number to be rounded.
Whole columns are checked by the set of their types, which costs 30 ns a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.errors import LedgerError
from ingest.parsers.snapshot.limits import damaged

Ints = npt.NDArray[np.int64]
_LARGEST_NAME = 80
_MOST_KINDS = 200
_DEPTH = 4


def many(name: object) -> str:
    """A key as it is counted: a text of bounded length."""
    return ascii(name[:_LARGEST_NAME])[1:-1] if type(name) is str else f"of type {type(name).__name__}"


def counted(unknown: Counter[str], kind: str, count: int = 1) -> None:
    """Count something not understood; beyond 200 kinds all others are one."""
    unknown[kind if kind in unknown or len(unknown) < _MOST_KINDS else "others"] += count


def listed(one: Any, key: str) -> list[Any]:
    """The list under a key, empty where there is none."""
    if type(one) is not dict:
        raise damaged(f"what should hold `{key}` is a {type(one).__name__} where a dictionary is due")
    value = one.get(key)
    if type(value) is not list and value is not None:
        raise damaged(f"`{key}` is a {type(value).__name__} where a list is due")
    return value or []


def int64(value: Any, what: str) -> int:
    """One number of 64 bits, not negative."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise damaged(f"{what} that is no whole number of 63 bits")
    return value


def plain(value: Any, what: str, unknown: Counter[str]) -> dict[str, Any]:
    """A dictionary of JSON values, what is none left out and counted."""
    if type(value) is not dict:
        counted(unknown, f"{what}s of type {type(value).__name__}")
        return {}
    return {key: one for key, one in ((key, _plain(one, _DEPTH)) for key, one in value.items()) if _kept(key, one, what, unknown)}


def _kept(key: Any, value: Any, what: str, unknown: Counter[str]) -> bool:
    if type(key) is str and value is not _NOT_PLAIN:
        return True
    counted(unknown, f"{what} {many(key)}")
    return False


_NOT_PLAIN = object()


def _plain(value: Any, depth: int) -> Any:
    if value is None or type(value) in (str, bool) or (type(value) is int and abs(value) < 2**64) or (type(value) is float and np.isfinite(value)):
        return value
    if type(value) in (list, tuple) and depth:
        inner = [_plain(one, depth - 1) for one in value]
        return _NOT_PLAIN if any(one is _NOT_PLAIN for one in inner) else inner
    if type(value) is dict and depth and all(type(key) is str for key in value):
        pairs = {key: _plain(one, depth - 1) for key, one in value.items()}
        return _NOT_PLAIN if any(one is _NOT_PLAIN for one in pairs.values()) else pairs
    return _NOT_PLAIN


class Rows:
    """Dictionaries of one kind, asked key by key; keys beyond `known` are counted once here."""

    def __init__(self, rows: list[Any], what: str, key_kind: str, known: frozenset[str], unknown: Counter[str]) -> None:
        self._rows, self._what = rows, what
        if set(map(type, rows)) - {dict}:
            at = next(index for index, row in enumerate(rows) if type(row) is not dict)
            raise damaged(f"{what} {at:,} is a {type(rows[at]).__name__} where a dictionary is due")
        layouts = Counter(map(tuple, rows))
        self._everywhere = frozenset.intersection(*map(frozenset, layouts)) if layouts else frozenset()
        self._somewhere = frozenset(key for layout in layouts for key in layout)
        for layout, count in layouts.items():
            for key in layout:
                if key not in known:
                    counted(unknown, f"{key_kind} {many(key)}", count)

    def values(self, key: str) -> list[Any]:
        """The values as they are, None where a row has none."""
        if key in self._everywhere:
            return list(map(itemgetter(key), self._rows))
        return [row.get(key) for row in self._rows] if key in self._somewhere else [None] * len(self._rows)

    def texts(self, key: str) -> list[Any]:
        """Texts or None."""
        values = self.values(key)
        self._check(key, values, str, "a text", None)
        return values

    def flags(self, key: str) -> pa.Array:
        """True, false or null."""
        values = self.values(key)
        self._check(key, values, bool, "true or false", None)
        return pa.array(values, pa.bool_())

    def nullable(self, key: str) -> pa.Array:
        """Whole numbers of 63 bits, null where a row has none."""
        values = self.values(key)
        absent = self._check(key, values, int, "a whole number", None)
        filled = [0 if value is None else value for value in values] if absent else values
        return pa.array(self._fitted(key, filled, False, 0, None), mask=np.asarray([value is None for value in values]) if absent else None)

    def numbers(
        self, key: str, *, wrap: bool = False, fill: int | None = None, due: Any = None, default: Any = None, least: int | None = None,
        most: int | None = None,
    ) -> Ints:
        """Whole numbers; unsigned 64-bit ones as the int64 of the same bits with `wrap`.

        A row without one is an error, but for `fill` (with `due` rows still in error) or `default` (a value a row).
        """
        values = self.values(key)
        needed = due if due is not None else (fill is None and default is None)
        if self._check(key, values, int, "a whole number", needed):
            values = [(fill or 0) if value is None else value for value in values] if default is None else [
                int(default[row]) if value is None else value for row, value in enumerate(values)]
        return self._fitted(key, values, wrap, least, most)

    def _check(self, key: str, values: list[Any], kind: type, wanted: str, needed: Any) -> bool:
        """Whether some are absent; an error where one is of another type, or absent where `needed` (all, or a mask)."""
        kinds = set(map(type, values))
        if kinds <= {kind}:
            return False
        if kinds - {kind, type(None)}:
            at = next(row for row, value in enumerate(values) if value is not None and type(value) is not kind)
            raise self._wrong(at, f"has a {type(values[at]).__name__} as `{key}` where {wanted} is due")
        if needed is not None and needed is not False:
            missing = [row for row, value in enumerate(values) if value is None and (needed is True or needed[row])]
            if missing:
                raise self._wrong(missing[0], f"has no `{key}`")
        return True

    def _fitted(self, key: str, values: list[Any], wrap: bool, least: int | None, most: int | None) -> Ints:
        try:
            numbers = np.fromiter(values, np.int64, len(values))
        except OverflowError:
            numbers = np.fromiter((self._wrapped(key, row, value, wrap) for row, value in enumerate(values)), np.int64, len(values))
        low = numbers < least if least is not None else None
        high = numbers > most if most is not None else None
        for wrong in (low, high):
            if wrong is not None and wrong.any():
                at = int(np.argmax(wrong))
                raise self._wrong(at, f"has {int(numbers[at]):,} as `{key}`, which cannot be")
        return numbers

    def _wrapped(self, key: str, row: int, value: int, wrap: bool) -> int:
        if wrap and 2**63 <= value < 2**64:
            return value - 2**64
        if -(2**63) <= value < 2**63:
            return value
        raise self._wrong(row, f"has a number of {value.bit_length():,} bits as `{key}`, which cannot be")

    def _wrong(self, row: int, what: str) -> LedgerError:
        return damaged(f"{self._what} {row:,} {what}")


def first_other(values: Iterable[Any], kind: type) -> Any:
    """The first value that is neither None nor of this type."""
    return next(value for value in values if value is not None and type(value) is not kind)
