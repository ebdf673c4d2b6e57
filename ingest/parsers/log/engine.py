"""The log's engine: chunks to lines to recognisers to pieces.

Every line is offered to the open groups, then to the recognisers; while nothing is open, lines without any literal are passed over unread. A
piece ends after the last line at which nothing was open, so that reading on from there with the kept state gives the rows
the whole would have given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from ingest.parsers.base import PIECE_ROWS, Piece, Row
from ingest.parsers.log import attempts, containers
from ingest.parsers.log.fast import fast_path
from ingest.parsers.log.lines import Chunk, blocks_of, chunks, encoding_of
from ingest.parsers.log.nccl_runs import ConnectionRuns
from ingest.parsers.log.prefixes import log_line
from ingest.parsers.log.records import Context, Fed, LogLine, Recognizer
from ingest.parsers.log.scanner import Cursor, scanner_of
from ingest.parsers.names import local_rank_of, rank_of

LONGEST_GROUP_LINES = 4_000
"""A group still open after this many lines has lost its end: it is finished as it stands."""
MANY_ROWS = 1_000
"""Fewer rows of the fast path travel as dictionaries like all others: those of many small logs then share one conversion to Arrow."""
_PROGRESS = ("iterations", "rank_memory", "oom_events")


@dataclass(slots=True)
class Mark:
    """Where nothing was open: the byte, how many rows each table had, and what the state is made of (plain values, JSON of the changing ones)."""

    end: int
    counts: dict[str, int]
    state: tuple[Any, ...]


class Engine:
    """One pass over one artifact."""

    def __init__(self, recognizers: Sequence[Recognizer], path: str, state: str | None) -> None:
        self.recognizers = recognizers
        self.context = Context(file_rank=rank_of(path))
        self.local_rank = local_rank_of(path)
        self.containers = containers.Containers()
        self.attempts = attempts.Attempts()
        self.encoding = ""
        self.number = self.end = self.group_lines = 0
        self.scanner = scanner_of(tuple(one.literals for one in recognizers), (*attempts.LITERALS, *containers.LITERALS))
        self.cursor = Cursor(self.scanner, b"")
        self.fast = fast_path(recognizers, self.scanner.literals)
        if self.fast and self.local_rank is not None:
            self.fast.begin(f"local {self.local_rank}")
        self.runs = ConnectionRuns(recognizers, self._unwrapped, self.scanner.asked)
        if state:
            self._restore(state)

    def run(self, stream: BinaryIO, start: int, final: bool) -> Iterator[Piece]:
        """Pieces of the artifact from byte `start` on; the last one ends at the last closed byte, or with `final` at the end."""
        try:
            yield from self._run(stream, start, final)
        finally:  # the engine and its reader of runs hold each other: without this the buffers of one window would outlive it
            self.fast = None

    def _run(self, stream: BinaryIO, start: int, final: bool) -> Iterator[Piece]:
        head, blocks = blocks_of(stream)
        self.encoding = self.encoding or encoding_of(head)
        self.end = start
        self.mark = self._mark()
        for chunk in chunks(blocks, start, self.encoding):
            if not chunk.closed and not final:
                break
            yield from self._read(chunk)
        if final:
            self._finish_groups()
            for text, number, offset in self.containers.rest():
                self._text(text, number, offset)
            self._finish_groups()
        yield self._piece(self._mark() if self.idle else self.mark)

    @property
    def idle(self) -> bool:
        """Whether nothing is open."""
        return not self.context.groups and not self.containers.open

    def _read(self, chunk: Chunk) -> Iterator[Piece]:
        """Take the chunk's lines; a mark is made before each line that may open something, a piece as soon as there are enough rows."""
        if chunk.cut:
            line = LogLine("", self.number + 1, chunk.offset)
            self.context.reject(line, chunk.data.replace(b"\0", b"").decode("utf-8", "replace"), "line longer than 1 MiB")
            self.end = chunk.end
            return
        data, at, size = chunk.data, 0, len(chunk.data)
        self._enter(data)
        while at < size:
            if self.idle:
                at = self._advance(data, at)
                self.end = chunk.offset + at if at < size else chunk.end
                self.mark = self._mark()
                if sum(self.mark.counts.values()) >= PIECE_ROWS or self.runs.full or (self.fast and self.fast.full):
                    yield self._piece(self.mark)
                    self.mark = self._mark()
                    continue
                if at >= size:
                    return
                if self.runs.wanted and (run := self.runs.take(data, at, self.number, self.context))[1]:
                    at, self.number = run[0], self.number + run[1]
                    self.end = chunk.offset + at if at < size else chunk.end
                    continue
            stop = data.find(b"\n", at) + 1 or size
            word = self.fast.word(data) if self.fast and self.idle else None
            self._line(data[at:stop], chunk.offset + at)
            if word:
                self._learn(data[at:stop], *word)
            self.number += data[stop - 1] == 10
            at = stop
            self.end = chunk.offset + at if at < size else chunk.end

    def _enter(self, data: bytes) -> None:
        if self.fast:
            self.fast.enter()
        else:
            self.cursor = Cursor(self.scanner, data)

    def _advance(self, data: bytes, at: int) -> int:
        """Where the line begins that is to be read here; lines without a record, and those that the fast path reads, are passed."""
        if self.fast:
            at, self.number = self.fast.advance(data, at, self.number, self.context, self.attempts)
            return at
        at, lines = self.cursor.advance(at)
        self.number += lines
        return at

    def _learn(self, data: bytes, why: int, word: bytes) -> None:
        text = data.rstrip(b"\r\n")
        line = self._unwrapped(text.decode("utf-8", errors="replace"), 0, 0)
        if self.fast:
            self.fast.learn(why, word, line, text[len(word):].decode("utf-8", errors="replace"))

    def _line(self, data: bytes, offset: int) -> None:
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        for part in re.split(r"[\r\n]+", data.decode("utf-8", errors="replace")):
            for text, number, at in self.containers.texts(part, self.number + 1, offset) if part else ():
                self._text(text, number, at)

    def _text(self, text: str, number: int, offset: int) -> None:
        for part in re.split(r"[\r\n]+", text):
            if part and (self.context.groups or self.scanner.asked(part) is not None):
                self._offer(self._unwrapped(part, number, offset))

    def _unwrapped(self, text: str, number: int, offset: int) -> LogLine:
        line = log_line(text, number, offset)
        if line.rank is None and line.rank_label is None and self.local_rank is not None:
            line.rank_label = f"local {self.local_rank}"
        return line

    def _offer(self, line: LogLine) -> None:
        if self.attempts.begins(line.text):
            self._finish_groups()
            self.context.new_attempt()
        if self.context.groups:
            self.group_lines += 1
            if self.group_lines > LONGEST_GROUP_LINES:
                self._finish_groups()
            elif self._feed(line):
                return
        before = self._progress()
        for asker in self.scanner.asked(line.text) or ():
            self.recognizers[asker].take(line, self.context)
        self.attempts.progressed |= self._progress() > before

    def _progress(self) -> int:
        return sum(len(self.context.rows.get(table, ())) for table in _PROGRESS)

    def _feed(self, line: LogLine) -> bool:
        """Offer the line to the open groups, newest first; True where one took it."""
        for group in reversed(self.context.groups):
            fed = group.feed(line, self.context)
            if fed in (Fed.CLOSED, Fed.CLOSED_BEFORE) and group in self.context.groups:
                self.context.groups.remove(group)
                self.group_lines = 0
            if fed in (Fed.TAKEN, Fed.CLOSED):
                return True
        return False

    def _finish_groups(self) -> None:
        for group in list(self.context.groups):
            group.finish(self.context)
        self.context.groups.clear()
        self.group_lines = 0

    def _mark(self) -> Mark:
        c = self.context
        state = (self.encoding, self.number, c.run_index, c.iteration, c.phase, json.dumps(c.facts) if c.facts else "{}", self.attempts.state())
        return Mark(self.end, {table: len(rows) for table, rows in c.rows.items()}, state)

    def _piece(self, mark: Mark) -> Piece:
        rows: dict[str, list[Row]] = {}
        for table, count in mark.counts.items():
            rows[table] = self.context.rows[table][:count]
            del self.context.rows[table][:count]
        tables = (self.fast.take(self.context.file_rank) if self.fast else {}) | self.runs.table(self.context.file_rank)
        encoding, number, run_index, iteration, phase, facts, seen = mark.state
        state = json.dumps([encoding, number, run_index, iteration, phase, json.loads(facts), seen])
        piece = Piece({table: found for table, found in rows.items() if found}, mark.end, state, tables)
        return piece if sum(part.num_rows for part in tables.values()) >= MANY_ROWS else Piece(piece.records(), mark.end, state)

    def _restore(self, state: str) -> None:
        c = self.context
        self.encoding, self.number, c.run_index, c.iteration, c.phase, c.facts, seen = json.loads(state)
        self.attempts.restore(seen)
