"""From the unpickled objects of a snapshot to its columns; what is not as declared is refused in one sentence, never guessed.

The walk has a fixed depth (no recursion into what a file nests) and works on whole columns of values, because a million
events as rows would take ten times as long. Accepted shapes: the dictionary of `_dump_snapshot`, and the bare list of segments of
`torch.cuda.memory_snapshot()`. Source of the fields: docs/formats.md.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.parsers.snapshot.columns import ACTIONS, ANNOTATIONS, BLOCKS, EVENTS, SEGMENTS, STATES, SnapshotColumns
from ingest.parsers.snapshot.limits import damaged, no_snapshot
from ingest.parsers.snapshot.stacks import Stacks
from ingest.parsers.snapshot.texts import Kinds, Texts
from ingest.parsers.snapshot.values import Rows, int64, listed, many, plain

Object = dict[Any, Any]

_TOP = ("segments", "device_traces", "allocator_settings", "external_annotations")
_EVENT = frozenset(("action", "addr", "device_free", "size", "stream", "time_us", "compile_context", "user_metadata", "pool_id", "frames"))
_SEGMENT = frozenset(("device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
                      "segment_pool_id", "is_expandable", "frames", "blocks"))
_BLOCK = frozenset(("address", "size", "requested_size", "state", "frames", "history"))
_ANNOTATION = frozenset(("stage", "name", "device", "time_us"))
_SAME_STATE = {"active_awaiting_free": "active_pending_free"}  # the name in torch's documentation, which its code does not write
_INACTIVE = STATES.index("inactive")


def assemble(top: Any, file_bytes: int) -> SnapshotColumns:
    """The columns of an unpickled snapshot. Raises `LedgerError` where it is none."""
    if type(top) is list and all(type(one) is dict and "blocks" in one for one in top):
        top = {"segments": top}
    if type(top) is not dict or not any(type(top.get(key)) is list for key in _TOP[:2]):
        raise no_snapshot(f"is a pickle but no memory snapshot: a {type(top).__name__} without lists `segments` or `device_traces`")
    return _Assembly(top).columns(file_bytes)


class _Assembly:
    """One snapshot under way: the texts, stacks and counts that its tables share."""

    def __init__(self, top: Object) -> None:
        self._top = top
        self._unknown: Counter[str] = Counter()
        self._texts = Texts()
        self._stacks = Stacks(self._texts, self._unknown)
        self._actions = Kinds("action", ACTIONS, self._unknown)
        self._states = Kinds("block state", STATES, self._unknown, _SAME_STATE)

    def columns(self, file_bytes: int) -> SnapshotColumns:
        self._unknown.update(f"top key {many(key)}" for key in self._top if key not in _TOP)
        segments, blocks = self._segments(listed(self._top, "segments"))
        traces = listed(self._top, "device_traces")
        events = [self._events(device, listed({"trace": trace}, "trace")) for device, trace in enumerate(traces)]
        annotations = self._annotations(listed(self._top, "external_annotations"))
        settings = plain(self._top.get("allocator_settings", {}), "setting", self._unknown)
        return SnapshotColumns(
            "python", file_bytes, len(traces), pa.concat_tables([EVENTS.empty_table(), *events]), segments, blocks, annotations,
            self._stacks.table(), self._stacks.frames(), self._texts.array(), self._actions.names, self._states.names, settings,
            {kind: count for kind, count in self._unknown.items() if count})

    def _events(self, device: int, trace: list[Any]) -> pa.Table:
        if not trace:
            return EVENTS.empty_table()
        rows = Rows(trace, f"event of device {device}", "event key", _EVENT, self._unknown)
        action = self._actions.indexes(rows.values("action"))
        known = np.asarray(action) < len(ACTIONS)
        oom = np.asarray(action) == ACTIONS.index("oom")
        address = rows.numbers("addr", wrap=True, fill=0, due=known & ~oom)
        if oom.any():
            address = np.where(oom, rows.numbers("device_free", fill=0, due=oom), address)
        return _table(EVENTS, [
            pa.array(np.full(len(trace), device, np.int32)), pa.array(action, pa.int16()), address, rows.numbers("size", fill=0, due=known, least=0),
            rows.numbers("stream", wrap=True, fill=0), rows.nullable("time_us"), self._stacks.indexes(rows.values("frames")),
            self._texts.pools(rows.values("pool_id")), self._texts.indexes(rows.texts("user_metadata"), ("",)),
            self._texts.indexes(rows.texts("compile_context"), ("", "N/A")),
        ])

    def _segments(self, segments: list[Any]) -> tuple[pa.Table, pa.Table]:
        rows = Rows(segments, "segment", "segment key", _SEGMENT, self._unknown)
        blocks = [listed(one, "blocks") for one in segments]
        counts = np.fromiter(map(len, blocks), np.int64, len(blocks))
        address = rows.numbers("address", wrap=True)
        of_segment = np.repeat(np.arange(len(segments)), counts)
        block_table, held = self._blocks([block for some in blocks for block in some], of_segment, counts, address)
        stacks = self._stacks.indexes(rows.values("frames"))
        size = np.asarray(block_table["size_bytes"])
        summed = {
            "allocated_size": np.where(held == 0, size, 0), "active_size": np.where(held != _INACTIVE, size, 0),
            "requested_size": np.where(held != _INACTIVE, np.asarray(block_table["requested_bytes"]), 0)}
        totals = [rows.numbers(key, least=0, default=_sums(values, of_segment, len(segments))) for key, values in summed.items()]
        table = _table(SEGMENTS, [
            rows.numbers("device", least=0, most=2**31 - 1), address, rows.numbers("total_size", least=0), *totals,
            rows.numbers("stream", wrap=True, fill=0), self._texts.indexes(rows.texts("segment_type")),
            self._texts.pools(rows.values("segment_pool_id")), rows.flags("is_expandable"), stacks])
        return table, block_table

    def _blocks(self, blocks: list[Any], of_segment: Any, counts: Any, starts: Any) -> tuple[pa.Table, Any]:
        rows = Rows(blocks, "block", "block key", _BLOCK, self._unknown)
        size = rows.numbers("size", least=0)
        state = np.asarray(self._states.indexes(rows.values("state")), np.int16)
        before = np.cumsum(size) - size
        running = before - np.repeat(before[np.minimum(np.cumsum(counts) - counts, max(len(size) - 1, 0))], counts) if len(size) else size
        address = rows.numbers("address", wrap=True, default=starts[of_segment] + running)
        held = [{} if state[row] == _INACTIVE else _latest(block) for row, block in enumerate(blocks)]
        history = np.asarray([int64(one.get("real_size", 0), "a block's history has a `real_size`") for one in held], np.int64)
        requested = rows.numbers("requested_size", least=0, default=history)
        frames = [held[row].get("frames") if one is None else one for row, one in enumerate(rows.values("frames"))]
        return _table(BLOCKS, [of_segment, address, size, requested, state, self._stacks.indexes(frames)]), state

    def _annotations(self, annotations: list[Any]) -> pa.Table:
        rows = Rows(annotations, "annotation", "annotation key", _ANNOTATION, self._unknown)
        return _table(ANNOTATIONS, [
            rows.numbers("device", least=0, most=2**31 - 1), self._texts.indexes(rows.texts("stage")), self._texts.indexes(rows.texts("name")),
            rows.nullable("time_us")])


def _latest(block: Object) -> Object:
    """The newest entry of a block's history (torch 2.0 and before); an empty one where there is none."""
    history = listed(block, "history")
    if history and type(history[0]) is not dict:
        raise damaged("a block's history holds something else than dictionaries")
    return history[0] if history else {}


def _sums(values: Any, groups: Any, count: int) -> Any:
    total = np.zeros(count, np.int64)
    np.add.at(total, groups, values)
    return total


def _table(schema: pa.Schema, columns: list[Any]) -> pa.Table:
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    return pa.Table.from_arrays([array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema)
