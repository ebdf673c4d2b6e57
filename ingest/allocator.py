"""Sizes in PyTorch's caching allocator: what a request becomes as a block, and what a block costs the device.

Source: `round_size`, `should_split`, `get_allocation_size` of `c10/cuda/CUDACachingAllocator.cpp`. Readers, snapshots, out-of-memory verdicts and
the expected ledger all need these numbers: they stand once, here, without numpy, so that a command that needs one of them starts at once.
"""

from __future__ import annotations

MIB = 2**20
BLOCK_BYTES = 512
"""The grain of every block."""
SMALL_BYTES = 1 * MIB
"""Requests up to this come from the small pool; what is left of a larger block is split off only above it."""
SMALL_SEGMENT_BYTES, LARGE_SEGMENT_BYTES, LARGE_REQUEST_BYTES, SEGMENT_GRAIN_BYTES = 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB


def block_bytes(size: int) -> int:
    """The smallest block of a request."""
    return max(BLOCK_BYTES, -(-size // BLOCK_BYTES) * BLOCK_BYTES)


def segment_bytes(size: int) -> int:
    """What the allocator asks of the device for a block, expandable segments apart: 2 MiB, 20 MiB, or rounded up to 2 MiB."""
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    return LARGE_SEGMENT_BYTES if size < LARGE_REQUEST_BYTES else -(-size // SEGMENT_GRAIN_BYTES) * SEGMENT_GRAIN_BYTES
