"""The one shape both snapshot readers give: a CUDA memory snapshot as Arrow columns, all devices in one set.

A snapshot of a million events is a few hundred megabytes of pickle and forty of columns; everything after the reader works on the
columns alone. Stacks and texts are stored once, by content. Source of the fields: `torch.cuda.memory._dump_snapshot` (see
docs/formats.md). Addresses and streams are unsigned 64-bit in the file and are kept as the int64 of the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot")
"""The known actions; `events.action` is an index into `SnapshotColumns.actions`, which begins with these."""

STATES = ("active_allocated", "active_pending_free", "inactive")
"""The known block states (`active_awaiting_free` is read as `active_pending_free`); others follow in `SnapshotColumns.states`."""

EVENTS = pa.schema([
    ("device", pa.int32()), ("action", pa.int16()), ("address", pa.int64()), ("size_bytes", pa.int64()), ("stream", pa.int64()),
    ("time_us", pa.int64()),   # null before torch 2.2
    ("stack", pa.int32()),     # null: the entry has no `frames`; an empty stack is a stack of no frames
    ("pool", pa.int32()),      # index into `texts` of the pool id ("0,1"), null where the entry has none
    ("metadata", pa.int32()),  # index into `texts`, null for '' or none
    ("context", pa.int32()),   # index into `texts` of compile_context, null for 'N/A', '' or none
])
"""One trace entry a row, in the order of the file within each device. `address` of an `oom` is its `device_free`; an entry of an unknown action
has 0 for an address, size or stream that it lacks."""

SEGMENTS = pa.schema([
    ("device", pa.int32()), ("address", pa.int64()), ("size_bytes", pa.int64()), ("allocated_bytes", pa.int64()), ("active_bytes", pa.int64()),
    ("requested_bytes", pa.int64()), ("stream", pa.int64()), ("kind", pa.int32()),  # index into `texts`: small or large
    ("pool", pa.int32()), ("expandable", pa.bool_()), ("stack", pa.int32()),
])
"""One segment a row; a count absent from the file (2.0 has no requested_size of segments) is summed from its blocks."""

BLOCKS = pa.schema([  # `stack` of 2.0 is that of history[0], null where the block is inactive
    ("segment", pa.int32()),  # row of SEGMENTS
    ("address", pa.int64()), ("size_bytes", pa.int64()),
    ("requested_bytes", pa.int64()),  # of an inactive block what the file says: the last request it served; without one (2.0) history[0].real_size
    ("state", pa.int16()), ("stack", pa.int32()),
])
ANNOTATIONS = pa.schema([("device", pa.int32()), ("stage", pa.int32()), ("name", pa.int32()), ("time_us", pa.int64())])  # texts
STACKS = pa.schema([("frames", pa.list_(pa.int32()))])  # rows of FRAMES, innermost first
FRAMES = pa.schema([("name", pa.int32()), ("filename", pa.int32()), ("line", pa.int64())])  # texts; distinct by content


@dataclass(frozen=True, slots=True)
class SnapshotColumns:
    """One snapshot. Indexes are rows of the table named; null is -1 in no column. `unknown` counts what was not understood, by kind."""

    reader: str  # python or compiled
    file_bytes: int  # of the pickle, after decompression
    devices: int  # entries of device_traces, 0 for a bare list of segments
    events: pa.Table
    segments: pa.Table
    blocks: pa.Table
    annotations: pa.Table
    stacks: pa.Table
    frames: pa.Table
    texts: pa.Array  # string, distinct
    actions: tuple[str, ...] = ACTIONS
    states: tuple[str, ...] = STATES
    settings: dict[str, Any] = field(default_factory=dict)  # allocator_settings, JSON values
    unknown: dict[str, int] = field(default_factory=dict)  # "event key forward_frames": 12, "action annotate": 3, "top key host_segments": 1
