"""The staircase of reserved within a file: each rise to a new maximum, the stack behind it, and whether it was needed.

A rise was needed where less was free in the cache of its stream and pool than the request that caused it; it is fragmentation where
enough was free there, in pieces; it belongs to another stream or pool where enough was free, but not there. Events tell no pool: where
one free stretch of the stream was large enough and still was not taken, it lay in another pool. What was free is an interval, as
rounding is: between the two the kind is not decided. Under expandable segments a rise maps pages and is needed by design.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.snapshot.layout import Layout, after
from analysis.snapshot.levels import Levels
from analysis.snapshot.lives import Lives
from analysis.snapshot.trace import Action, Flags, Ints, Trace
from ingest.allocator import SMALL_BYTES, SMALL_SEGMENT_BYTES
from ingest.trace_levels import rounded_one

NEED, FRAGMENTATION, ELSEWHERE, UNDECIDED = "need", "fragmentation", "free on another stream or pool", "undecided"
LOOKED_INTO = 500
"""Rises whose instant is laid out in full."""


@dataclass(frozen=True, slots=True)
class Riser:
    """One rise of reserved above its maximum so far, by the segments of one request. `request_bytes` is rounded; events are indexes."""

    event: int
    request_event: int | None
    rise_bytes: int
    reserved_bytes: int
    request_bytes: int
    stream: int
    stack: int
    free_low_bytes: int
    free_high_bytes: int
    free_anywhere_bytes: int
    kind: str


def risers(trace: Trace, lives: Lives, levels: Levels, settings: Mapping[str, Any]) -> tuple[Riser, ...]:
    """Every riser in the order of the trace."""
    events, reserved = trace.events, levels.reserved
    grows = (events.action == Action.SEGMENT_ALLOC) | (events.action == Action.SEGMENT_MAP)
    highest = np.maximum.accumulate(reserved)
    rises = np.flatnonzero(grows & (reserved[1:] > highest[:-1]))
    if not len(rises):
        return ()
    requests = np.flatnonzero(events.action == Action.ALLOC)
    cause = np.searchsorted(requests, rises)
    free = _Free(trace, lives)
    found = []
    for which in np.unique(cause):
        rows = rises[cause == which]
        request = int(requests[which]) if which < len(requests) else None
        found.append(_riser(trace, levels, free, rows, request, settings))
    return _looked_into(trace, lives, settings, found)


def _looked_into(trace: Trace, lives: Lives, settings: Mapping[str, Any], found: list[Riser]) -> tuple[Riser, ...]:
    """Fragmentation held against the segments of that instant, for the largest rises; beyond them it is not decided."""
    doubted = sorted((at for at, one in enumerate(found) if one.kind in (FRAGMENTATION, UNDECIDED) and one.request_bytes),
                     key=lambda at: -found[at].rise_bytes)
    for rank, at in enumerate(doubted):
        one = found[at]
        if rank >= LOOKED_INTO:
            found[at] = replace(one, kind=UNDECIDED)
        elif _untaken(after(trace, lives, one.event - 1), one, settings):
            found[at] = replace(one, kind=ELSEWHERE)
    return tuple(found)


def _untaken(layout: Layout, riser: Riser, settings: Mapping[str, Any]) -> bool:
    """Whether a free stretch of the riser's stream would have held the request, had it been of its pool."""
    limit = settings.get("max_split_size")
    small = np.array([kind == "small" for kind in layout.kind], np.bool_)
    mine = (layout.stream == riser.stream) & (small == (riser.request_bytes <= SMALL_BYTES))
    whole = layout.allocated + layout.pending == 0
    gap = layout.largest_gap - np.where(whole | small, 0, 2 * SMALL_BYTES)
    if isinstance(limit, int) and limit > 0 and riser.request_bytes < limit:
        mine &= layout.largest_gap < limit
    return bool((gap[mine] >= riser.request_bytes).any())


def _riser(trace: Trace, levels: Levels, free: _Free, rows: Ints, request: int | None, settings: Mapping[str, Any]) -> Riser:
    events, first, last = trace.events, int(rows[0]), int(rows[-1])
    size = rounded_one(int(events.size[request]), settings) if request is not None else 0
    before = int(levels.reserved[first])
    anywhere = max(0, before - int(levels.low[first]))
    low, high = free.within(first, int(events.stream[first]), size <= SMALL_BYTES)
    return Riser(first, request, int(levels.reserved[last + 1]) - before, int(levels.reserved[last + 1]), size, int(events.stream[first]),
                 int(events.stack[request if request is not None else first]), low, high, anywhere,
                 _kind(size, low, high, anywhere, request is not None and bool(events.action[first] == Action.SEGMENT_MAP)))


def _kind(size: int, low: int, high: int, anywhere: int, mapped: bool) -> str:
    if not size:
        return UNDECIDED
    if mapped or anywhere < size:
        return NEED
    if high < size:
        return ELSEWHERE
    return FRAGMENTATION if low >= size else UNDECIDED


class _Free:
    """What was free in the cache of one stream, small or large, before an event."""

    def __init__(self, trace: Trace, lives: Lives) -> None:
        self._trace, self._lives = trace, lives
        self._levels: dict[tuple[int, bool], tuple[Ints, Ints]] = {}

    def within(self, event: int, stream: int, small: bool) -> tuple[int, int]:
        """Lower and upper bound, bytes."""
        key = (stream, small)
        if key not in self._levels:
            self._levels[key] = self._bounds(*key)
        low, high = self._levels[key]
        return max(0, int(low[event])), max(0, int(high[event]))

    def _bounds(self, stream: int, small: bool) -> tuple[Ints, Ints]:
        trace, lives = self._trace, self._lives
        events, segments = trace.events, trace.segments
        own = (events.stream == stream) & ((events.size <= SMALL_SEGMENT_BYTES) == small)
        grows = own & ((events.action == Action.SEGMENT_ALLOC) | (events.action == Action.SEGMENT_MAP))
        falls = own & ((events.action == Action.SEGMENT_FREE) | (events.action == Action.SEGMENT_UNMAP))
        kept = (segments.stream == stream) & (np.array([kind == "small" for kind in segments.kind], np.bool_) == small)
        reserved = _undone(np.where(grows, events.size, 0) - np.where(falls, events.size, 0), int(segments.size[kept].sum()))
        mine = (lives.stream == stream) & ((lives.size <= SMALL_BYTES) == small)
        return reserved - self._active(mine, lives.high), reserved - self._active(mine, lives.low)

    def _active(self, mine: Flags, size: Ints) -> Ints:
        lives = self._lives
        change = np.zeros(lives.events, np.int64)
        born, ended = mine & (lives.birth >= 0), mine & (lives.completed_at < lives.events)
        change[lives.birth[born]] = size[born]
        change[lives.completed_at[ended]] = -size[ended]
        return _undone(change, int(size[mine & ~ended].sum()))


def _undone(change: Ints, end: int) -> Ints:
    level = np.concatenate((np.zeros(1, np.int64), np.cumsum(change)))
    level += end - level[-1]
    return level
