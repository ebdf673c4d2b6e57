"""How the caching allocator rounds a request, as an interval.

A trace holds requested sizes only. A block is at least the rounded request, and more where what was left of the block it was cut from
was too small to split off. Source: `round_size`, `should_split` and `roundup_power2_next_division` of
`c10/cuda/CUDACachingAllocator.cpp` and `c10/core/AllocatorConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.snapshot.trace import Ints

BLOCK = 512
SMALL = 2**20
"""Requests up to this come from the small pool; a remainder above it is split off in the large one."""
SMALL_SEGMENT, LARGE_SEGMENT, LARGE_REQUEST, SEGMENT_ROUND = 2 * 2**20, 20 * 2**20, 10 * 2**20, 2 * 2**20


def rounded(size: Ints, settings: Mapping[str, Any]) -> Ints:
    """The smallest block the allocator would give each request, in bytes."""
    up = np.maximum((size + (BLOCK - 1)) // BLOCK * BLOCK, BLOCK)
    divisions = _divisions(settings)
    if not divisions.any():
        return up
    floor = np.int64(1) << np.maximum(np.frexp(np.maximum(size, 1).astype(np.float64))[1] - 1, 0).astype(np.int64)
    parts = divisions[np.clip(np.frexp(floor.astype(np.float64))[1] - 1 - 20, 0, len(divisions) - 1)]
    applies = (parts > 1) & (size > BLOCK * parts)
    step = np.where(applies, floor // np.maximum(parts, 1), BLOCK)
    return np.where(applies, (size + step - 1) // step * step, up)


def unsplit(size: Ints, settings: Mapping[str, Any], expandable: bool) -> Ints:
    """The largest remainder that stays in the block of each request, in bytes."""
    if expandable:
        return np.zeros_like(size)
    limit = settings.get("max_split_size")
    oversize = size >= limit if isinstance(limit, int) and limit > 0 else np.zeros(len(size), np.bool_)
    return np.where(size <= SMALL, 0, np.where(oversize, LARGE_SEGMENT, SMALL))


def rounded_one(size: int, settings: Mapping[str, Any]) -> int:
    """`rounded` of one request."""
    return int(rounded(np.array([size], np.int64), settings)[0])


def segment_size(size: int) -> int:
    """What the allocator asks of the device for a block of this rounded size, without expandable segments."""
    if size <= SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < LARGE_REQUEST else -(-size // SEGMENT_ROUND) * SEGMENT_ROUND


def _divisions(settings: Mapping[str, Any]) -> Ints:
    """Divisions of a power of two by interval, from 1 MiB up; all zero where the setting is off."""
    given = settings.get("roundup_power2_divisions")
    if not isinstance(given, Mapping):
        return np.zeros(1, np.int64)
    pairs = sorted((int(key), int(value)) for key, value in given.items() if str(key).isdigit() and isinstance(value, int))
    return np.array([value for _, value in pairs] or [0], np.int64)
