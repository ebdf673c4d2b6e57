"""A caching allocator run forward, as PyTorch's is: rounding, best fit, splits, merging, a pool for each stream, and its trace.

Being run forward it knows every level exactly, so a snapshot made from it comes with its truth: what readers and the backward walk must
find again. Rules of sizes: requests are rounded to 512 B; up to 1 MiB they live in segments of 2 MiB, below 10 MiB in segments of
20 MiB, above in segments of their own rounded to 2 MiB; a remainder is split off from 512 B (small) or above 1 MiB (large). On a device with a
limit, segments without a block in use are given back before a request fails; those of private pools are kept.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left, insort
from collections import defaultdict

MIB = 2**20
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, OUT_OF_MEMORY = range(6)
ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom")
INACTIVE, ALLOCATED, PENDING = range(3)
STATES = ("inactive", "active_allocated", "active_pending_free")
_FIRST_ADDRESS = 0x7F2C_0000_0000
_START_US = 1_789_463_540_000_000


class Block:
    """A piece of a segment; `life` is the allocation it holds, -1 when inactive."""

    __slots__ = ("address", "life", "next", "previous", "requested", "segment", "size", "state")

    def __init__(self, segment: Segment, address: int, size: int) -> None:
        self.segment, self.address, self.size = segment, address, size
        self.requested, self.state, self.life = 0, INACTIVE, -1
        self.previous: Block | None = None
        self.next: Block | None = None


class Segment:
    """What one cudaMalloc gave, with its blocks in a chain."""

    __slots__ = ("address", "first", "large", "life", "pool", "size", "stream")

    def __init__(self, address: int, size: int, stream: int, large: bool, life: int, pool: int) -> None:
        self.address, self.size, self.stream, self.large, self.life, self.pool = address, size, stream, large, life, pool
        self.first = Block(self, address, size)

    def blocks(self) -> list[Block]:
        """In order of address."""
        found: list[Block] = []
        block: Block | None = self.first
        while block is not None:
            found.append(block)
            block = block.next
        return found


class Trace:
    """Every event in columns, with the levels after it; a life is one allocation: its stack and its class."""

    def __init__(self) -> None:
        self.action, self.life = array("b"), array("i")
        self.address, self.size, self.stream, self.time_us = array("q"), array("q"), array("q"), array("q")
        self.requested, self.allocated, self.active, self.reserved = array("q"), array("q"), array("q"), array("q")
        self.stack_of_life, self.class_of_life, self.size_of_life = array("i"), array("b"), array("q")

    def __len__(self) -> int:
        return len(self.action)


class OutOfMemory(Exception):
    """A request for `size` bytes that the device, with `free` bytes left, could not serve."""

    def __init__(self, size: int, free: int) -> None:
        super().__init__(size, free)
        self.size, self.free = size, free


class Allocator:
    """`malloc` and `free` as a training process calls them. Nothing is recorded before `recording` is set.

    `limit` is what the device has for segments, null where it is never reached; `pool` is 0, or the number of a CUDA graph's private pool.
    """

    def __init__(self, seed: int, limit: int | None = None) -> None:
        self.trace, self.recording, self.limit = Trace(), False, limit
        self.segments: list[Segment] = []
        self.requested = self.allocated = self.active = self.reserved = 0
        self.now_us = _START_US
        self._chance = random.Random(seed)
        self._free: dict[tuple[int, bool, int], list[tuple[int, int]]] = defaultdict(list)
        self._inactive: dict[int, Block] = {}
        self._next_address = _FIRST_ADDRESS

    def malloc(self, size: int, stack: int, kind: int, stream: int = 0, pool: int = 0) -> Block:
        """A block of at least `size` bytes for a tensor of class `kind`."""
        trace = self.trace
        life = len(trace.stack_of_life)
        trace.stack_of_life.append(stack)
        trace.class_of_life.append(kind)
        trace.size_of_life.append(size)
        rounded = max(512, -(-size // 512) * 512)
        large = rounded > MIB
        block = self._best_fit(rounded, (stream, large, pool)) or self._grow(rounded, (stream, large, pool), size, life)
        if block.size - rounded > (MIB if large else 511):
            self._split(block, rounded)
        block.requested, block.state, block.life = size, ALLOCATED, life
        self.requested += size
        self.allocated += block.size
        self.active += block.size
        self._record(ALLOC, block.address, size, stream, life)
        return block

    def free(self, block: Block) -> None:
        """Free at once: no other stream used it."""
        self.request_free(block)
        self.complete_free(block)

    def request_free(self, block: Block) -> None:
        """The tensor is gone; streams that `record_stream` named may still use the block."""
        block.state = PENDING
        self.allocated -= block.size
        self._record(FREE_REQUESTED, block.address, block.requested, block.segment.stream, block.life)

    def complete_free(self, block: Block) -> None:
        """The block returns to its pool and merges with inactive neighbours."""
        self.requested -= block.requested
        self.active -= block.size
        self._record(FREE_COMPLETED, block.address, block.requested, block.segment.stream, block.life)
        block.requested, block.state, block.life = 0, INACTIVE, -1
        if block.next is not None and block.next.state == INACTIVE:
            self._swallow(block, self._take(block.next))
        if block.previous is not None and block.previous.state == INACTIVE:
            block = self._swallow(self._take(block.previous), block)
        self._give(block)

    def _best_fit(self, size: int, place: tuple[int, bool, int]) -> Block | None:
        pool = self._free[place]
        at = bisect_left(pool, (size, 0))
        return self._inactive.pop(pool.pop(at)[1]) if at < len(pool) else None

    def _grow(self, size: int, place: tuple[int, bool, int], asked: int, life: int) -> Block:
        stream, large, pool = place
        whole = 2 * MIB if not large else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.limit is not None and self.reserved + whole > self.limit:
            self._give_back()
            if self.reserved + whole > self.limit:
                self._record(OUT_OF_MEMORY, self.limit - self.reserved, asked, stream, life)
                raise OutOfMemory(asked, self.limit - self.reserved)
        segment = Segment(self._next_address, whole, stream, large, life, pool)
        self._next_address += whole + 2 * MIB * self._chance.randrange(3)
        self.segments.append(segment)
        self.reserved += whole
        self._record(SEGMENT_ALLOC, segment.address, whole, stream, life)
        return segment.first

    def _give_back(self) -> None:
        """Segments without a block in use, those of private pools apart."""
        for segment in [one for one in self.segments if not one.pool and one.first.state == INACTIVE and one.first.size == one.size]:
            self._take(segment.first)
            self.segments.remove(segment)
            self.reserved -= segment.size
            self._record(SEGMENT_FREE, segment.address, segment.size, segment.stream, segment.life)

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.segment, block.address + size, block.size - size)
        rest.previous, rest.next, block.next, block.size = block, block.next, rest, size
        if rest.next is not None:
            rest.next.previous = rest
        self._give(rest)

    @staticmethod
    def _swallow(block: Block, follower: Block) -> Block:
        block.size += follower.size
        block.next = follower.next
        if block.next is not None:
            block.next.previous = block
        return block

    def _give(self, block: Block) -> None:
        insort(self._free[_place(block)], (block.size, block.address))
        self._inactive[block.address] = block

    def _take(self, block: Block) -> Block:
        pool = self._free[_place(block)]
        pool.pop(bisect_left(pool, (block.size, block.address)))
        return self._inactive.pop(block.address)

    def _record(self, action: int, address: int, size: int, stream: int, life: int) -> None:
        if not self.recording:
            return
        trace = self.trace
        self.now_us += 1 if action != ALLOC else 3 + int(self._chance.expovariate(0.02))
        trace.action.append(action)
        trace.life.append(life)
        trace.address.append(address)
        trace.size.append(size)
        trace.stream.append(stream)
        trace.time_us.append(self.now_us)
        trace.requested.append(self.requested)
        trace.allocated.append(self.allocated)
        trace.active.append(self.active)
        trace.reserved.append(self.reserved)


def _place(block: Block) -> tuple[int, bool, int]:
    return block.segment.stream, block.segment.large, block.segment.pool
