"""Snapshot reader (b), compiled: a reader of opcodes in C that writes columns, about twenty times as fast as building Python objects.

`ingest/native/snapshot_scan.c` does the work; here its columns become Arrow tables without a copy. It gives what the Python reader gives,
column for column, and refuses more: opcodes that no writer of snapshots uses (POP, DUP, the old texts and numbers in lines, bytes, sets),
memo ids beyond the number of opcodes read, dictionaries whose keys are neither texts nor small numbers, an event that is changed after it
was filled, has a key that is no text or is used as something else than an event of a trace, a `device_free` that is no number, and files
that name the same lists so often that there is more to look at than sixteen values for each byte.
"""

from __future__ import annotations

import ctypes
import mmap
import pickletools
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ingest import native
from ingest.errors import LedgerError
from ingest.parsers.snapshot.columns import ACTIONS, ANNOTATIONS, BLOCKS, EVENTS, FRAMES, SEGMENTS, STACKS, STATES, SnapshotColumns
from ingest.parsers.snapshot.limits import ReadLimits, damaged, hostile, no_snapshot, too_large
from ingest.parsers.snapshot.pickled import PROTOCOLS
from ingest.parsers.snapshot.source import Bytes
from ingest.parsers.snapshot.values import counted, many, plain

_SECTIONS = ("top key", "event key", "segment key", "block key", "annotation key", "frame key", "action", "block state")
_DAMAGED, _HOSTILE, _SHAPE, _SIZE = 1, 2, 3, 4
_NONE, _FALSE, _TRUE, _SMALL, _POSITIVE, _NEGATIVE, _HUGE, _FLOAT, _TEXT, _TUPLE, _LIST, _DICT = range(1, 13)
_MOST_SETTINGS, _DEPTH = 10_000, 6
_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}


class _Column(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("valid", ctypes.c_void_p), ("nulls", ctypes.c_int64))


class _Unknown(ctypes.Structure):
    _fields_ = (("section", ctypes.c_int32), ("text", ctypes.c_int32), ("count", ctypes.c_int64))


_COUNTS = ("devices", "events_", "segments_", "blocks_", "annotations_", "stacks_", "stacked_frames", "frames_", "texts_", "letters_",
           "unknowns_", "actions_", "states_")


class _Result(ctypes.Structure):
    """`result` of snapshot_export.h."""

    _fields_ = (
        ("failed", ctypes.c_int64), ("failed_at", ctypes.c_int64), ("reason", ctypes.c_char_p), *((name, ctypes.c_int64) for name in _COUNTS),
        ("settings", ctypes.c_uint64), ("events", _Column * len(EVENTS)), ("segments", _Column * len(SEGMENTS)), ("blocks", _Column * len(BLOCKS)),
        ("annotations", _Column * len(ANNOTATIONS)), ("frames", _Column * len(FRAMES)), ("stack_offsets", ctypes.c_void_p),
        ("stack_frames", ctypes.c_void_p), ("text_offsets", ctypes.c_void_p), ("text_letters", ctypes.c_void_p),
        ("unknowns", ctypes.POINTER(_Unknown)), ("actions", ctypes.POINTER(ctypes.c_int32)), ("states", ctypes.POINTER(ctypes.c_int32)))


def available() -> bool:
    """Whether the library was built."""
    return native.library("snapshot_scan") is not None


def read(data: Bytes, limits: ReadLimits) -> SnapshotColumns:
    """Read a whole pickle. Raises `LedgerError` for one that names code, is damaged, is no snapshot or is larger than `limits` allow."""
    if len(data) > limits.file_bytes:
        raise too_large(f"holds {len(data):,} bytes of pickle, more than the {limits.file_bytes:,} that may be read")
    if len(data) < 2 or data[0] != 0x80 or data[1] not in PROTOCOLS:
        raise damaged("does not begin as a pickle of protocol 2 to 5", 0)
    scan = _Scan(data, limits)
    if scan.result.failed:
        raise _refusal(scan.result, data)
    return scan.columns(len(data))


def _refusal(result: _Result, data: Bytes) -> LedgerError:
    at = result.failed_at if result.failed_at >= 0 else None
    reason = result.reason.decode("utf-8", "replace")
    if result.failed == _HOSTILE and not reason:
        name = _NAMES.get(data[result.failed_at])
        if name is None:
            return damaged("is no whole pickle: an instruction that does not exist", at)
        return hostile(f"is a pickle with an instruction that no snapshot has, nothing was executed: {name}", at)
    if result.failed == _SHAPE:
        return no_snapshot(reason)
    return {_HOSTILE: hostile, _DAMAGED: damaged}[result.failed](reason, at) if result.failed != _SIZE else too_large(reason)


