"""`memory_stats` files: JSON documents, JSON lines (the probe's) and `OrderedDict([...])` text, as rows of two tables.

A record is what stands between balanced brackets, be it one line or a whole pretty-printed document, so one reader takes all three
kinds and a growing file can be cut after any closed record. A line torn by a crash is given up (into `rejects`) as soon as a whole
record begins after it. Text of Python dictionaries is rewritten as JSON, never evaluated. A log that merely CONTAINS such
text, or wraps it (`{"log": "..."}`), is left to the log's parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from ingest.errors import LedgerError
from ingest.parsers import allocator_stats
from ingest.parsers.allocator_stats import Reading
from ingest.parsers.base import PIECE_ROWS, Piece
from ingest.parsers.names import local_rank_of, rank_of

LARGEST_RECORD_BYTES = 64 * 2**20
_TOKEN = re.compile(rb'"(?:\\.|[^"\\\n])*"|[\[\](){}]')
_OPENING = re.compile(rb"""\s*(?:\{\s*(?:["'}\d-]|$)|OrderedDict\(|\[\s*(?:[\[{]|OrderedDict\(|$))""")
_BARE = re.compile(rb"\s*(?:OrderedDict\(|[\[({])[\[({\s]*")
_DICT = re.compile(r"OrderedDict\(\[(.*?)\]\)", re.DOTALL)
_DICT_3_12 = re.compile(r"OrderedDict\((\{[^{}]*\})\)")
_PAIR = re.compile(r"\(\s*'([^']*)'\s*,\s*([^()]*?)\s*,?\s*\)")
_BARE_KEY = re.compile(r"([{,]\s*)(-?\d+)\s*:")
_COUNTER = re.compile(
    rb"""["'](?:max_)?(?:(?:allocated|reserved)_bytes(?:\.\w+\.\w+)?|memory_(?:allocated|reserved))["']\s*[:,]\s*(?:-?\d|\{)""")
_ITERATION_IN_NAME = re.compile(r"(?:step|iter|iteration)[_-]?0*(\d+)", re.IGNORECASE)
_LOGGER_KEYS = ("log", "message", "msg", "tag")


class MemoryStats:
    """The parser; see `Parser` for what is promised."""

    name = "memory_stats"
    version = 1

    def matches(self, head: bytes, path: str) -> bool:
        """Whether the first records are readings of the allocator, and nothing but records stands there."""
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if not _OPENING.match(text) or not _COUNTER.search(text):
            return False
        records = list(_records(text))
        if any(not _OPENING.match(record) for record in records if record.strip()):
            return False
        values = [value for record in records[:20] if (value := decode(record)) is not None]
        if not values:
            return _COUNTER.search(text) is not None and not any(f'"{key}"'.encode() in text[:2000] for key in _LOGGER_KEYS)
        return not any(isinstance(value, dict) and value.keys() & set(_LOGGER_KEYS) for value in values) and any(
            True for value in values for _ in allocator_stats.readings(value))

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """Pieces that end after a closed record at the end of a line."""
        reader = _Reader(path, start, state)
        for line in iter(lambda: stream.readline(LARGEST_RECORD_BYTES), b""):
            reader.feed(line)
            if reader.row_count >= PIECE_ROWS and reader.closed:
                yield reader.piece()
        if final:
            reader.close()
        yield reader.piece()


@dataclass
class _Attempt:
    """Where one rank stands: a step that goes back while the clock goes on is a new attempt of the job."""

    run_index: int = 0
    iteration: int = -1
    time: float = 0.0

    def after(self, reading: Reading) -> _Attempt:
        if reading.iteration is None or reading.time is None:
            return self
        back = reading.iteration < self.iteration and reading.time > self.time
        return _Attempt(self.run_index + back, reading.iteration, reading.time)


@dataclass
class _Reader:
    """Lines in, closed records out; `line` and `attempts` go from piece to piece."""

    path: str
    closed_end: int
    state: str | None
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    line: int = 0
    attempts: dict[str, _Attempt] = field(default_factory=dict)
    open: list[bytes] = field(default_factory=list)
    depth: int = 0
    open_bytes: int = 0
    row_count: int = 0

    def __post_init__(self) -> None:
        known = json.loads(self.state) if self.state else {}
        self.line = known.get("line", 0)
        self.attempts = {rank: _Attempt(*values) for rank, values in known.get("attempts", {}).items()}
        found = _ITERATION_IN_NAME.search(self.path.rsplit("/", 1)[-1])
        local = local_rank_of(self.path)
        self.named = Reading(rank=rank_of(self.path), rank_label=None if local is None else f"local {local}",
                             iteration=int(found.group(1)) if found else None)

    @property
    def closed(self) -> bool:
        return not self.open

    def feed(self, line: bytes) -> None:
        """Take one line: it goes on with the open record, or begins one; a whole record gives up a torn one before it."""
        if self.open and _torn(self.open[0]) and _is_whole(line):
            self.close()
        self.open.append(line)
        self.depth += _depth(line)
        self.open_bytes += len(line)
        if self.open_bytes > LARGEST_RECORD_BYTES and not self._salvage():
            raise LedgerError(f"a record of more than {LARGEST_RECORD_BYTES >> 20} MiB", where=f"{self.path}, line {self.line + 1}",
                              todo="write one reading a line")
        if line.endswith(b"\n") and self.open and (self.depth <= 0 or not _OPENING.match(self.open[0])):
            self.close()

    def close(self) -> None:
        """Turn the open lines into rows; they are consumed."""
        if not self.open:
            return
        record = b"".join(self.open)
        if len(self.open) > 1 and decode(record) is None and self._salvage():
            return
        self._take(record, len(self.open))
        self._empty()

    def _empty(self) -> None:
        self.open, self.depth, self.open_bytes = [], 0, 0

    def _take(self, record: bytes, lines: int) -> None:
        """Consume a record of so many lines."""
        number, offset = self.line + 1, self.closed_end
        self.line += lines
        self.closed_end += len(record)
        if record.strip(b"\x00\r\n\t \xef\xbb\xbf"):
            self._keep(record, number, offset)

    def _salvage(self) -> bool:
        """Whether whole records stand among the lines of one that never closes: then each line is taken by itself."""
        if not any(_is_whole(line) for line in self.open):
            return False
        for line in self.open:
            self._take(line, 1)
        self._empty()
        return True

    def _keep(self, record: bytes, number: int, offset: int) -> None:
        value = decode(record)
        torn = value is None
        value = _after_tear(record) if torn else value
        found = [] if value is None else list(allocator_stats.readings(value, self.named))
        for reading in found:
            self._emit(reading, number)
        if torn or not found:
            reason = "a record that is not whole" if torn else "a record without allocator counters"
            self.rows.setdefault("rejects", []).append(
                {"run_index": 0, "line": number, "offset_bytes": offset, "text": record.decode("utf-8", "replace")[:2000].rstrip(), "reason": reason})
        self.row_count += 2 * len(found) + 1

    def _emit(self, reading: Reading, number: int) -> None:
        key = str(reading.rank)
        attempt = self.attempts[key] = self.attempts.get(key, _Attempt()).after(reading)
        for table, row in allocator_stats.rows_of(reading).items():
            self.rows.setdefault(table, []).append({"run_index": attempt.run_index, "line": number, **row})

    def piece(self) -> Piece:
        """What is closed so far; the reader goes on empty."""
        attempts = {rank: [one.run_index, one.iteration, one.time] for rank, one in self.attempts.items()}
        done = Piece(self.rows, self.closed_end, json.dumps({"line": self.line, "attempts": attempts}))
        self.rows, self.row_count = {}, 0
        return done


def decode(record: bytes) -> Any | None:
    """A record as a value, from JSON or from the text of Python dictionaries; None where it is not whole."""
    record = record.strip(b"\x00\r\n\t \xef\xbb\xbf,")
    try:
        return msgspec.json.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    text = record.decode("utf-8", "replace")
    if "'" not in text:
        return None
    text = _DICT_3_12.sub(r"\1", _DICT.sub(lambda match: "{" + _PAIR.sub(r'"\1": \2', match.group(1)) + "}", text))
    try:
        return msgspec.json.decode(_BARE_KEY.sub(r'\1"\2":', text.replace("'", '"').replace("None", "null")))
    except (msgspec.DecodeError, RecursionError):
        return None


def _depth(line: bytes) -> int:
    return sum((token[0] in b"[({") - (token[0] in b"])}") for token in _TOKEN.findall(line))


def _is_whole(line: bytes) -> bool:
    return line.startswith((b'{"', b"OrderedDict(")) and _depth(line) == 0 and decode(line) is not None


def _torn(first: bytes) -> bool:
    """Whether an open record began as one of a line each: a document that spans lines opens with nothing but brackets."""
    return not _BARE.fullmatch(first)


def _after_tear(record: bytes) -> Any | None:
    """The whole object that was appended to a torn one without a line break between them."""
    starts = [match.start() for match in re.finditer(rb'\{"(?:rank|iteration|step)"', record)]
    return next((value for start in starts[1:] if (value := decode(record[start:])) is not None), None)


def _records(head: bytes) -> Iterator[bytes]:
    """The whole records in the head of a file; its last, cut one is left out."""
    open_lines: list[bytes] = []
    depth = 0
    for line in head.splitlines(keepends=True):
        open_lines.append(line)
        depth += _depth(line)
        if depth <= 0 and (line.endswith(b"\n") or decode(b"".join(open_lines)) is not None):
            yield b"".join(open_lines)
            open_lines, depth = [], 0


MEMORY_STATS = MemoryStats()
