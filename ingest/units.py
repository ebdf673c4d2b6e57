"""The work of one worker process: read some sources, give back their rows as Arrow tables, ready to commit.

Sources travel in units: many small files, one window of a big one, or the members of one archive. A source's rows count only
when its whole window was parsed; a parser that fails quarantines that file alone. Rows become Arrow columns here, because that
takes as long as parsing and the parent only commits.
"""

from __future__ import annotations

import io
import json
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO, cast

import pyarrow as pa

from ingest.archives import members
from ingest.arrow_rows import Collector
from ingest.artifacts import HEAD_BYTES, open_stream, skip
from ingest.errors import LedgerError
from ingest.parsers import PARSERS
from ingest.parsers.base import Parser, Row
from ingest.parsers.snapshot import Snapshot
from ingest.planning import WINDOW_BYTES, Job
from ingest.sources import SEAM_BYTES, content_hash, hash_of_all

UNIT_ROWS, UNIT_BYTES = 300_000, 32 * 1024 * 1024
"""A unit gives back what it has after about this many rows or bytes of Arrow."""

_NO_KIND = "is of no kind that is read here (Megatron logs, memory_stats files, memory snapshots, archives of them)"
_ARROW_ROWS = 20_000
_SPOOL_BYTES = 16 * 1024 * 1024
_MARKS = {"closed": "", "tail": "t", "quarantined": "q"}

Opener = Callable[[int, int], BinaryIO]
"""Bytes `start` to `end` of a decompressed source."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows go: the month of the partition (its cluster is a job's own); how much of a snapshot does, `full` or `summary`; and the rank of
    records that name none."""

    month: str
    snapshot_detail: str = "full"
    rank: int | None = None


@dataclass(slots=True)
class Outcome:
    """What a unit gives back; `remaining` jobs go on where this unit stopped."""

    artifacts: list[Row] = field(default_factory=list)
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    expected: dict[str, int | None] = field(default_factory=dict)
    remaining: list[Job] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    read_bytes: int = 0


def read_unit(jobs: Sequence[Job], place: Place) -> Outcome:
    """Read the jobs of a unit: files, or members of one archive."""
    unit = _Unit(place)
    for job, opener in _opened(jobs, unit):
        unit.read(job, opener)
    return unit.finished()


def _opened(jobs: Sequence[Job], unit: _Unit) -> Iterator[tuple[Job, Opener]]:
    """Each job with its bytes; members of an archive come in the archive's order, from a spool of their own."""
    for job in jobs:
        if job.member is not None and not job.problem:
            continue
        yield job, partial(_open_file, job.file)
    waiting = {job.member: job for job in jobs if job.member is not None and not job.problem}
    if not waiting:
        return
    try:
        for member in members(next(iter(waiting.values())).file):
            if member.stream and member.name in waiting:
                wanted = waiting.pop(member.name)
                with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
                    _copy(member.stream, spool, wanted.size_bytes)
                    yield wanted, partial(_open_spool, spool)
            if not waiting:
                return
    except (LedgerError, OSError) as error:
        for job in waiting.values():
            unit.quarantine(job, f"the archive cannot be read up to here: {error}")


def _open_file(path: str, start: int, end: int) -> BinaryIO:
    stream = open_stream(path)
    skip(stream, start)
    return _buffered(_Span(stream, end - start, owned=True))


def _open_spool(spool: Any, start: int, end: int) -> BinaryIO:
    spool.seek(start)
    return _buffered(_Span(spool, end - start, owned=False))


def _buffered(span: _Span) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(span, 256 * 1024))


def _copy(stream: BinaryIO, spool: Any, size: int) -> None:
    while size > 0 and (chunk := stream.read(min(size, 1024 * 1024))):
        spool.write(chunk)
        size -= len(chunk)


class _Span(io.RawIOBase):
    """The next `count` bytes of a stream, however much it grows meanwhile."""

    def __init__(self, stream: Any, count: int, *, owned: bool) -> None:
        self._stream = stream
        self._left = count
        self._owned = owned

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        if self._owned and not self.closed:
            self._stream.close()
        super().close()


