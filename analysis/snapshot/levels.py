"""Exact levels over a trace by the backward walk: the end state is known, each event is undone.

One running sum gives every level (`ingest.trace_levels`), however much a full ring buffer dropped. A forward walk from zero is wrong by up to a
quarter on real files, because what was allocated before the trace is not in it. Summing devices or mixing requested with rounded sizes is
wrong as well. `allocated` falls when a free is asked for, `active` (and `requested`, its sum of requested bytes) when the free completes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.snapshot.lives import Lives
from analysis.snapshot.trace import INACTIVE, LIVE, Action, Ints, Trace
from ingest.trace_levels import backward


@dataclass(frozen=True, slots=True)
class Levels:
    """Bytes after each event; row 0 is before the first, so row `i + 1` is after event `i`.

    `requested` and `allocated` count requested bytes of what is active or allocated; `low` and `high` bound the rounded bytes of what
    is active, `high` never above `reserved`.
    """

    requested: Ints
    allocated: Ints
    low: Ints
    high: Ints
    reserved: Ints


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest value of a level and the first event after which it stood; -1 where it stood before the first."""

    bytes: int
    event: int


def levels(trace: Trace, lives: Lives) -> Levels:
    """Every level of the trace."""
    events, blocks = trace.events, trace.blocks
    size, action = events.size, events.action
    active, live = blocks.state != INACTIVE, blocks.state == LIVE
    born = np.where(action == Action.ALLOC, size, 0)
    reserved = backward(np.where((action == Action.SEGMENT_ALLOC) | (action == Action.SEGMENT_MAP), size, 0)
                     - np.where((action == Action.SEGMENT_FREE) | (action == Action.SEGMENT_UNMAP), size, 0), int(trace.segments.size.sum()))
    high = backward(_rounded_changes(lives, lives.high), int(blocks.size[active].sum()))
    return Levels(
        requested=backward(born - np.where(action == Action.FREE_COMPLETED, size, 0), int(blocks.requested[active].sum())),
        allocated=backward(born - np.where(action == Action.FREE_REQUESTED, size, 0), int(blocks.requested[live].sum())),
        low=backward(_rounded_changes(lives, lives.low), int(blocks.size[active].sum())), high=np.minimum(high, reserved), reserved=reserved)


def peak(level: Ints) -> Peak:
    """The first maximum of a level."""
    at = int(np.argmax(level))
    return Peak(int(level[at]), at - 1)


def _rounded_changes(lives: Lives, size: Ints) -> Ints:
    change = np.zeros(lives.events + 1, np.int64)
    born, ended = lives.birth >= 0, lives.completed_at < lives.events
    change[lives.birth[born]] = size[born]
    change[lives.completed_at[ended]] = -size[ended]
    return change[:-1]
