"""Runs of NCCL connection lines, the commonest record of a big log: read straight from bytes into columns, one pattern a line.

The general way (decode, prefixes, containers, all recognisers, a dictionary a row) costs more than ten times as much, and a log may hold a
hundred connection lines for each other record. Only a line of exactly the commonest shape is read here, behind a prefix that `log_line`
was asked about once; whatever differs by a byte is left to the engine, which reads every shape there is. The rows are those that `NcclLines` gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ingest.parsers.base import PIECE_ROWS
from ingest.parsers.log.nccl import NcclLines
from ingest.parsers.log.records import Context, LogLine, Recognizer

LONGEST_RUN = 20_000
MOST_HEADS = 4096
"""Heads (prefix and host) remembered; a log with more has a time in each, and gains nothing here."""
_LINE = re.compile(
    rb"((?:\[[^\n\r\0\]{]{0,40}\](?:<std\w{3}>)?:? ?| {0,6}\d{1,6}: ?)?[\w.-]{1,64}):(\d{1,9}):(\d{1,9}) \[(-?\d{1,5})\] NCCL INFO "
    rb"Channel (\d{1,3})(?:/(\d))? : (\d{1,6})\[\w+\] -> (\d{1,6})\[\w+\](?: \[(send|receive)\])? via ([\w/()., +-]{1,80}[\w)])\r?\n")
_NUMBERS = ("pid", "thread", "device", "channel", "connection_index", "source_rank", "destination_rank")
_TYPES = {"pid": pa.int64(), "thread": pa.int64()}

Unwrapped = Callable[[str, int, int], LogLine]
Asked = Callable[[str], list[int] | None]
Head = tuple[str, int | None, str | None]
"""Host, rank, rank label."""


class ConnectionRuns:
    """Reads runs for one engine. `unwrapped` takes prefixes off, `asked` tells whether a text concerns any recogniser."""

    def __init__(self, recognizers: Sequence[Recognizer], unwrapped: Unwrapped, asked: Asked) -> None:
        self.wanted = any(isinstance(one, NcclLines) for one in recognizers)
        self._unwrapped, self._asked = unwrapped, asked
        self._heads: dict[bytes, Head | None] = {}
        self._found: list[tuple[bytes | None, ...]] = []
        self._lines: list[int] = []
        self._attempts: list[int] = []

    @property
    def full(self) -> bool:
        """Whether a piece should be closed."""
        return len(self._found) >= PIECE_ROWS

    def take(self, data: bytes, at: int, number: int, context: Context) -> tuple[int, int]:
        """Read the run that begins at byte `at`, line `number` + 1; the byte after it and how many lines it has."""
        match, heads, before = _LINE.match, self._heads, len(self._found)
        while len(self._found) - before < LONGEST_RUN and (found := match(data, at)):
            if not (heads[found[1]] if found[1] in heads else self._learned(found[1], found[0])):
                break
            self._found.append(found.groups())
            at = found.end()
        lines = len(self._found) - before
        self._lines += range(number + 1, number + 1 + lines)
        self._attempts += [context.run_index] * lines
        return at, lines

    def table(self, file_rank: int | None) -> dict[str, pa.Table]:
        """What was read since the last time, as rows of `nccl_connections`."""
        if not self._found:
            return {}
        head, pid, thread, device, channel, index, source, destination, direction, transport = zip(*self._found, strict=True)
        known = [self._heads[one] or ("", None, None) for one in head]
        ranks = [file_rank if rank is None else rank for _, rank, _ in known]
        via = [one.decode().partition(" comm ") for one in transport]
        columns = {
            "run_index": pa.array(self._attempts, pa.int32()), "line": pa.array(self._lines, pa.int64()), "rank": pa.array(ranks, pa.int32()),
            "rank_label": _text([None if rank is not None else label for rank, (_, _, label) in zip(ranks, known, strict=True)]),
            "host": _text([host for host, _, _ in known]), "communicator": _text([named.partition(" ")[0] or None for _, _, named in via]),
            "direction": _text([None if one is None else one.decode() for one in direction]), "transport": _text([one for one, _, _ in via]),
            **{name: _numbers(values, _TYPES.get(name, pa.int32())) for name, values in zip(
                _NUMBERS, (pid, thread, device, channel, index, source, destination), strict=True)}}
        self._found, self._lines, self._attempts = [], [], []
        return {"nccl_connections": pa.table(columns)}

    def _learned(self, head: bytes, whole: bytes) -> Head | None:
        """The prefix and host of a line, by the general way; None where a prefix is not taken off whole or its text is a record's."""
        if len(self._heads) >= MOST_HEADS or not head.isascii():
            return None
        line = self._unwrapped(whole.decode("utf-8", "replace").rstrip("\r\n"), 0, 0)
        host = line.text.partition(":")[0]
        fits = head.decode().endswith(host) and re.fullmatch(r"[\w.-]+", host) is not None and line.at is None and self._asked(head.decode()) is None
        self._heads[head] = (host, line.rank, line.rank_label) if fits else None
        return self._heads[head]


def _text(values: Sequence[str | None]) -> pa.DictionaryArray:
    return pa.array(values, pa.string()).dictionary_encode()


def _numbers(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    absent = np.fromiter((one is None for one in values), bool, len(values))
    return pa.array(np.array([one or b"0" for one in values]).astype(np.int64), mask=absent).cast(kind)
