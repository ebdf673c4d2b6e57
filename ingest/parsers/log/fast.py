"""The compiled scanner: passes over lines without a record and reads the two commonest records whole (`ingest/native/log_scan.c`).

What it may read is told from here and learned from the Python recognisers, so that the two can never differ: a launcher prefix is known once
`log_line` has taken it off completely and found no time in it, a field's name once the recogniser of iteration lines has said what
becomes of it. A line behind an unknown prefix, or with an unknown name, goes the Python way once more and teaches both. Everything else, and
every line while a record of several lines is open, is left to the engine.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.native import library
from ingest.parsers.log import columns
from ingest.parsers.log.attempts import Attempts
from ingest.parsers.log.iterations import IterationLines
from ingest.parsers.log.memory import MemoryLines
from ingest.parsers.log.phases import PhaseLines
from ingest.parsers.log.prefixes import moment
from ingest.parsers.log.records import Context, LogLine, Recognizer
from ingest.parsers.log.scanner import NUL

_ROWS, _ENTRIES, _TEXT_BYTES = 16_384, 131_072, 1 << 20
_UNTIMED, _TIMED = 1, 2
_FOR_MEMORY, _FOR_ITERATION = 1, 2
_WHY_PREFIX, _WHY_NAME, WHY_ROOM = 1, 2, 3
_STAMP = re.compile(r"\[([^\[\]]+)\] (?=iteration )")
_MOST_UNLEARNED = 500
"""So many prefixes that cannot be learned (each line has its own time) and no more are tried."""

Settled = Callable[[Context, bool], bool]
"""Whether a recogniser learns nothing more from memory and iteration lines, those with a printed time among them, in the present attempt."""


class _State(ctypes.Structure):
    """What stands in `log_state`, in its order."""

    _fields_ = tuple((name, ctypes.c_int64) for name in (
        "lines", "run_index", "iteration", "first", "last", "progressed", "announced", "why", "word", "word_length", "readable", "nul",
        "memory_count", "memory_room", "iteration_count", "iteration_room", "loss_count", "loss_room", "other_count", "other_room",
        "text_used", "text_room")) + tuple((name, ctypes.c_void_p) for name in ("memory", "iterations", "losses", "others", "text", "prefixes"))


@dataclass(slots=True)
class _Compiled:
    """One scanner of one list of recognisers; the names it learned are shared by all logs of the process."""

    library: ctypes.CDLL
    handle: int
    names: list[str] = field(default_factory=list)

    def __del__(self) -> None:
        self.library.log_scan_free(self.handle)


@cache
def _library() -> ctypes.CDLL | None:
    found = library("log_scan")
    if found is None:
        return None
    pointer, integer, bytes_ = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "log_scan_new": (pointer, (bytes_, pointer, pointer, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)),
        "log_scan_free": (None, (pointer,)), "log_scan_prefix_bytes": (integer, ()),
        "log_scan_next": (integer, (pointer, ctypes.POINTER(_State), bytes_, integer, integer)),
        "log_scan_prefix": (ctypes.c_int32, (ctypes.POINTER(_State), bytes_, integer, ctypes.c_int32)),
        "log_scan_name": (ctypes.c_int32, (pointer, bytes_, integer, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


Askers = tuple[tuple[type, tuple[str, ...]], ...]


@cache
def _compiled(askers: Askers, literals: tuple[bytes, ...]) -> _Compiled | None:
    """None where no library was built or a literal is none that it can find."""
    found = _library()
    if found is None:
        return None
    texts = [text for text in literals if text != NUL]
    lengths = np.array([len(text) for text in texts], np.int32)
    kinds = np.array([_kind(text, askers) for text in texts], np.int32)
    records = {MemoryLines, IterationLines} <= {asker for asker, _ in askers}
    handle = found.log_scan_new(b"".join(texts), lengths.ctypes.data, kinds.ctypes.data, len(texts), NUL in literals, records)
    return _Compiled(found, handle) if handle else None


def _kind(literal: bytes, askers: Askers) -> int:
    """For which of the two records the literal says nothing new: no other recogniser asks for it but those that say when they are `settled`."""
    kinds = {asker for asker, wanted in askers if literal.decode("utf-8", "replace") in wanted and not hasattr(asker, "settled")}
    if not kinds:
        return 0
    return _FOR_MEMORY * (kinds <= {MemoryLines, IterationLines, PhaseLines}) | _FOR_ITERATION * (kinds == {IterationLines})


def fast_path(recognizers: Sequence[Recognizer], literals: tuple[bytes, ...]) -> FastPath | None:
    """The compiled scanner for these recognisers; None where it was not built or is forbidden."""
    compiled = _compiled(tuple((type(one), one.literals) for one in recognizers), literals)
    return FastPath(compiled, [one.settled for one in recognizers if hasattr(one, "settled")]) if compiled else None


class FastPath:
    """One log's pass: rows wait here as columns until `take`."""

    def __init__(self, compiled: _Compiled, settled: Sequence[Settled]) -> None:
        self._compiled, self._library, self._settled = compiled, compiled.library, settled
        self._prefixes: list[tuple[int | None, str | None]] = [(None, None)]
        self._unlearned = 0
        self._memory = np.empty((_ROWS, columns.MEMORY_FIELDS), np.int64)
        self._iterations = np.empty((_ROWS, columns.ITERATION_FIELDS), np.int64)
        self._losses, self._others = np.empty((_ENTRIES, 2), np.int64), np.empty((_ENTRIES, 3), np.int64)
        self._text = np.empty(_TEXT_BYTES, np.uint8)
        self._table = np.zeros(self._library.log_scan_prefix_bytes(), np.uint8)
        self._state = _State(
            memory_room=_ROWS, iteration_room=_ROWS, loss_room=_ENTRIES, other_room=_ENTRIES, text_room=_TEXT_BYTES, nul=-1,
            memory=self._memory.ctypes.data, iterations=self._iterations.ctypes.data, losses=self._losses.ctypes.data,
            others=self._others.ctypes.data, text=self._text.ctypes.data, prefixes=self._table.ctypes.data)

    def begin(self, local: str | None) -> None:
        """`local` labels lines without a prefix, where the log's name proves a local rank."""
        self._prefixes[0] = (None, local)

    def enter(self) -> None:
        """Other data comes."""
        self._state.nul = -1

    @property
    def counts(self) -> tuple[int, int]:
        """Rows of memory and of iterations that wait."""
        return self._state.memory_count, self._state.iteration_count

    @property
    def full(self) -> bool:
        """Whether the last `advance` ended because rows must be taken."""
        return bool(self._state.why == WHY_ROOM)

    def advance(self, data: bytes, at: int, number: int, context: Context, attempts: Attempts) -> tuple[int, int]:
        """Read on from `at`, where a line begins; returns the byte where the line begins that the engine must read, and lines before it."""
        s = self._state
        s.lines, s.run_index, s.iteration = number, context.run_index, -1 if context.iteration is None else context.iteration
        s.first, s.last = -1 if attempts.first is None else attempts.first, -1 if attempts.last is None else attempts.last
        s.progressed, s.announced = attempts.progressed, attempts.announced
        s.readable = _UNTIMED * all(one(context, False) for one in self._settled) | _TIMED * all(one(context, True) for one in self._settled)
        before = s.iteration_count
        at = self._library.log_scan_next(self._compiled.handle, s, data, len(data), at)
        attempts.progressed = bool(s.progressed)
        if s.iteration_count > before:
            context.iteration, context.phase, attempts.first, attempts.last = s.iteration, "train", s.first, s.last
        return at, s.lines

    def word(self, data: bytes) -> tuple[int, bytes] | None:
        """What was not known at the last `advance`, for `learn`."""
        s = self._state
        return (s.why, data[s.word:s.word + s.word_length]) if s.why in (_WHY_PREFIX, _WHY_NAME) else None

    def learn(self, why: int, word: bytes, line: LogLine, rest: str) -> None:
        """Take what the Python recognisers make of `word`: a name, or the prefix of `line`, after which `rest` stood."""
        if why == _WHY_NAME:
            kind, ends = meaning(word.decode("ascii"))
            if self._library.log_scan_name(self._compiled.handle, word, len(word), len(self._compiled.names), kind, ends):
                self._compiled.names.append(word.decode("ascii"))
        elif self._unlearned < _MOST_UNLEARNED:
            known = _bare(line, rest) and not {"pid", "clock"} & line.prefix.keys()
            self._unlearned += not known
            if known and self._library.log_scan_prefix(self._state, word, len(word), len(self._prefixes)):
                self._prefixes.append((line.rank, line.rank_label))

    def take(self, file_rank: int | None) -> dict[str, pa.Table]:
        """The rows that wait, which wait no more."""
        s = self._state
        tables = {}
        if s.memory_count:
            tables["rank_memory"] = columns.memory(self._memory[:s.memory_count])
        if s.iteration_count:
            text = self._text[:s.text_used].tobytes()
            entries = columns.Entries(self._losses[:s.loss_count], self._others[:s.other_count], text, self._compiled.names)
            ranks = [(file_rank if rank is None else rank, label) for rank, label in self._prefixes]
            tables["iterations"] = columns.iterations(self._iterations[:s.iteration_count], entries, ranks)
        s.memory_count = s.iteration_count = s.loss_count = s.other_count = s.text_used = 0
        return tables


