"""Lifetimes: every allocation of a trace with its birth, its two frees and its end, matched by address.

One stable sort by address puts the events of a block in their order; a new life begins at an `alloc`, after a `free_completed`, and at
another address. A life without an `alloc` predates the trace (its birth is -1): a ghost. Blocks that live at the end and have no open
life in the trace are ghosts as well. Sorting costs one argsort; walking events with a dictionary costs a hundred times as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.snapshot.trace import INACTIVE, NO_STACK, Action, Flags, Ints, Small, Trace
from ingest.trace_levels import rounded, unsplit

BEFORE = -1
"""Birth of a life that predates the trace."""


@dataclass(frozen=True, slots=True)
class Lives:
    """One row a life. Indexes are of events; `requested_at` and `completed_at` are the number of events where the free is not in the trace.

    `low` and `high` bound the rounded block; they are equal for what lives at the end. `block` is the row of the block at the end, -1
    elsewhere. `stack` is that of the allocation, -1 where the file does not tell it.
    """

    birth: Ints
    requested_at: Ints
    completed_at: Ints
    address: Ints
    size: Ints
    stream: Ints
    stack: Small
    low: Ints
    high: Ints
    block: Ints
    events: int

    def __len__(self) -> int:
        return len(self.birth)

    def live_after(self, event: int) -> Flags:
        """Which are live (active: allocated or pending) after this event; -1 is before the first."""
        return (self.birth <= event) & (self.completed_at > event)


def lives(trace: Trace, settings: Mapping[str, Any]) -> Lives:
    """Every life of the trace, those seen in events first, in order of address; then the ghosts known from blocks alone."""
    seen, last = _from_events(trace)
    return _with_blocks(trace, settings, seen, last)


@dataclass(frozen=True, slots=True)
class _Seen:
    birth: Ints
    requested_at: Ints
    completed_at: Ints
    address: Ints
    size: Ints
    stream: Ints
    stack: Ints


def _from_events(trace: Trace) -> tuple[_Seen, Ints]:
    """Lives that events show, and for each whether it is the last one at its address (its row, in order of address)."""
    events = trace.events
    rows = np.flatnonzero(events.action <= Action.FREE_COMPLETED)
    order = rows[np.argsort(events.address[rows], kind="stable")]
    address, action = events.address[order], events.action[order]
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (address[1:] != address[:-1]) | (action[1:] == Action.ALLOC) | (action[:-1] == Action.FREE_COMPLETED)
    first = np.flatnonzero(starts)
    life = np.cumsum(starts) - 1
    count, total = len(first), len(events)
    birth, requested_at, completed_at = np.full(count, BEFORE, np.int64), np.full(count, total, np.int64), np.full(count, total, np.int64)
    for code, target in ((Action.ALLOC, birth), (Action.FREE_REQUESTED, requested_at), (Action.FREE_COMPLETED, completed_at)):
        chosen = action == code
        target[life[chosen]] = order[chosen]
    requested_at = np.where((requested_at == total) & (completed_at < total), BEFORE, requested_at)
    stack = np.where((birth >= 0) | _frees_tell_birth(trace, birth, requested_at), events.stack[order[first]], NO_STACK)
    seen = _Seen(birth, requested_at, completed_at, address[first], events.size[order[first]], events.stream[order[first]], stack.astype(np.int64))
    ends = np.ones(count, np.bool_)
    ends[:-1] = seen.address[1:] != seen.address[:-1]
    return seen, np.flatnonzero(ends)


def _frees_tell_birth(trace: Trace, birth: Ints, requested_at: Ints) -> bool:
    """Whether frees carry the stack of the allocation (recorded with context `alloc`): all that can be compared do."""
    both = (birth >= 0) & (requested_at >= 0) & (requested_at < len(trace.events))
    stack = trace.events.stack
    told = stack[birth[both]]
    return bool(both.any()) and bool((told >= 0).any()) and bool(np.array_equal(told, stack[requested_at[both]]))


def _with_blocks(trace: Trace, settings: Mapping[str, Any], seen: _Seen, last: Ints) -> Lives:
    total, blocks = len(trace.events), trace.blocks
    held = np.flatnonzero(blocks.state != INACTIVE)
    block = np.full(len(seen.birth), -1, np.int64)
    at = np.searchsorted(seen.address[last], blocks.address[held])
    found = at < len(last)
    found[found] = seen.address[last[at[found]]] == blocks.address[held[found]]
    found[found] = seen.completed_at[last[at[found]]] == total
    block[last[at[found]]] = held[found]
    ghosts = held[~found]
    stream = trace.segments.stream[blocks.segment[ghosts]] if len(ghosts) else np.zeros(0, np.int64)
    none = np.full(len(ghosts), BEFORE, np.int64)
    never = np.full(len(ghosts), total, np.int64)
    size = np.concatenate((seen.size, blocks.requested[ghosts]))
    block = np.concatenate((block, ghosts))
    stack = np.concatenate((seen.stack, blocks.stack[ghosts])).astype(np.int32)
    stack = np.where((stack < 0) & (block >= 0), blocks.stack[block] if len(blocks.stack) else NO_STACK, stack).astype(np.int32)
    low = rounded(size, settings)
    high = low + unsplit(size, settings, len(trace.segments) > 0 and bool(trace.segments.expandable.all()))
    exact = blocks.size[block] if len(blocks.size) else low
    return Lives(
        birth=np.concatenate((seen.birth, none)), requested_at=np.concatenate((seen.requested_at, never)),
        completed_at=np.concatenate((seen.completed_at, never)), address=np.concatenate((seen.address, blocks.address[ghosts])), size=size,
        stream=np.concatenate((seen.stream, stream)), stack=stack, low=np.where(block >= 0, exact, low), high=np.where(block >= 0, exact, high),
        block=block, events=total)
