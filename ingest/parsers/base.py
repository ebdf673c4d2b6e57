"""What every parser offers and yields: bytes of one artifact in, rows of `ingest.tables` out, piece by piece.

A parser reads a decompressed byte stream from `start` with the `state` that the previous piece left, and yields
pieces that end where nothing is open (no torn line, no half theory block). With `final` the open end is read as well,
as if the artifact ended there. The same bytes give the same rows however they were cut: that is what lets a growing log
be ingested from cron without losing or doubling a record. Rows are plain dictionaries, because the records of a
log are few beside its bytes; columns that are absent are null. A source whose records are many beside its bytes gives Arrow tables instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]

PIECE_ROWS = 50_000
"""A parser closes a piece as soon as it may after this many rows, so that memory stays bounded for any file."""


@dataclass(slots=True)
class Piece:
    """Rows by table (`rejects` included) of the bytes up to `end_bytes`, and where the parser stood there (JSON)."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    end_bytes: int = 0
    state: str | None = None
    tables: dict[str, pa.Table] = field(default_factory=dict)
    """Further rows as Arrow columns: some of the table's own columns and of `run_index` and `line`, text dictionary-encoded where it repeats."""

    @property
    def row_count(self) -> int:
        """Rows over all tables, rejects left out."""
        arrow = int(sum(part.num_rows for part in self.tables.values()))
        return sum(len(rows) for table, rows in self.rows.items() if table != "rejects") + arrow

    def records(self) -> dict[str, list[Row]]:
        """All rows as dictionaries, in the order of their lines where a table has rows of both forms."""
        merged = dict(self.rows)
        for table, part in self.tables.items():
            rows = part.to_pylist(maps_as_pydicts="strict")
            merged[table] = list(merge(merged[table], rows, key=_line)) if merged.get(table) else rows
        return merged


def _line(row: Row) -> int:
    return int(row.get("line") or 0)


class Parser(Protocol):
    """One source of records; listed in `ingest.parsers.PARSERS`, the first that matches reads the artifact."""

    name: str
    version: int

    def matches(self, head: bytes, path: str) -> bool:
        """Whether an artifact with this path (archive members: the member's) and these first 64 KiB is of this kind."""

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """Read `stream`, positioned at byte `start` of the artifact, to its end; yield at least one piece."""