def _bare(line: LogLine, rest: str) -> bool:
    """Whether nothing but the record is left of the line; an iteration line's own time may count as taken off with the prefix."""
    stamp = _STAMP.match(rest)
    if line.at is not None and stamp:
        return line.at == moment(stamp[1]) and line.text.lstrip() == rest[stamp.end():]
    return line.at is None and line.text.lstrip() == rest


_NEVER, _OTHER, _LOSS, _INTEGER, _FLOAT = -1, 0, 1, 2, 6


def meaning(name: str) -> tuple[int, bool]:
    """What becomes of a field with this name, asked of the recogniser itself with values of each form, and whether a line may end with it."""
    one, minus, loss = (_said(f" iteration 1/ 2 | {name}: {text} |")[0] for text in ("1", "-1", "1.000000E+00"))
    ends = not _said(f" iteration 1/ 2 | consumed samples: 1 | {name}: 1 |")[1]
    for first, columns_ in ((_INTEGER, columns.INTEGERS), (_FLOAT, columns.FLOATS)):
        for at, column in enumerate(columns_):
            if one == loss == {column: 1} and minus == {column: -1}:
                return first + at, ends
    if loss == {"losses": {name: 1.0}}:
        if one == loss and minus == {"losses": {name: -1.0}}:
            return _LOSS, ends
        if one == {"other": {name: "1"}} and minus == {"other": {name: "-1"}}:
            return _OTHER, ends
    return _NEVER, False


def _said(text: str) -> tuple[dict[str, Any], bool]:
    """The columns beside its iteration that a line gives (none where it gives more than that one row), and whether it may go on in the next line."""
    context = Context()
    IterationLines().take(LogLine(text, 1, 0), context)
    open_ = bool(context.groups)
    for group in list(context.groups):
        group.finish(context)
    rows = context.rows.pop("iterations", [])
    same = {"run_index": 0, "line": 1, "iteration": 1, "train_iterations": 2, "phase": "train"}
    if len(rows) != 1 or context.rows or context.facts or not same.items() <= rows[0].items():
        return {}, open_
    return {name: value for name, value in rows[0].items() if value is not None and name not in same}, open_
