"""End levels and exact peaks of each device of a snapshot, by the backward walk.

Levels and rounding are those of `ingest.trace_levels`; a forward walk from zero is wrong by up to 27 % on real files. Requested and rounded
sizes are never mixed: a trace holds requested ones only, so the rounded peak is an interval, exact for the blocks that live at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.parsers.snapshot.columns import ACTIONS, STATES, SnapshotColumns
from ingest.trace_levels import Ints, backward, rounded, unsplit

_ALLOC, _FREE_REQUESTED, _FREE_COMPLETED, _SEGMENT_ALLOC, _SEGMENT_FREE, _SEGMENT_MAP, _SEGMENT_UNMAP = range(7)
_PENDING, _INACTIVE = STATES.index("active_pending_free"), STATES.index("inactive")


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """One device, all in bytes. `requested` and the rounded interval are of what is active (allocated, or freed and pending on another stream).

    `peak_event` is the first event after which requested stood at its peak: -1 where that was before the trace.
    """

    device: int
    events: int
    end_requested_bytes: int
    end_allocated_bytes: int
    end_reserved_bytes: int
    peak_requested_bytes: int
    peak_allocated_low_bytes: int
    peak_allocated_high_bytes: int
    peak_reserved_bytes: int
    peak_event: int
    irregularities: dict[str, int]


def peaks(columns: SnapshotColumns) -> list[DevicePeaks]:
    """Every device with an event or a segment, in order."""
    of_event, of_segment = _ints(columns.events["device"]), _ints(columns.segments["device"])
    of_block = of_segment[_ints(columns.blocks["segment"])]
    found = []
    for device in sorted({*np.unique(of_event).tolist(), *np.unique(of_segment).tolist()}):
        found.append(_peaks(columns, device, columns.events.filter(pa.array(of_event == device)), columns.segments.filter(
            pa.array(of_segment == device)), columns.blocks.filter(pa.array(of_block == device))))
    return found


def _peaks(columns: SnapshotColumns, device: int, events: pa.Table, segments: pa.Table, blocks: pa.Table) -> DevicePeaks:
    action, size, address = _ints(events["action"]), _ints(events["size_bytes"]), _ints(events["address"])
    state, rounded_end, reserved_end = _ints(blocks["state"]), _ints(blocks["size_bytes"]), int(_ints(segments["size_bytes"]).sum())
    active = state != _INACTIVE
    requested_end = int(_ints(blocks["requested_bytes"])[active].sum())
    rises, falls = (action == _SEGMENT_ALLOC) | (action == _SEGMENT_MAP), (action == _SEGMENT_FREE) | (action == _SEGMENT_UNMAP)
    born, ended = action == _ALLOC, action == _FREE_COMPLETED
    reserved = backward(_change(size, rises, falls), reserved_end)
    requested = backward(_change(size, born, ended), requested_end)
    opened = _opened(action, address)
    flags = np.asarray(segments["expandable"].fill_null(False))
    expandable = len(flags) > 0 and bool(flags.all())
    low = rounded(size, columns.settings)
    high = low + unsplit(size, columns.settings, expandable)
    exact = _last_allocs(action, address, opened, _ints(blocks["address"])[active], rounded_end[active])
    low, high = np.where(exact >= 0, exact, low), np.where(exact >= 0, exact, high)
    levels = [backward(_change(each, born, ended), int(rounded_end[active].sum())) for each in (low, high)]
    return DevicePeaks(
        device, len(events), requested_end, int(rounded_end[state == 0].sum()), reserved_end, int(requested.max()), int(levels[0].max()),
        int(np.minimum(levels[1], reserved).max()), int(reserved.max()), int(requested.argmax()) - 1,
        _irregularities(columns, events, action, opened, state, bool((requested < 0).any() or (reserved < 0).any())))


def _opened(action: Ints, address: Ints) -> Ints:
    """For each free the event before it at its address that began or ended a block; -1 where there is none. Other events have -1 as well."""
    before = np.full(len(action), -1, np.int64)
    rows = np.flatnonzero(action <= _FREE_COMPLETED)
    order = rows[np.argsort(address[rows], kind="stable")]
    turning = action[order] != _FREE_REQUESTED
    last = np.maximum.accumulate(np.where(turning, np.arange(len(order)), -1)) if len(order) else order
    previous = np.concatenate(([-1], last[:-1])) if len(order) else order
    same = (previous >= 0) & (address[order[previous]] == address[order])
    before[order[same]] = order[previous[same]]
    return before


def _last_allocs(action: Ints, address: Ints, opened: Ints, held: Ints, size: Ints) -> Ints:
    """The block's size for the allocs whose block lives at the end, -1 for all other events."""
    exact = np.full(len(action), -1, np.int64)
    rows = np.flatnonzero(action == _ALLOC)
    ended = np.zeros(len(action), np.bool_)
    closing = opened[(action == _FREE_COMPLETED) & (opened >= 0)]
    ended[closing] = True
    ended[opened[rows][opened[rows] >= 0]] = True
    live = rows[~ended[rows]]
    order = np.argsort(held, kind="stable")
    at = np.minimum(np.searchsorted(held[order], address[live]), max(len(held) - 1, 0))
    if len(held):
        found = held[order[at]] == address[live]
        exact[live[found]] = size[order[at[found]]]
    return exact


def _irregularities(columns: SnapshotColumns, events: pa.Table, action: Ints, opened: Ints, state: Ints, negative: bool) -> dict[str, int]:
    frees = (action == _FREE_REQUESTED) & ((opened < 0) | (action[opened] != _ALLOC))
    depth = np.diff(np.asarray(columns.stacks["frames"].combine_chunks().offsets)) if len(columns.stacks) else np.zeros(1, np.int64)
    stack = _ints(events["stack"].fill_null(-1))
    without = (action == _ALLOC) & ((stack < 0) | (depth[stack] == 0))
    time = events["time_us"].drop_null()
    found = {
        "frees_without_alloc": int(frees.sum()), "allocs_without_frames": int(without.sum()), "levels_below_zero": int(negative),
        "time_reversals": int((np.diff(_ints(time)) < 0).sum()), "pending_blocks": int((state == _PENDING).sum()),
        **{f"action {name}": int((action == code).sum()) for code, name in enumerate(columns.actions) if code >= len(ACTIONS)}}
    return {kind: count for kind, count in found.items() if count}


def _change(size: Ints, rises: npt.NDArray[np.bool_], falls: npt.NDArray[np.bool_]) -> Ints:
    return np.where(rises, size, 0) - np.where(falls, size, 0)


def _ints(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column).astype(np.int64)