class _Unit:
    """Collects what the jobs give; the rows of small sources share one conversion to Arrow."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._outcome = Outcome()
        self._collector = Collector()
        self._pieces: list[Row] = []

    def finished(self) -> Outcome:
        """Everything read."""
        self._collector.squeeze()
        self._outcome.tables = self._collector.tables
        for piece in self._pieces:
            piece["rows"], piece["rejected"] = self._collector.kept[piece["artifact"]], self._collector.rejected[piece["artifact"]]
        self._outcome.artifacts = self._pieces
        return self._outcome

    def quarantine(self, job: Job, sentence: str) -> None:
        """A source that is not read, with the reason."""
        self._add_piece(job, None, "quarantined", job.size_bytes, job.size_bytes, reason=sentence)
        if not job.problem:
            self._outcome.problems.append((job.path, sentence))

    def read(self, job: Job, opener: Opener) -> None:
        """Read one source as far as its window and the unit's budget go."""
        if job.problem:
            self.quarantine(job, job.problem)
        elif job.alias:
            self._remember(job)
        elif self._collector.count >= UNIT_ROWS or self._collector.nbytes >= UNIT_BYTES:
            self._outcome.remaining.append(job)
        else:
            try:
                self._read(job, opener)
            except LedgerError as error:
                self.quarantine(job, error.what)
            except Exception as error:  # a defect of a parser is one file's misfortune, told in full
                self.quarantine(job, f"the parser failed ({type(error).__name__}: {error}); please report it")

    def _remember(self, job: Job) -> None:
        """A copy: its pieces without rows, so that it is known by its own path from now on."""
        parser = next((one for one in PARSERS if one.name == job.parser), None)
        state = _state(job, job.seam_bytes, job.seam_hash, job.state)
        self._add_piece(job, parser, "closed", job.start, job.start, state=state, content="copy")
        if job.start < job.size_bytes:
            self._add_piece(job, parser, "tail", job.start, job.size_bytes, state=_heads(job), content="copy")

    def _read(self, job: Job, opener: Opener) -> None:
        parser = _parser(job, opener)
        if parser is None:
            self._outcome.unknown.append(job.path)
            if job.given:
                self._outcome.problems.append((job.path, _NO_KIND))
            return
        if isinstance(parser, Snapshot):
            parser = Snapshot(self._place.snapshot_detail)
        keys = {"run": job.run, "artifact": "", "month": self._place.month, "cluster": job.cluster}
        reading = _Reading(job, parser, keys, UNIT_ROWS - self._collector.count, self._place.rank)
        end = min(job.size_bytes, job.start + job.window_bytes)
        with opener(job.start, end) as stream:
            reading.read_closed(stream)
        seam_bytes = min(SEAM_BYTES, reading.end)
        with opener(reading.end - seam_bytes, job.size_bytes) as stream:
            seam = content_hash(stream.read(seam_bytes))
            tail = reading.read_tail(stream) if reading.whole and reading.end < end == job.size_bytes else None
        if reading.end > job.start or not job.size_bytes:
            whole = _whole_hash(job, opener) if isinstance(parser, Snapshot) and reading.end == job.size_bytes else None
            state = _state(job, seam_bytes, seam, reading.state, whole)
            self._collector.take(reading.rows, self._add_piece(job, parser, "closed", job.start, reading.end, state=state, content=seam))
        if tail:
            self._collector.take(tail, self._add_piece(job, parser, "tail", reading.end, job.size_bytes, state=_heads(job), content=job.last_hash))
        elif reading.end < job.size_bytes:
            self._outcome.remaining.append(reading.rest())
        self._outcome.read_bytes += (job.size_bytes if tail else reading.end) - job.start
        self._collector.squeeze(above=_ARROW_ROWS)

    def _add_piece(
        self, job: Job, parser: Parser | None, status: str, start: int, end: int, *,
        state: str | None = None, reason: str | None = None, content: str = "",
    ) -> str:
        """A row of `artifacts`; its name holds a hash of what was read and how, see `ingest.lake`."""
        tag = content_hash("\0".join((job.prefix_hash, content, job.run, job.cluster, str(parser and parser.version))).encode())[:8]
        artifact = f"{job.source}:{start}-{end}{_MARKS[status]}~{tag}"
        self._outcome.expected.setdefault(job.source, job.expected)
        self._pieces.append({
            "run": job.run, "run_index": 0, "artifact": artifact, "month": self._place.month, "cluster": job.cluster, "source": job.source,
            "path": job.path, "kind": parser.name if parser else "unknown", "size_bytes": job.size_bytes, "start_bytes": start, "end_bytes": end,
            "prefix_bytes": job.prefix_bytes, "prefix_hash": job.prefix_hash, "parser": parser.name if parser else None,
            "parser_version": parser.version if parser else None, "status": status, "reason": reason, "state": state,
            "host": socket.gethostname(), "ingested_at": datetime.now(UTC).replace(tzinfo=None),
        })
        return artifact


