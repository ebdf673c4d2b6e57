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
from typing import BinaryIO

from ingest.parsers.base import PIECE_ROWS, Piece, Row
from ingest.parsers.log import attempts, containers
from ingest.parsers.log.lines import Chunk, blocks_of, chunks, encoding_of
from ingest.parsers.log.prefixes import log_line
from ingest.parsers.log.records import Context, Fed, LogLine, Recognizer
from ingest.parsers.log.scanner import Scanner
from ingest.parsers.names import local_rank_of, rank_of

LONGEST_GROUP_LINES = 4_000
"""A group still open after this many lines has lost its end: it is finished as it stands."""
_PROGRESS = ("iterations", "rank_memory", "oom_events")


@dataclass(slots=True)
class Mark:
    """Where nothing was open: the byte, how many rows each table had, and the state (without its line number)."""

    end: int
    number: int
    counts: dict[str, int]
    state: str


class Engine:
    """One pass over one artifact."""

    def __init__(self, recognizers: Sequence[Recognizer], path: str, state: str | None) -> None:
        self.recognizers = recognizers
        self.context = Context(file_rank=rank_of(path))
        self.local_rank = local_rank_of(path)
        self.containers = containers.Containers()
        self.attempts = attempts.Attempts()
        self.encoding = ""
        self.number = 0
        self.group_lines = 0
        literals = {literal for one in recognizers for literal in one.literals}
        self.scanner = Scanner((*literals, *attempts.LITERALS, *containers.LITERALS))
        self.wanted = re.compile(b"|".join(re.escape(one.encode()) for one in sorted((*literals, *attempts.LITERALS))))
        if state:
            self._restore(state)

    def run(self, stream: BinaryIO, start: int, final: bool) -> Iterator[Piece]:
        """Pieces of the artifact from byte `start` on; the last one ends at the last closed byte, or with `final` at the end."""
        head, blocks = blocks_of(stream)
        self.encoding = self.encoding or encoding_of(head)
        mark, end = self._mark(start), start
        for chunk in chunks(blocks, start, self.encoding):
            if not chunk.closed and not final:
                break
            for end, idle in self._read(chunk):
                if idle:
                    mark = self._mark(end)
                    if sum(mark.counts.values()) >= PIECE_ROWS:
                        yield self._piece(mark)
                        mark = self._mark(end)
        if final:
            self._finish_groups()
            for text, number, offset in self.containers.rest():
                self._text(text, number, offset)
            self._finish_groups()
            mark = self._mark(end)
        yield self._piece(mark)

    @property
    def idle(self) -> bool:
        """Whether nothing is open."""
        return not self.context.groups and not self.containers.open

    def _read(self, chunk: Chunk) -> Iterator[tuple[int, bool]]:
        """Take the chunk's lines; yields the byte reached and whether nothing is open there, before and after each line of interest."""
        if chunk.cut:
            line = LogLine("", self.number + 1, chunk.offset)
            self.context.reject(line, chunk.data.replace(b"\0", b"").decode("utf-8", "replace"), "line longer than 1 MiB")
            yield chunk.end, self.idle
            return
        data, at, size = chunk.data, 0, len(chunk.data)
        blind = b"\0" in data  # NULs may stand inside a literal
        hits = iter(() if blind else self.scanner.hits(data))
        hit = next(hits, size)
        while at < size:
            begin = at
            if self.idle and not blind:
                while hit < at:
                    hit = next(hits, size)
                begin = data.rfind(b"\n", at, hit) + 1 or at
                self.number += data.count(b"\n", at, begin)
                if begin > at:
                    yield chunk.offset + begin if begin < size else chunk.end, True
                if begin >= size:
                    return
            stop = data.find(b"\n", begin) + 1 or size
            self._line(data[begin:stop], chunk.offset + begin)
            self.number += data[stop - 1] == 10
            at = stop
            yield chunk.offset + at if at < size else chunk.end, self.idle

    def _line(self, data: bytes, offset: int) -> None:
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        for part in re.split(r"[\r\n]+", data.decode("utf-8", errors="replace")):
            for text, number, at in self.containers.texts(part, self.number + 1, offset) if part else ():
                self._text(text, number, at)

    def _text(self, text: str, number: int, offset: int) -> None:
        for part in re.split(r"[\r\n]+", text):
            if part and (self.context.groups or self.wanted.search(part.encode("utf-8", "replace"))):
                line = log_line(part, number, offset)
                if line.rank is None and line.rank_label is None and self.local_rank is not None:
                    line.rank_label = f"local {self.local_rank}"
                self._offer(line)

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
        for recognizer in self.recognizers:
            if any(literal in line.text for literal in recognizer.literals):
                recognizer.take(line, self.context)
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

    def _mark(self, end: int) -> Mark:
        return Mark(end, self.number, {table: len(rows) for table, rows in self.context.rows.items()}, self._state())

    def _piece(self, mark: Mark) -> Piece:
        rows: dict[str, list[Row]] = {}
        for table, count in mark.counts.items():
            rows[table] = self.context.rows[table][:count]
            del self.context.rows[table][:count]
        return Piece({table: found for table, found in rows.items() if found}, mark.end, mark.state)

    def _state(self) -> str:
        c = self.context
        return json.dumps([self.encoding, self.number, c.run_index, c.iteration, c.phase, c.facts, self.attempts.state()])

    def _restore(self, state: str) -> None:
        c = self.context
        self.encoding, self.number, c.run_index, c.iteration, c.phase, c.facts, seen = json.loads(state)
        self.attempts.restore(seen)
