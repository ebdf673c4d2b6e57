"""TensorBoard event files without TensorFlow: memory scalars of the last rank.

An event file is a row of records, each a length, its masked CRC-32C, the bytes of one `Event` message and their CRC. Only the wire format of the five
fields that a scalar needs is read here; a generated protobuf class would bring a dependency for that. A record whose CRC is wrong
is rejected, and reading goes on at the next byte where a length with its right CRC stands. Scalars of one step are one row.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

from ingest.parsers.base import PIECE_ROWS, Piece, Row
from ingest.parsers.names import rank_of
from ingest.parsers.scalars import Step, moment

LARGEST_RECORD_BYTES = 64 * 2**20
READ_BYTES = 1 << 20
_MEMORY = (b"mem", b"Mem", b"MEM")
_HEADER = struct.Struct("<QI")


class TensorBoard:
    """The parser; see `Parser` for what is promised."""

    name = "tensorboard"
    version = 1

    def matches(self, head: bytes, path: str) -> bool:
        """Whether the file begins with a record whose length has the right CRC and that tells the version of the format."""
        return len(head) >= 16 and _length(head, 0) is not None and b"brain.Event:" in head[12:64]

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """Pieces that end where a step's scalars are all read."""
        reader = _Reader(start, rank_of(path))
        buffer, offset = b"", start
        while block := stream.read(READ_BYTES):
            buffer += block
            used = reader.take(buffer, offset, last=False)
            buffer, offset = buffer[used:], offset + used
            if len(reader.rows) + len(reader.rejects) >= PIECE_ROWS:
                yield reader.piece()
        if final:
            used = reader.take(buffer, offset, last=True)
            reader.close(offset + len(buffer))
        yield reader.piece()


class _Reader:
    """Bytes in, rows of closed steps out; `end` is where the open step begins."""

    def __init__(self, start: int, rank: int | None) -> None:
        self.end, self.rank = start, rank
        self.rows: list[Row] = []
        self.rejects: list[Row] = []
        self.open: Step | None = None
        self.waiting: list[Row] = []

    def take(self, data: bytes, offset: int, *, last: bool) -> int:
        """Read whole records; how many bytes are used."""
        at = 0
        while len(data) - at >= 12:
            size = _length(data, at)
            if size is None:
                step = _next_header(data, at + 1)
                if step is None and not last and len(data) - at < LARGEST_RECORD_BYTES:
                    break
                self._reject(offset + at, data[at:step], "bytes that are no record")
                at = len(data) if step is None else step
                continue
            if len(data) - at < size + 16:
                break
            self._event(data[at + 12:at + 12 + size], data[at + 12 + size:at + 16 + size], offset + at)
            at += size + 16
        return at

    def close(self, end: int) -> None:
        """The file ended."""
        self._flush()
        self.end = end

    def piece(self) -> Piece:
        """What is closed."""
        rows = {name: found for name, found in (("rank_memory", self.rows), ("rejects", self.rejects)) if found}
        self.rows, self.rejects = [], []
        return Piece(rows, self.end, json.dumps(None))

    def _event(self, data: bytes, check: bytes, offset: int) -> None:
        if not any(word in data for word in _MEMORY):
            if self.open is None:
                self.end = offset + len(data) + 16
            return
        if masked_crc(data) != int.from_bytes(check, "little"):
            self._reject(offset, data, "a record whose check sum is wrong")
            return
        try:
            seconds, step, values = _event(data)
        except ValueError as error:
            self._reject(offset, data, f"a record that is no event: {error}")
            return
        for tag, value in values:
            if self.open is None or self.open.step != step:
                self._flush()
                self.end = offset
                self.open = Step(step, self.rank, None)
            if self.open.add(tag, value, single=True):
                self.open.at = moment(seconds)

    def _flush(self) -> None:
        row = self.open.row("tensorboard") if self.open else None
        self.rows += [row] if row else []
        self.rejects += self.waiting
        self.open, self.waiting = None, []

    def _reject(self, offset: int, data: bytes, reason: str) -> None:
        """A reject inside an open step waits with it: the step is read again when the file has grown."""
        row: Row = {"run_index": 0, "line": None, "offset_bytes": offset, "text": data[:200].decode("utf-8", "replace"), "reason": reason}
        if self.open is None:
            self.rejects.append(row)
            self.end = offset + len(data)
        else:
            self.waiting.append(row)


def _length(data: bytes, at: int) -> int | None:
    """The size of the record whose header stands at `at`; None where its check sum is wrong or it is too large."""
    size, check = _HEADER.unpack_from(data, at)
    return int(size) if size <= LARGEST_RECORD_BYTES and masked_crc(data[at:at + 8]) == check else None


def _next_header(data: bytes, start: int) -> int | None:
    for at in range(start, len(data) - 11):
        if not any(data[at + 4:at + 8]) and _length(data, at) is not None:
            return at
    return None


def masked_crc(data: bytes) -> int:
    """CRC-32C (Castagnoli), rotated and offset as TFRecord does."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def _event(data: bytes) -> tuple[float, int, list[tuple[str, float]]]:
    """(wall time, step, scalars) of an `Event`. Raises ValueError where the wire format is broken."""
    seconds, step, values = 0.0, 0, []
    for number, kind, value in _fields(data):
        if (number, kind) == (1, 1):
            seconds = struct.unpack("<d", value)[0]
        elif (number, kind) == (2, 0):
            step = int.from_bytes(value, "little", signed=True)
        elif (number, kind) == (5, 2):
            values += [scalar for one, wire, inner in _fields(value) if (one, wire) == (1, 2) and (scalar := _scalar(inner))]
    return seconds, step, values


def _scalar(data: bytes) -> tuple[str, float] | None:
    """Tag and value of a `Summary.Value`: a plain float, or a tensor of one float (TensorFlow 2)."""
    tag, figure = None, None
    for number, kind, value in _fields(data):
        if (number, kind) == (1, 2):
            tag = value.decode("utf-8", "replace")
        elif (number, kind) == (2, 5):
            figure = struct.unpack("<f", value)[0]
        elif (number, kind) == (8, 2):
            figure = _tensor(value)
    return None if tag is None or figure is None else (tag, figure)


def _tensor(data: bytes) -> float | None:
    found = None
    for number, kind, value in _fields(data):
        if (number in (4, 5) and kind == 2 and len(value) == 4) or (number, kind) == (5, 5):
            found = struct.unpack("<f", value)[0]
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, wire type, bytes) of each field; a varint as eight bytes. Raises ValueError where the message is cut or malformed."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, kind, (value & (1 << 64) - 1).to_bytes(8, "little")
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("a field is cut")
        yield number, kind, data[at:at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("a number is cut")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("a number is too long")


TENSORBOARD = TensorBoard()