class _Scan:
    """A finished scan and the memory of its columns, which lives as long as a column does."""

    def __init__(self, data: Bytes, limits: ReadLimits) -> None:
        self._library = _library()
        source = pa.py_buffer(data)
        # Pages of a file mapped for reading come back when they are asked for again, those of other memory would be lost.
        mapped = isinstance(data, mmap.mmap) and memoryview(data).readonly
        self._scan = self._library.snapshot_read(source.address, len(data), limits.memory_bytes, mapped)
        if not self._scan:
            raise MemoryError
        self.result: _Result = self._library.snapshot_result(self._scan).contents

    def __del__(self) -> None:
        if getattr(self, "_scan", None):
            self._library.snapshot_free(self._scan)

    def columns(self, file_bytes: int) -> SnapshotColumns:
        """Everything as Arrow, and the counts of what was not understood."""
        result, unknown = self.result, Counter[str]()
        for one in result.unknowns[: result.unknowns_]:
            if one.section < len(_SECTIONS):
                counted(unknown, f"{_SECTIONS[one.section]} {self._name(one.text)}", one.count)
        settings = plain(self._object(result.settings), "setting", unknown) if result.settings else {}
        for one in result.unknowns[: result.unknowns_]:
            if one.section == len(_SECTIONS):
                unknown["others" if one.text >= 0 else "bytes after the end"] += one.count
        return SnapshotColumns(
            "compiled", file_bytes, result.devices, self._table("events", EVENTS), self._table("segments", SEGMENTS), self._table("blocks", BLOCKS),
            self._table("annotations", ANNOTATIONS), self._stacks(), self._table("frames", FRAMES), self._texts(),
            ACTIONS + tuple(self._text(at) for at in result.actions[: result.actions_]),
            STATES + tuple(self._text(at) for at in result.states[: result.states_]), settings, dict(unknown))

    def _table(self, name: str, schema: pa.Schema) -> pa.Table:
        rows = getattr(self.result, f"{name}_")
        return pa.Table.from_arrays([self._array(field.type, rows, column) for field, column in zip(schema, getattr(self.result, name), strict=True)],
                                    schema=schema)

    def _array(self, kind: pa.DataType, rows: int, column: _Column) -> pa.Array:
        valid = self._buffer(column.valid, (rows + 7) // 8) if column.nulls else None
        return pa.Array.from_buffers(kind, rows, [valid, self._buffer(column.data, (rows * kind.bit_width + 7) // 8)], column.nulls)

    def _stacks(self) -> pa.Table:
        result = self.result
        frames = pa.Array.from_buffers(pa.int32(), result.stacked_frames, [None, self._buffer(result.stack_frames, 4 * result.stacked_frames)])
        offsets = self._buffer(result.stack_offsets, 4 * (result.stacks_ + 1))
        return pa.table([pa.Array.from_buffers(STACKS.field(0).type, result.stacks_, [None, offsets], children=[frames])], schema=STACKS)

    def _texts(self) -> pa.Array:
        result = self.result
        offsets, letters = self._buffer(result.text_offsets, 4 * (result.texts_ + 1)), self._buffer(result.text_letters, result.letters_)
        return pa.Array.from_buffers(pa.string(), result.texts_, [None, offsets, letters])

    def _buffer(self, address: int | None, size: int) -> pa.Buffer:
        return pa.foreign_buffer(address, size, self) if address and size else pa.py_buffer(b"")

    def _text(self, at: int) -> str:
        length = ctypes.c_int64()
        letters = self._library.snapshot_text(self._scan, at, ctypes.byref(length))
        return ctypes.string_at(letters, length.value).decode("utf-8", "surrogatepass")

    def _name(self, at: int) -> str:
        return many(self._text(at) if at >= 0 else 0 if at == -1 else None)

    def _object(self, value: int) -> Any:
        """A value as Python has it, as deep as settings go; what lies deeper or is no plain value is an `object()`."""
        budget = iter(range(_MOST_SETTINGS))
        return self._built(value, _DEPTH, budget)

    def _built(self, value: int, depth: int, budget: Iterator[int]) -> Any:
        if next(budget, None) is None:
            raise damaged(f"has more than {_MOST_SETTINGS:,} values among its settings")
        content = ctypes.c_uint64()
        kind = self._library.snapshot_kind(self._scan, value, ctypes.byref(content))
        number: int = content.value
        if kind in (_NONE, _FALSE, _TRUE):
            return (None, False, True)[kind - _NONE]
        if kind in (_SMALL, _POSITIVE, _NEGATIVE):
            return -number if kind == _NEGATIVE else number - (number >> 63 << 64) if kind == _SMALL else number
        if kind == _FLOAT:
            return struct.unpack("d", struct.pack("Q", number))[0]
        if kind == _TEXT:
            return self._text(number)
        if kind == _HUGE or not depth:
            return object()
        items = [self._built(one, depth - 1, budget) for one in self._items(value)]
        return dict(zip(items[::2], items[1::2], strict=True)) if kind == _DICT else tuple(items) if kind == _TUPLE else items

    def _items(self, value: int) -> list[int]:
        count = ctypes.c_int64()
        items = self._library.snapshot_items(self._scan, value, ctypes.byref(count))
        if count.value < 0:
            raise damaged("uses an event of the trace as a setting")
        return list(items[: count.value])


def _library() -> ctypes.CDLL:
    library = native.library("snapshot_scan")
    if library is None:
        raise LedgerError("the compiled snapshot reader was not built", todo="install again with a C compiler, or use the python reader")
    pointer = ctypes.c_void_p
    library.snapshot_read.argtypes, library.snapshot_read.restype = (pointer, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int), pointer
    library.snapshot_result.argtypes, library.snapshot_result.restype = (pointer,), ctypes.POINTER(_Result)
    library.snapshot_kind.argtypes, library.snapshot_kind.restype = (pointer, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)), ctypes.c_int
    library.snapshot_items.argtypes = (pointer, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int64))
    library.snapshot_items.restype = ctypes.POINTER(ctypes.c_uint64)
    library.snapshot_text.argtypes, library.snapshot_text.restype = (pointer, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)), pointer
    library.snapshot_free.argtypes, library.snapshot_free.restype = (pointer,), None
    return library
