"""The log's engine: lines to recognisers to pieces.

Every line is offered to the open groups, then to the recognisers; lines without any of their literals are skipped undecoded unless a
group is open. A piece ends after the last line at which nothing was open, so that reading on from there with the kept state gives
the rows the whole would have given.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from ingest.parsers.base import PIECE_ROWS, Piece, Row
from ingest.parsers.log.containers import Containers
from ingest.parsers.log.lines import RawLine, raw_lines
from ingest.parsers.log.prefixes import log_line
from ingest.parsers.log.records import Context, Fed, LogLine, Recognizer
from ingest.parsers.names import rank_of

_WORLD = re.compile(r"\busing world size: \d")
_DUMP = re.compile(r"^[> ]*-{12,}\s*(?!end of )(?P<title>[A-Za-z][^-]*?)\s*-{12,}\s*$")
_ITERATION = re.compile(r"\biteration\s+(\d+)/\s*\d+ \|")
LONGEST_GROUP_LINES = 4_000
"""A group still open after this many lines has lost its end: it is finished as it stands."""


@dataclass(slots=True)
class Mark:
    """Where nothing was open: the byte, how many rows each table had, and the state."""

    end: int
    number: int
    counts: dict[str, int]
    state: list[Any]


class Engine:
    """One pass over one artifact."""

    def __init__(self, recognizers: Sequence[Recognizer], path: str, state: str | None) -> None:
        self.recognizers = recognizers
        self.context = Context(file_rank=rank_of(path))
        self.containers = Containers()
        self.number = 0
        self.group_lines = 0
        literals = sorted({literal for one in recognizers for literal in one.literals}, key=len, reverse=True)
        self.wanted = re.compile(b"|".join(re.escape(literal.encode()) for literal in literals))
        if state:
            self._restore(state)

    def run(self, stream: BinaryIO, start: int, final: bool) -> Iterator[Piece]:
        """Pieces of the artifact from byte `start` on; the last one ends at the last closed byte, or with `final` at the end."""
        mark, end = self._mark(start), start
        for raw in raw_lines(stream, start, self.number):
            if not raw.closed and not final:
                break
            self.number, end = raw.number, raw.end
            if not self._take(raw):
                mark.end, mark.number = end, self.number
            elif not self.context.groups and not self.containers.open:
                mark = self._mark(end)
                if sum(mark.counts.values()) >= PIECE_ROWS:
                    yield self._piece(mark)
                    mark = self._mark(end)
        if final:
            self._finish_groups()
            mark = self._mark(end)
        yield self._piece(mark)

    def _take(self, raw: RawLine) -> bool:
        """Offer the line; False where nothing in it was wanted."""
        data = raw.data
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        if raw.cut:
            self.context.reject(LogLine("", raw.number, raw.offset), data[:200].decode(errors="replace"), "line longer than 1 MiB")
            return True
        if not (self.context.groups or self.containers.open or self.wanted.search(data)):
            return False
        for text in self.containers.texts(data.decode("utf-8", errors="replace")):
            for part in re.split(r"[\r\n]", text):
                if part:
                    self._offer(log_line(part, raw.number, raw.offset))
        return True

    def _offer(self, line: LogLine) -> None:
        if self._starts_attempt(line):
            self._finish_groups()
            mark = self.context.facts.get("next")
            self.context.new_attempt()
            self.context.facts["shown"] = [mark] if mark else []
        if self.context.groups:
            self.group_lines += 1
            if self.group_lines > LONGEST_GROUP_LINES:
                self._finish_groups()
            elif self._feed(line):
                return
        for recognizer in self.recognizers:
            if any(literal in line.text for literal in recognizer.literals):
                recognizer.take(line, self.context)

    def _starts_attempt(self, line: LogLine) -> bool:
        """Whether the line is a mark that this attempt has shown before: its world line, the same dump, or, without either, an earlier iteration.

        The mark is kept in the context's facts as `shown`: a world line followed by its own dump is one attempt.
        """
        facts = self.context.facts
        shown = facts.setdefault("shown", [])
        if _WORLD.search(line.text):
            mark = "world"
        elif match := _DUMP.match(line.text):
            mark = match["title"]
        elif not shown and (match := _ITERATION.search(line.text)):
            return self.context.iteration is not None and int(match[1]) < self.context.iteration
        else:
            return False
        again = mark in shown
        if again:
            facts["next"] = mark
        else:
            shown.append(mark)
        return again

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
        c = self.context
        state = [c.run_index, c.iteration, c.phase, copy.deepcopy(c.facts)]
        return Mark(end, self.number, {table: len(rows) for table, rows in c.rows.items()}, state)

    def _piece(self, mark: Mark) -> Piece:
        rows: dict[str, list[Row]] = {}
        for table, count in mark.counts.items():
            rows[table] = self.context.rows[table][:count]
            del self.context.rows[table][:count]
        return Piece(rows, mark.end, json.dumps([mark.number, *mark.state]))

    def _restore(self, state: str) -> None:
        c = self.context
        self.number, c.run_index, c.iteration, c.phase, c.facts = json.loads(state)
