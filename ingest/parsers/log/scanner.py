"""Where in a block the next line may hold a record, and which recognisers it concerns: all literals in one pass over bytes.

Most lines of a log hold no record; they are passed over without being cut out or decoded. An Aho-Corasick automaton reads a block once whatever
the number of literals, where a regex of alternatives tries each at each byte. A NUL counts as a literal: what crashed file systems leave may stand
inside one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from ahocorasick_rs import BytesAhoCorasick

NUL = b"\0"


class Scanner:
    """Finds lines with at least one of the literals of some askers, and tells which asked. It holds no state: one serves all logs."""

    def __init__(self, askers: Sequence[tuple[str, ...]], further: Sequence[str] = ()) -> None:
        by_literal: dict[bytes, list[int]] = {NUL: [], **{literal.encode(): [] for literal in further}}
        for asker, literals in enumerate(askers):
            for literal in literals:
                by_literal.setdefault(literal.encode(), []).append(asker)
        self.literals = tuple(by_literal)
        self._askers = list(by_literal.values())
        self._automaton = BytesAhoCorasick(list(self.literals))

    def hits(self, data: bytes) -> Iterator[int]:
        """Byte positions of literals in `data`, ascending."""
        return iter([start for _, start, _ in self._automaton.find_matches_as_indexes(data)])

    def asked(self, text: str) -> list[int] | None:
        """Which askers have a literal in the text, in their order; None where it holds none at all."""
        found = {which for which, _, _ in self._automaton.find_matches_as_indexes(f"{text}\n".encode("utf-8", "replace"), overlapping=True)}
        return sorted({asker for which in found for asker in self._askers[which]}) if found else None


@cache
def scanner_of(askers: tuple[tuple[str, ...], ...], further: tuple[str, ...]) -> Scanner:
    """The scanner of these literals, built once a process."""
    return Scanner(askers, further)


class Cursor:
    """Goes from line to line of interest in one block of data."""

    def __init__(self, scanner: Scanner, data: bytes) -> None:
        self._data, self._hits, self._hit = data, scanner.hits(data), -1

    def advance(self, at: int) -> tuple[int, int]:
        """Where the next line with a literal begins, at or after `at`, which begins a line, and newlines before it; the open end counts as one."""
        data = self._data
        while self._hit < at:
            self._hit = next(self._hits, len(data))
        begin = data.rfind(b"\n", at, self._hit) + 1 or at
        return begin, data.count(b"\n", at, begin)
