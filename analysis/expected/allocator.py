"""What a tensor costs in the caching allocator's books: `allocated` counts whole blocks, not the bytes asked for.

Source: c10/cuda/CUDACachingAllocator.cpp. A request is rounded to 512 bytes. Above 10 MiB without a fitting cached block
a segment of whole 2 MiB pages is made, and what is left of it is split off only where it is more than 1 MiB: so a tensor
of 49.1 MiB is booked as 50. Expandable segments split at 512 bytes and do not have this.
"""

from __future__ import annotations

from ingest.allocator import LARGE_REQUEST_BYTES, SMALL_BYTES, block_bytes, segment_bytes


def reused(size: int, *, expandable: bool = False) -> int:
    """Bytes in `allocated` for a tensor that comes and goes, on average: of the block it finds, a rest of up to 1 MiB is not split off."""
    return booked(size, expandable=True) + (0 if expandable or size <= SMALL_BYTES else SMALL_BYTES // 2)


def booked(size: int, *, expandable: bool = False) -> int:
    """Bytes in `allocated` for one fresh tensor of `size` bytes; a tensor of no elements has no block."""
    block = block_bytes(size) if size else 0
    if expandable or block < LARGE_REQUEST_BYTES:
        return block
    segment = segment_bytes(block)
    return segment if segment - block <= SMALL_BYTES else block
