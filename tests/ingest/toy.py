"""A small parser with records of one and of several lines, and what a lake shows of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from analysis.database import connect
from ingest.lake import Lake
from ingest.parsers.base import Piece


class Toy:
    """`mem RANK ITERATION BYTES` is a rank_memory row, `args` ... `end` a group of run_args; `mem` with anything else is rejected."""

    name, version = "toy", 1
    piece_lines = 10

    def matches(self, head: bytes, path: str) -> bool:
        return b"\x00" not in head

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        number = json.loads(state)["line"] if state else 0
        position, rows, group, lines, yielded = start, {}, None, 0, False
        closed = Piece({}, start, state)
        for line in stream:
            number, position, lines = number + 1, position + len(line), lines + 1
            if not line.endswith(b"\n") and not final:
                break
            words = line.split()
            if words[:1] == [b"boom"]:
                raise RuntimeError("this line breaks the parser")
            if words == [b"args"]:
                group = []
            elif words == [b"end"] and group is not None:
                rows.setdefault("run_args", []).extend(group)
                group = None
            elif group is not None:
                group.append({"name": words[0].decode() if words else "", "value": words[-1].decode() if words else None, "line": number})
            elif words[:1] == [b"mem"]:
                self._memory(words, line, number, rows)
            if group is None:
                closed = Piece(rows, position, json.dumps({"line": number}))
                if lines % self.piece_lines == 0:
                    yield closed
                    yielded, rows, closed = True, {}, Piece({}, position, closed.state)
        if final:
            if group:
                rows.setdefault("run_args", []).extend(group)
            yield Piece(rows, position, None)
        elif closed.rows or not yielded or closed.end_bytes > start:
            yield closed

    @staticmethod
    def _memory(words: list[bytes], line: bytes, number: int, rows: dict[str, list[dict[str, Any]]]) -> None:
        try:
            rank, iteration, size = (int(word) for word in words[1:])
        except ValueError:
            rows.setdefault("rejects", []).append({"line": number, "text": line.decode(), "reason": "no three numbers"})
        else:
            rows.setdefault("rank_memory", []).append({"rank": rank, "iteration": iteration, "allocated_bytes": size, "line": number, "valid": True})


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    parser = Toy()
    monkeypatch.setattr("ingest.units.PARSERS", (parser,))
    return parser


def log(rank: int, first: int = 0, last: int = 20) -> bytes:
    """Lines of one rank, with a group at the start."""
    head = b"args\ntp 2\npp %d\nend\n" % rank if first == 0 else b""
    return head + b"".join(b"mem %d %d %d\nsome other line\n" % (rank, step, step * 1000 + rank) for step in range(first, last))


def visible(lake: Lake | str | Path) -> list[tuple[Any, ...]]:
    """Every visible row, without what names the piece."""
    connection = connect(lake if isinstance(lake, Lake) else Lake(lake))
    try:
        return sorted(
            connection.execute("SELECT run, 'm', rank, iteration, allocated_bytes, line FROM rank_memory").fetchall()
            + connection.execute("SELECT run, 'a', 0, 0, name || coalesce(value, ''), line FROM run_args").fetchall()
            + connection.execute("SELECT run, 'r', 0, 0, text, line FROM rejects").fetchall(), key=repr,
        )
    finally:
        connection.close()
