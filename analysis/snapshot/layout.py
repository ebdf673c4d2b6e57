"""The segments of a device and what lies in them, at the end or after any event: whole free segments, split remainders, largest gaps.

The end is in the file. An earlier instant is the end with later segment events undone, and the lives of that instant laid into it. A
gap next to a block whose remainder was kept unsplit is that much smaller than said (at most 1 MiB a block).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.snapshot.lives import Lives
from analysis.snapshot.trace import INACTIVE, LIVE, PENDING, Action, Flags, Ints, Trace
from ingest.allocator import SMALL_SEGMENT_BYTES

DEFAULT_POOL = "0,0"


@dataclass(frozen=True, slots=True)
class Pool:
    """What one stream holds in one pool, bytes: `whole_free` segments could go back to the device, `split_free` could not."""

    stream: int
    kind: str
    pool: str
    expandable: bool
    segments: int
    reserved_bytes: int
    allocated_bytes: int
    pending_bytes: int
    requested_bytes: int
    whole_free_bytes: int
    split_free_bytes: int
    largest_free_bytes: int

    @property
    def rounding_bytes(self) -> int:
        """Held by blocks beyond what was requested of them."""
        return self.allocated_bytes + self.pending_bytes - self.requested_bytes

    @property
    def free_bytes(self) -> int:
        """Reserved and held by no block."""
        return self.whole_free_bytes + self.split_free_bytes

    @property
    def private(self) -> bool:
        """Whether it is a pool of a CUDA graph or of `torch.cuda.MemPool`."""
        return self.pool != DEFAULT_POOL


@dataclass(frozen=True, slots=True)
class Layout:
    """One row a segment: its place, and the bytes of blocks in it."""

    address: Ints
    size: Ints
    stream: Ints
    kind: tuple[str, ...]
    pool: tuple[str, ...]
    expandable: Flags
    allocated: Ints
    pending: Ints
    requested: Ints
    largest_gap: Ints

    def pools(self) -> tuple[Pool, ...]:
        """The segments summed by stream, kind and pool, the fullest first."""
        keys: dict[tuple[int, str, str, bool], list[int]] = {}
        for row, key in enumerate(zip(self.stream.tolist(), self.kind, self.pool, self.expandable.tolist(), strict=True)):
            keys.setdefault(key, []).append(row)
        return tuple(sorted((self._pool(key, np.array(rows)) for key, rows in keys.items()), key=lambda pool: -pool.reserved_bytes))

    def _pool(self, key: tuple[int, str, str, bool], rows: Ints) -> Pool:
        size, held = self.size[rows], self.allocated[rows] + self.pending[rows]
        whole = held == 0
        return Pool(*key, segments=len(rows), reserved_bytes=int(size.sum()), allocated_bytes=int(self.allocated[rows].sum()),
                    pending_bytes=int(self.pending[rows].sum()), requested_bytes=int(self.requested[rows].sum()),
                    whole_free_bytes=int(size[whole].sum()), split_free_bytes=int((size - held)[~whole].sum()),
                    largest_free_bytes=int(self.largest_gap[rows].max(initial=0)))


def at_end(trace: Trace) -> Layout:
    """The layout that the file holds."""
    blocks, segments, count = trace.blocks, trace.segments, len(trace.segments)

    def summed(chosen: Flags, size: Ints) -> Ints:
        return np.bincount(blocks.segment[chosen], weights=size[chosen], minlength=count).astype(np.int64)

    free = blocks.state == INACTIVE
    gap = np.zeros(count, np.int64)
    np.maximum.at(gap, blocks.segment[free], blocks.size[free])
    return Layout(segments.address, segments.size, segments.stream, segments.kind, segments.pool, segments.expandable,
                  summed(blocks.state == LIVE, blocks.size), summed(blocks.state == PENDING, blocks.size), summed(~free, blocks.requested), gap)


def after(trace: Trace, lives: Lives, event: int) -> Layout:
    """The layout after an event; a segment that is gone at the end is told small from large by its size and counts to the default pool."""
    kept = _segments_after(trace, event)
    order = sorted(range(len(kept)), key=lambda row: kept[row][0])
    kept = [kept[row] for row in order]
    address, size = (np.array([row[column] for row in kept], np.int64) for column in (0, 1))
    live = np.flatnonzero(lives.live_after(event))
    live = live[np.argsort(lives.address[live])]
    inside = np.searchsorted(address, lives.address[live], side="right") - 1
    fits = inside >= 0
    fits[fits] = lives.address[live[fits]] < (address + size)[inside[fits]]
    live, inside = live[fits], inside[fits]
    pending = lives.requested_at[live] <= event

    def summed(chosen: Flags, of: Ints) -> Ints:
        return np.bincount(inside[chosen], weights=of[live[chosen]], minlength=len(kept)).astype(np.int64)

    return Layout(address, size, np.array([row[2] for row in kept], np.int64), tuple(row[3] for row in kept), tuple(row[4] for row in kept),
                  np.array([row[5] for row in kept], np.bool_), summed(~pending, lives.low), summed(pending, lives.low),
                  summed(np.ones(len(live), np.bool_), lives.size), _gaps(address, size, lives.address[live], lives.low[live], inside))


_Segment = tuple[int, int, int, str, str, bool]


def _segments_after(trace: Trace, event: int) -> list[_Segment]:
    """The segments of the end with every later segment event undone, the last first."""
    segments, events = trace.segments, trace.events
    kept: dict[int, _Segment] = {int(row[0]): row for row in zip(segments.address.tolist(), segments.size.tolist(), segments.stream.tolist(),
                                                                   segments.kind, segments.pool, segments.expandable.tolist(), strict=True)}
    changes = np.flatnonzero((events.action >= Action.SEGMENT_ALLOC) & (events.action <= Action.SEGMENT_UNMAP))
    for row in changes[changes > event][::-1].tolist():
        address, size, stream = int(events.address[row]), int(events.size[row]), int(events.stream[row])
        if events.action[row] in (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP):
            kind = "small" if size <= SMALL_SEGMENT_BYTES else "large"
            kept[address] = (address, size, stream, kind, DEFAULT_POOL, bool(events.action[row] == Action.SEGMENT_UNMAP))
        elif events.action[row] == Action.SEGMENT_ALLOC:
            kept.pop(address, None)
        else:
            _unmap(kept, address, size)
    return list(kept.values())


def _unmap(kept: dict[int, _Segment], address: int, size: int) -> None:
    """Take a mapped range out of the segment that covers it."""
    start = next((at for at, row in kept.items() if at <= address < at + row[1]), None)
    if start is None:
        return
    row = kept.pop(start)
    for at, length in ((start, address - start), (address + size, start + row[1] - address - size)):
        if length > 0:
            kept[at] = (at, length, *row[2:])


def _gaps(address: Ints, size: Ints, block: Ints, length: Ints, inside: Ints) -> Ints:
    """The largest stretch of each segment without a block; blocks are in order of address."""
    gap = size.copy()
    if not len(block):
        return gap
    first, last = _edges(inside)
    gap[np.unique(inside)] = 0
    np.maximum.at(gap, inside[first], block[first] - address[inside[first]])
    np.maximum.at(gap, inside[last], (address + size)[inside[last]] - (block + length)[last])
    between = np.flatnonzero(inside[1:] == inside[:-1])
    np.maximum.at(gap, inside[between], block[between + 1] - (block + length)[between])
    return np.maximum(gap, 0)


def _edges(inside: Ints) -> tuple[Flags, Flags]:
    changed = inside[1:] != inside[:-1]
    return np.concatenate(([True], changed)), np.concatenate((changed, [True]))


def total(pools: Sequence[Pool], name: str) -> int:
    """The sum of a figure of pools."""
    return sum(int(getattr(pool, name)) for pool in pools)
