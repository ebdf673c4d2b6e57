"""Snapshots as a source of the lake: a file is one snapshot, read whole by `reading` in a process of its own.

A trainer overwrites its snapshot at each log interval. That is another file under the same name, never a grown one: nothing of a
snapshot is read before all of it is there, and one that was read is closed for good.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from ingest.errors import LedgerError
from ingest.parsers.base import Piece
from ingest.parsers.snapshot.filenames import told
from ingest.parsers.snapshot.limits import is_damage

_WORDS = (b"segments", b"device_traces", b"total_size", b"segment_type", b"active_allocated", b"inactive", b"free_requested", b"time_us")
DETAILS = ("full", "summary")
_STOP = b"."
_COPY_BYTES = 1024 * 1024


class Snapshot:
    """The parser; see `Parser` for what is promised. `detail` is `full`, or `summary` for a lake without events, blocks and stacks."""

    name = "snapshot"
    version = 1

    def __init__(self, detail: str = "full") -> None:
        if detail not in DETAILS:
            raise LedgerError("is no level of detail", where=detail, todo=f"give one of {', '.join(DETAILS)}")
        self.detail = detail

    def matches(self, head: bytes, path: str) -> bool:
        """A pickle of protocol 2 to 5 with two of the words of a snapshot near its begin: never by its name."""
        return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and sum(word in head for word in _WORDS) >= 2

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """One piece. Without `final`, a stream that may be the begin of a larger file closes nothing. Raises `LedgerError` for a refused file."""
        with tempfile.TemporaryFile() as file:
            size, last = _copy(stream, file)
            if start or not size:
                yield Piece(_behind(start, size), start + size)
            elif not final and last != _STOP:
                yield Piece({}, start)
            else:
                yield self._piece(file, path, size, final)

    def _piece(self, file: BinaryIO, path: str, size: int, final: bool) -> Piece:
        from ingest.parsers.snapshot.lake_tables import detail_tables, summary_rows
        from ingest.parsers.snapshot.reading import read_stream

        try:
            columns = read_stream(file, path)
        except LedgerError as error:
            if final or not is_damage(error):
                raise
            return Piece({}, 0)
        who = told(path)
        return Piece(summary_rows(columns, path, who), size, None, detail_tables(columns, who, self.detail))


def _copy(stream: BinaryIO, file: BinaryIO) -> tuple[int, bytes]:
    """Put a stream into a file that is at its begin again; its size and last byte."""
    size, last = 0, b""
    while chunk := stream.read(_COPY_BYTES):
        file.write(chunk)
        size, last = size + len(chunk), chunk[-1:]
    file.flush()
    file.seek(0)
    return size, last


def _behind(start: int, size: int) -> dict[str, list[dict[str, object]]]:
    if not size:
        return {}
    return {"rejects": [{"offset_bytes": start, "text": "", "reason": f"{size:,} bytes behind the end of a snapshot"}]}


SNAPSHOT = Snapshot()
