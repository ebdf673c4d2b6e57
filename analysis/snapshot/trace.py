"""The shape the analysis of a snapshot works on: numpy columns of one device, stacks as texts.

Two sources give it: the columns of a reader (`from_columns`) and the tables of the lake (`stored.from_lake`). Streams and addresses
are the int64 of the same 64 bits. A stack of -1 is an entry without `frames`; a stack of no frames is a stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from ingest.parsers.snapshot.columns import SnapshotColumns

Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


class Action(IntEnum):
    """What an event does, by the file's own name in lower case; an action of any other name is `OTHER` and moves no level."""

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    OOM = 7
    SNAPSHOT = 8
    OTHER = 9


ACTIONS = {action.name.lower(): action for action in Action if action is not Action.OTHER}

LIVE, PENDING, INACTIVE = range(3)
STATES = {"active_allocated": LIVE, "active_pending_free": PENDING, "active_awaiting_free": PENDING, "inactive": INACTIVE}

NO_STACK = -1
LARGEST = 2**46
"""Bytes that no device has: a size beyond, or below zero, is brought within and counted, so that no sum overflows."""


@dataclass(frozen=True, slots=True)
class Events:
    """The trace in the allocator's order. `size` is the requested size in bytes; `time_us` is null where torch wrote none."""

    action: Small
    address: Ints
    size: Ints
    stream: Ints
    stack: Small
    time_us: Ints | None
    other: Mapping[str, int] = field(default_factory=dict)  # actions of other names, and how many
    impossible: int = 0  # sizes that cannot be

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True, slots=True)
class Segments:
    """What the device's allocator holds at the end. `pool` is "0,0" for the default pool; `kind` is small or large."""

    address: Ints
    size: Ints
    stream: Ints
    kind: tuple[str, ...]
    pool: tuple[str, ...]
    expandable: Flags
    stack: Small

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of the segments at the end, by address; `segment` is a row of `Segments`."""

    segment: Small
    address: Ints
    size: Ints
    requested: Ints
    state: Small
    stack: Small


@dataclass(frozen=True, slots=True)
class Annotation:
    """One end of a named range: `stage` is START or END."""

    name: str
    stage: str
    time_us: int | None


@dataclass(frozen=True, slots=True)
class Trace:
    """One device of a snapshot."""

    device: int
    events: Events
    segments: Segments
    blocks: Blocks
    annotations: tuple[Annotation, ...] = ()

    def held(self, state: int) -> Flags:
        """Which blocks are in this state."""
        held: Flags = self.blocks.state == state
        return held


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One file. `stacks` are frames as `file:line function`, innermost first; `settings` are the allocator's."""

    devices: tuple[Trace, ...]
    stacks: tuple[tuple[str, ...], ...]
    settings: Mapping[str, Any]
    unknown: Mapping[str, int] = field(default_factory=dict)
    reader: str = ""
    file_bytes: int = 0


def from_columns(columns: SnapshotColumns) -> Snapshot:
    """A reader's columns as a snapshot, devices in order, those with neither event nor segment left out."""
    texts = columns.texts.to_pylist()
    of_segment = ints(columns.segments["device"])
    of_block = of_segment[ints(columns.blocks["segment"])] if len(columns.blocks) else of_segment[:0]
    of_event = ints(columns.events["device"])
    devices = sorted({*np.unique(of_segment).tolist(), *np.unique(of_event).tolist()})
    traces = []
    for device in devices:
        events = columns.events if len(devices) == 1 else columns.events.filter(pa.array(of_event == device))
        rows = np.flatnonzero(of_segment == device)
        segments = columns.segments.take(pa.array(rows))
        blocks = columns.blocks.filter(pa.array(of_block == device))
        local = np.full(len(of_segment), -1, np.int64)
        local[rows] = np.arange(len(rows))
        traces.append(Trace(
            device=int(device), events=_events(events, columns.actions), segments=_segments(segments, texts),
            blocks=_blocks(blocks, local, columns.states), annotations=_annotations(columns.annotations, device, texts)))
    return Snapshot(tuple(traces), _stacks(columns, texts), dict(columns.settings), dict(columns.unknown), columns.reader, columns.file_bytes)


