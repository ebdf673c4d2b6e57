"""Scalars that trackers export as text: JSON lines (tag, step, value; W&B's history; OpenTelemetry's metrics) and W&B's CSV.

Only memory is read, by the names of `scalars`. Scalars of one step and rank that follow each other are one row; a line that is damaged loses its own
figures only. OpenTelemetry names rank and step by attributes, of the point or of its resource.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import msgspec

from ingest.parsers.base import PIECE_ROWS, Piece, Row
from ingest.parsers.names import rank_of
from ingest.parsers.scalars import Step, flattened, moment, number, whole

LONGEST_LINE_BYTES = 16 * 2**20
_STEPS = ("step", "_step", "iteration", "global_step", "Step", "train/iteration")
_RANKS = ("rank", "global_rank", "process.rank", "torch.rank")
_TIMES = ("wall_time", "time", "timestamp", "_timestamp")
Scalar = tuple[int, int | None, float | None, str, float, str | None]
"""Step, rank, time, name, value, unit."""


class Metrics:
    """The parser; see `Parser` for what is promised."""

    name = "metrics"
    version = 1

    def matches(self, head: bytes, path: str) -> bool:
        """Whether one of the first lines holds a scalar of memory with its step, or the first is the header of such columns."""
        lines = head.removeprefix(b"\xef\xbb\xbf").splitlines()[:40]
        if not lines or not lines[0].lstrip().startswith((b"{", b'"', b"_step", b"Step", b"step", b"iteration")):
            return False
        header = None if lines[0].lstrip().startswith(b"{") else _cells(lines[0])
        return any(Step(0, None, None).add(name, value, unit) for line in lines for _, _, _, name, value, unit in _scalars(line, header))

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """Pieces that end where a step's scalars are all read."""
        reader = _Reader(path, start, state)
        for line in iter(lambda: stream.readline(LONGEST_LINE_BYTES), b""):
            if not line.endswith(b"\n") and not final:
                break
            reader.feed(line)
            if len(reader.rows) >= PIECE_ROWS:
                yield reader.piece()
        if final:
            reader.close()
        yield reader.piece()


class _Reader:
    """Lines in, rows of closed steps out; `closed` is where the open step's first line begins."""

    def __init__(self, path: str, start: int, state: str | None) -> None:
        self.rank = rank_of(path)
        self.header: list[str] | None
        self.number: int
        self.at = start
        self.number, self.header = json.loads(state) if state else (0, None)
        self.closed = (start, self.number)
        self.rows: list[Row] = []
        self.rejects: list[Row] = []
        self.waiting: list[Row] = []
        self.open: Step | None = None

    def feed(self, line: bytes) -> None:
        """Take one line."""
        self.number += 1
        if self.number == 1 and not line.lstrip(b"\xef\xbb\xbf ").startswith(b"{"):
            self.header = _cells(line.removeprefix(b"\xef\xbb\xbf"))
        elif line.strip(b"\0\r\n\t "):
            self._take(line)
        self.at += len(line)
        if self.open is None:
            self.closed = (self.at, self.number)

    def _take(self, line: bytes) -> None:
        found = list(_scalars(line, self.header))
        if not found and (self.header is not None or _decoded(line) is None):
            row: Row = {"run_index": 0, "line": self.number, "offset_bytes": self.at, "text": line.decode("utf-8", "replace")[:2000].rstrip(),
                        "reason": "a line of metrics that is not whole"}
            (self.rejects if self.open is None else self.waiting).append(row)
        for step, rank, seconds, name, value, unit in found:
            rank = self.rank if rank is None else rank
            if self.open is None or (self.open.step, self.open.rank) != (step, rank):
                self._flush()
                self.closed = (self.at, self.number - 1)
                self.open = Step(step, rank, self.number)
            if self.open.add(name, value, unit) and seconds is not None:
                self.open.at = moment(seconds)

    def close(self) -> None:
        """The file ended."""
        self._flush()
        self.closed = (self.at, self.number)

    def _flush(self) -> None:
        row = self.open.row("metrics") if self.open else None
        self.rows += [row] if row else []
        self.rejects += self.waiting
        self.open, self.waiting = None, []

    def piece(self) -> Piece:
        """What is closed."""
        rows = {name: found for name, found in (("rank_memory", self.rows), ("rejects", self.rejects)) if found}
        self.rows, self.rejects = [], []
        return Piece(rows, self.closed[0], json.dumps([self.closed[1], self.header]))


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(line.strip(b"\0\r\n\t \xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8", "replace").replace("\0", "").rstrip("\r\n")]), [])
    except csv.Error:
        return []


def _scalars(line: bytes, header: list[str] | None) -> Iterator[Scalar]:
    """Every scalar of one line that has a step."""
    if header is not None:
        record: Mapping[str, Any] = dict(zip(header, _cells(line), strict=False))
    else:
        record = _decoded(line) or {}
    if "resourceMetrics" in record:
        yield from _otel(record)
        return
    step = next((found for name in _STEPS if (found := whole(record.get(name))) is not None), None)
    if step is None or step < 0:
        return
    rank, seconds = _first(record, _RANKS), next((time for name in _TIMES if (time := number(record.get(name))) is not None), None)
    if isinstance(tag := record.get("tag"), str):
        value = number(record.get("value"))
        if value is not None:
            yield step, rank, seconds, tag, value, None
        return
    for name, given in flattened(record).items():
        value = number(given)
        if value is not None and not name.endswith(("__MIN", "__MAX")):
            yield step, rank, seconds, name.rpartition(" - ")[2], value, None


def _first(record: Mapping[str, Any], names: Iterable[str]) -> int | None:
    found = next((value for name in names if (value := whole(record.get(name))) is not None), None)
    return found if found is None or 0 <= found < 2**31 else None


def _otel(record: Mapping[str, Any]) -> Iterator[Scalar]:
    for resource in _dicts(record.get("resourceMetrics")):
        about = _attributes(resource.get("resource"))
        for scope in _dicts(resource.get("scopeMetrics")):
            for metric in _dicts(scope.get("metrics")):
                held = metric.get("gauge") or metric.get("sum")
                for point in _dicts(held.get("dataPoints") if isinstance(held, dict) else None):
                    known = about | _attributes(point)
                    value = number(point.get("asDouble", point.get("asInt")))
                    at, nanoseconds = _first(known, _STEPS), number(point.get("timeUnixNano"))
                    if value is not None and at is not None:
                        seconds = None if nanoseconds is None else nanoseconds / 1e9
                        yield at, _first(known, _RANKS), seconds, str(metric.get("name")), value, str(metric.get("unit") or "") or None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _attributes(holder: Any) -> dict[str, Any]:
    found = {}
    for one in _dicts(holder.get("attributes")) if isinstance(holder, dict) else []:
        value = one.get("value")
        found[str(one.get("key"))] = next(iter(value.values()), None) if isinstance(value, dict) else value
    return found


METRICS = Metrics()
