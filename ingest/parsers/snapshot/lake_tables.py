"""The columns of a snapshot as tables of the lake.

A million events are never rows of Python: codes become dictionary-encoded texts, the rank and other constants dictionaries of one entry. Stacks
are numbered within their snapshot; `artifact` and `stack` together name one in the lake.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.parsers.base import Row
from ingest.parsers.snapshot.columns import SnapshotColumns
from ingest.parsers.snapshot.filenames import Told
from ingest.parsers.snapshot.peaks import peaks

_DEFAULT_POOL = "0,0"


def summary_rows(columns: SnapshotColumns, path: str, told: Told) -> dict[str, list[Row]]:
    """One row for the snapshot and one for each device of it."""
    who = {"rank": told.rank, "rank_label": told.rank_label}
    unknown = {f"unknown {kind}": str(count) for kind, count in columns.unknown.items()}
    snapshot = {**who, "iteration": told.iteration, "path": path, "trigger": told.trigger or _trigger(columns), "reader": columns.reader,
                "allocator_settings": json.dumps(columns.settings, ensure_ascii=False), "file_bytes": columns.file_bytes, "other": unknown or None}
    devices = [{**who, **asdict(one)} for one in peaks(columns)]
    return {"snapshots": [snapshot], "snapshot_devices": devices}


def detail_tables(columns: SnapshotColumns, told: Told, detail: str) -> dict[str, pa.Table]:
    """Segments, annotations and stacks; with `full` detail events and blocks as well."""
    tables = {"snapshot_segments": _segments(columns, told), "snapshot_annotations": _annotations(columns, told)}
    if detail == "full":
        tables |= {"snapshot_events": _events(columns, told), "snapshot_blocks": _blocks(columns, told), "snapshot_stacks": _stacks(columns)}
    return {name: table for name, table in tables.items() if table.num_rows}


def _trigger(columns: SnapshotColumns) -> str | None:
    """Out of memory where the last event of a device is that: the observer writes the snapshot then and there."""
    device, action = np.asarray(columns.events["device"]), np.asarray(columns.events["action"])
    last = np.flatnonzero(np.append(device[1:] != device[:-1], True)) if len(device) else device
    return "oom" if any(columns.actions[code] == "oom" for code in action[last]) else None


def _events(columns: SnapshotColumns, told: Told) -> pa.Table:
    events = columns.events
    device = np.asarray(events["device"])
    first = np.searchsorted(device, device) if len(device) else device
    return _with_rank(told, {
        "device": events["device"], "event": pa.array(np.arange(len(device), dtype=np.int64) - first),
        "action": _named(events["action"], columns.actions),
        **{name: events[name] for name in ("address", "size_bytes", "stream", "time_us")}, "stack": events["stack"].cast(pa.int64())})


def _blocks(columns: SnapshotColumns, told: Told) -> pa.Table:
    blocks, segment = columns.blocks, columns.blocks["segment"]
    return _with_rank(told, {
        "device": columns.segments["device"].take(segment), "segment": columns.segments["address"].take(segment),
        **{name: blocks[name] for name in ("address", "size_bytes", "requested_bytes")}, "state": _named(blocks["state"], columns.states),
        "stack": blocks["stack"].cast(pa.int64())})


def _segments(columns: SnapshotColumns, told: Told) -> pa.Table:
    segments, texts = columns.segments, columns.texts
    kinds, pools = (texts.take(segments[name].combine_chunks()).to_pylist() for name in ("kind", "pool"))
    pool = [" ".join(filter(None, (kind, id if id != _DEFAULT_POOL else None))) or None for kind, id in zip(kinds, pools, strict=True)]
    return _with_rank(told, {
        **{name: segments[name] for name in ("device", "address", "size_bytes", "allocated_bytes", "active_bytes", "stream")},
        "pool": pa.array(pool, pa.string()), "expandable": segments["expandable"]})


def _annotations(columns: SnapshotColumns, told: Told) -> pa.Table:
    annotations, texts = columns.annotations, columns.texts
    stages = texts.take(annotations["stage"].combine_chunks()).to_pylist()
    return _with_rank(told, {
        "device": annotations["device"], "name": texts.take(annotations["name"].combine_chunks()),
        "stage": pa.array([stage and stage.lower() for stage in stages], pa.string()), "time_us": annotations["time_us"]})


def _stacks(columns: SnapshotColumns) -> pa.Table:
    """Frames as `file:line function`, innermost first."""
    texts = columns.texts.to_pylist()
    frames = pa.array([_frame(frame, texts) for frame in columns.frames.to_pylist()], pa.string())
    lists = columns.stacks["frames"].combine_chunks()
    return pa.table({"stack": pa.array(np.arange(len(lists), dtype=np.int64)),
                     "frames": pa.ListArray.from_arrays(lists.offsets, frames.take(lists.values))})


def _frame(frame: dict[str, Any], texts: list[str]) -> str:
    name, file = (texts[frame[key]] if frame[key] is not None else "??" for key in ("name", "filename"))
    return f"{file}:{'?' if frame['line'] is None else frame['line']} {name}"


def _named(codes: pa.ChunkedArray, names: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(codes.combine_chunks(), pa.array(names, pa.string()))


def _with_rank(told: Told, columns: dict[str, Any]) -> pa.Table:
    count = len(next(iter(columns.values())))
    label = pa.nulls(count, pa.string()) if told.rank_label is None else pa.DictionaryArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int8()), count), pa.array([told.rank_label], pa.string()))
    return pa.table({"rank": pa.repeat(pa.scalar(told.rank, pa.int32()), count), "rank_label": label, **columns})