def ints(column: pa.ChunkedArray | pa.Array, absent: int = -1) -> Ints:
    """An integer column as int64, null as `absent`."""
    filled = pc.fill_null(column, pa.scalar(absent, column.type)) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy()).astype(np.int64, copy=False)


def sizes(column: pa.ChunkedArray | pa.Array) -> Ints:
    """A column of bytes within what can be, null as 0."""
    return np.clip(ints(column, 0), 0, LARGEST)


def addresses(column: pa.ChunkedArray | pa.Array) -> Ints:
    """A column of addresses that any size can be added to."""
    return np.clip(ints(column), -2**62, 2**62)


def out_of_range(column: pa.ChunkedArray | pa.Array) -> int:
    """How many of a column of bytes cannot be."""
    size = ints(column, 0)
    return int(((size < 0) | (size > LARGEST)).sum())


def action_codes(names: Sequence[str]) -> Small:
    """The code of each name of an action, `OTHER` for those that are not known."""
    return np.array([ACTIONS.get(name, Action.OTHER) for name in names], np.int32)


def state_codes(names: Sequence[str]) -> Small:
    """The code of each name of a block state; an unknown one that begins with `active` holds bytes."""
    return np.array([STATES.get(name, PENDING if name.startswith("active") else INACTIVE) for name in names], np.int32)


def counted(names: Sequence[str], codes: Ints) -> dict[str, int]:
    """How often each name occurs, those that do not left out."""
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts, strict=False) if count}


def _events(table: pa.Table, names: Sequence[str]) -> Events:
    codes = ints(table["action"])
    times = table["time_us"]
    lookup = np.append(action_codes(names), np.int32(Action.OTHER)).astype(np.int32)
    return Events(action=lookup[codes], address=addresses(table["address"]), size=sizes(table["size_bytes"]), stream=ints(table["stream"], 0),
                  impossible=out_of_range(table["size_bytes"]), stack=ints(table["stack"]).astype(np.int32),
                  time_us=None if times.null_count == len(times) else ints(times, 0),
                  other={name: count for name, count in counted(names, codes).items() if name not in ACTIONS})


def _segments(table: pa.Table, texts: list[str]) -> Segments:
    def text(column: str, absent: str) -> tuple[str, ...]:
        return tuple(absent if index is None else texts[index] for index in table[column].to_pylist())

    return Segments(address=addresses(table["address"]), size=sizes(table["size_bytes"]), stream=ints(table["stream"], 0), kind=text("kind", "large"),
                    pool=text("pool", "0,0"), expandable=np.array([bool(one) for one in table["expandable"].to_pylist()], np.bool_),
                    stack=ints(table["stack"]).astype(np.int32))


def _blocks(table: pa.Table, local: Ints, names: Sequence[str]) -> Blocks:
    lookup = np.append(state_codes(names), np.int32(INACTIVE)).astype(np.int32)
    return Blocks(segment=local[ints(table["segment"])].astype(np.int32), address=addresses(table["address"]), size=sizes(table["size_bytes"]),
                  requested=sizes(table["requested_bytes"]), state=lookup[ints(table["state"])], stack=ints(table["stack"]).astype(np.int32))


def _annotations(table: pa.Table, device: int, texts: list[str]) -> tuple[Annotation, ...]:
    """Those of the device, and those that name none."""
    return tuple(Annotation(texts[row["name"]] if row["name"] is not None else "", texts[row["stage"]] if row["stage"] is not None else "",
                            row["time_us"]) for row in table.to_pylist() if row["device"] is None or row["device"] in (device, -1))


def _stacks(columns: SnapshotColumns, texts: list[str]) -> tuple[tuple[str, ...], ...]:
    def text(index: int | None) -> str:
        return "??" if index is None else texts[index]

    frames = [f"{text(row['filename'])}:{row['line'] or 0} {text(row['name'])}" for row in columns.frames.to_pylist()]
    return tuple(tuple(frames[frame] for frame in stack or ()) for stack in columns.stacks["frames"].to_pylist())
