"""Levels and block sizes over an allocator's trace, in whole columns: the backward walk, and the rounding of requests as an interval.

The end of a trace is known from the segments, so the level before it is the end less all changes, and one running sum gives every level, however
much a full ring buffer dropped. A trace holds requested sizes only: a block is at least the rounded request, and more where what was left of the
block it was cut from was too small to split off. Source of the rounding: `round_size`, `should_split` and `roundup_power2_next_division` of
`c10/cuda/CUDACachingAllocator.cpp` and `c10/core/AllocatorConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ingest.allocator import BLOCK_BYTES, LARGE_SEGMENT_BYTES, SMALL_BYTES

Ints = npt.NDArray[np.int64]


def backward(change: Ints, end: int) -> Ints:
    """The level before the first event and after each one, from its changes and the level at the end."""
    level = np.zeros(len(change) + 1, np.int64)
    np.cumsum(change, out=level[1:])
    level += end - level[-1]
    return level


def rounded(size: Ints, settings: Mapping[str, Any]) -> Ints:
    """The smallest block that serves each request, in bytes."""
    plain = np.maximum(-(-size // BLOCK_BYTES) * BLOCK_BYTES, BLOCK_BYTES)
    divisions = _divisions(settings)
    if not divisions.any():
        return plain
    power = np.frexp(np.maximum(size, 1).astype(np.float64))[1] - 1
    parts = divisions[np.clip(power - 20, 0, len(divisions) - 1)]
    applies = (parts > 1) & (size > BLOCK_BYTES * parts)
    step = np.where(applies, (np.int64(1) << np.clip(power, 0, 62).astype(np.int64)) // np.maximum(parts, 1), BLOCK_BYTES)
    return np.where(applies, -(-size // step) * step, plain)


def rounded_one(size: int, settings: Mapping[str, Any]) -> int:
    """`rounded` of one request."""
    return int(rounded(np.array([size], np.int64), settings)[0])


def unsplit(size: Ints, settings: Mapping[str, Any], expandable: bool) -> Ints:
    """The largest remainder that the allocator leaves in the block of each request, in bytes. `expandable`: every segment is."""
    if expandable:
        return np.zeros_like(size)
    limit = settings.get("max_split_size")
    largest = np.where(size >= limit, LARGE_SEGMENT_BYTES, SMALL_BYTES) if type(limit) is int and limit > 0 else np.full_like(size, SMALL_BYTES)
    return np.where(size > SMALL_BYTES, largest, 0)


def _divisions(settings: Mapping[str, Any]) -> Ints:
    """Divisions of each power of two from 1 MiB up, of `roundup_power2_divisions`; one zero where there are none."""
    given = settings.get("roundup_power2_divisions")
    pairs = given.items() if isinstance(given, Mapping) else ()
    known = sorted((int(key), value) for key, value in pairs
                   if str(key).isdecimal() and len(str(key)) < 7 and type(value) is int and 0 <= value < 2**31)
    return np.array([value for _, value in known] or [0], np.int64)