class _Reading:
    """One source on its way through its parser: rows, and the last byte up to which everything is closed."""

    def __init__(self, job: Job, parser: Parser, keys: Row, budget: int, rank: int | None) -> None:
        self.end, self.state = job.start, job.state
        self.rows = Collector(rank)
        self._rank = rank
        self.whole = True
        self._job, self._parser, self._keys, self._budget = job, parser, keys, budget

    def read_closed(self, stream: BinaryIO) -> None:
        """Closed pieces until the stream or the budget ends."""
        for piece in self._parser.parse(stream, self._job.path, start=self.end, state=self.state, final=False):
            self.rows.add(piece.rows, self._keys)
            self.rows.add_tables(piece.tables, self._keys)
            self.rows.squeeze(above=_ARROW_ROWS)
            if piece.end_bytes >= self.end:
                self.end, self.state = piece.end_bytes, piece.state
            if self.rows.count >= self._budget or self.rows.nbytes >= UNIT_BYTES:
                self.whole = False
                return

    def read_tail(self, stream: BinaryIO) -> Collector:
        """The open end as if the source ended there."""
        tail = Collector(self._rank)
        for piece in self._parser.parse(stream, self._job.path, start=self.end, state=self.state, final=True):
            tail.add(piece.rows, self._keys)
            tail.add_tables(piece.tables, self._keys)
            tail.squeeze(above=_ARROW_ROWS)
        return tail

    def rest(self) -> Job:
        """What is left; where nothing closed (one endless line) the next window is four times as wide."""
        moved = self.end > self._job.start
        return replace(
            self._job, start=self.end, state=self.state, parser=self._parser.name, expected=self.end if moved else self._job.expected,
            window_bytes=WINDOW_BYTES if moved else 4 * self._job.window_bytes,
        )


def _state(job: Job, seam_bytes: int, seam_hash: str | None, parser_state: str | None, whole_hash: str | None = None) -> str:
    """What the next piece starts from, and what must stand before it: `artifacts.state`."""
    state: dict[str, Any] = {"seam_bytes": seam_bytes, "seam_hash": seam_hash, "parser": parser_state}
    if whole_hash:
        state |= {"whole_hash": whole_hash, "modified_ns": job.modified_ns}
    return json.dumps(state | ({"heads": job.heads} if job.heads else {}))


def _heads(job: Job) -> str | None:
    """The state of an open end: only what a file that becomes shorter is compared with."""
    return json.dumps({"heads": job.heads}) if job.heads else None


def _whole_hash(job: Job, opener: Opener) -> str:
    with opener(0, job.size_bytes) as stream:
        return hash_of_all(stream)


def _parser(job: Job, opener: Opener) -> Parser | None:
    """The parser that began the source, else the first that matches."""
    for parser in PARSERS:
        if parser.name == job.parser:
            return parser
    with opener(0, min(HEAD_BYTES, job.size_bytes)) as stream:
        head = stream.read(HEAD_BYTES)
    return next((parser for parser in PARSERS if parser.matches(head, job.path)), None)
