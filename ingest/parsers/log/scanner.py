"""Where in a block the next line may hold a record: all literals of all recognisers in one pass over bytes.

Most lines of a log hold no record; they are passed over without being cut out or decoded. An Aho-Corasick automaton reads a block once whatever
the number of literals, where a regex of alternatives tries each at each byte.
"""

from __future__ import annotations

from collections.abc import Iterable

from ahocorasick_rs import BytesAhoCorasick


class Scanner:
    """Finds lines with at least one of the literals."""

    def __init__(self, literals: Iterable[str]) -> None:
        self._automaton = BytesAhoCorasick([literal.encode() for literal in sorted(set(literals))])

    def hits(self, data: bytes) -> list[int]:
        """Byte positions of literals in `data`, ascending."""
        return [start for _, start, _ in self._automaton.find_matches_as_indexes(data)]
