"""Writes what an allocator traced as `torch.cuda.memory._dump_snapshot` does: the same shape, opcodes, memo and sharing, as a stream.

A million events are a few hundred megabytes of pickle; building them as Python objects first would take gigabytes. So the opcodes are
written directly, with CPython's policy: protocol 4, each container memoised, a dict of frame written once and then fetched from the memo,
a fresh list of frames for each allocation, shared by the events of that allocation and by its block.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, BinaryIO

from sample_data.snapshots.allocator import ACTIONS, OUT_OF_MEMORY, STATES, Allocator, Block, Segment
from sample_data.snapshots.stacks import Frame

Annotation = tuple[str, str, int]
"""Stage, name, microseconds."""

_FRAME_BYTES = 65536
_BATCH = 1000


class Pickler:
    """Opcodes of one snapshot onto a file."""

    def __init__(self, file: BinaryIO, stacks: Sequence[tuple[Frame, ...]]) -> None:
        self._file, self._stacks = file, stacks
        self._out = bytearray()
        self._memos = 0
        self._texts: dict[str, bytes] = {}
        self._frames: dict[Frame, bytes] = {}
        self._lists: dict[int, bytes] = {}
        self._bodies: dict[int, bytes] = {}
        file.write(b"\x80\x04")

    def snapshot(self, allocator: Allocator, first: int, device: int, devices: int, annotations: Sequence[Annotation]) -> None:
        """Events from `first` on, on one of several devices, and the allocator as it stands."""
        self._open_dict()
        self._key("segments")
        self._list(sorted(allocator.segments, key=lambda one: one.address), lambda segment: self._segment(segment, allocator, device))
        self._key("device_traces")
        self._list(range(devices), lambda index: self._events(allocator, first) if index == device else self._list((), self._value))
        self._key("allocator_settings")
        self._settings()
        self._key("external_annotations")
        self._list(annotations, lambda one: self._dict(stage=one[0], name=one[1], device=device, time_us=one[2]))
        self._out += b"u."
        self._flush(0)

    def _segment(self, segment: Segment, allocator: Allocator, device: int) -> None:
        blocks = segment.blocks()
        allocated, pending = (sum(block.size for block in blocks if block.state == state) for state in (1, 2))
        self._open_dict()
        self._items(device=device, address=segment.address, total_size=segment.size, allocated_size=allocated, active_size=allocated + pending,
                    requested_size=sum(block.requested for block in blocks), stream=segment.stream,
                    segment_type="large" if segment.large else "small", segment_pool_id=(0, segment.pool), is_expandable=False)
        self._key("frames")
        self._life(allocator, segment.life)
        self._key("blocks")
        self._list(blocks, lambda block: self._block(block, allocator))
        self._out += b"u"

    def _block(self, block: Block, allocator: Allocator) -> None:
        self._open_dict()
        self._items(address=block.address, size=block.size, requested_size=block.requested, state=STATES[block.state])
        self._key("frames")
        self._life(allocator, block.life)
        self._out += b"u"

    def _events(self, allocator: Allocator, first: int) -> None:
        trace, out, key = allocator.trace, self._out, self._key
        rows = zip(trace.action, trace.address, trace.size, trace.stream, trace.time_us, trace.life, strict=True)

        def event(row: tuple[int, int, int, int, int, int]) -> None:
            action, address, size, stream, time_us, life = row
            self._open_dict()
            key("action")
            key(ACTIONS[action])
            key("device_free" if action == OUT_OF_MEMORY else "addr")
            out.extend(_integer(address))
            key("size")
            out.extend(_integer(size))
            key("stream")
            out.extend(_integer(stream))
            key("time_us")
            out.extend(_integer(time_us))
            key("compile_context")
            out.extend(b"\x8c\x03N/A")  # torch makes a new text of it for each event
            self._memoise()
            key("user_metadata")
            key("")
            key("frames")
            self._life(allocator, life)
            out.extend(b"u")

        self._list(islice(rows, first, None), event)

    def _life(self, allocator: Allocator, life: int) -> None:
        """The list of frames of an allocation: written at its first mention, fetched afterwards; empty where none was recorded."""
        known = self._lists.get(life)
        if known is not None:
            self._out += known
            return
        stack = allocator.trace.stack_of_life[life] if life >= 0 else -1
        self._out += b"]"
        self._lists[life] = self._memoise()
        frames = self._stacks[stack] if stack >= 0 else ()
        if not frames:
            return
        if stack not in self._bodies:
            self._put(frames, self._frame)
            self._bodies[stack] = b"(" + b"".join(self._frames[frame] for frame in frames) + b"e"
        else:
            self._out += self._bodies[stack]

    def _frame(self, frame: Frame) -> None:
        known = self._frames.get(frame)
        if known is not None:
            self._out += known
            return
        self._out += b"}"
        self._frames[frame] = self._memoise()
        self._out += b"("
        self._items(name=frame[0], filename=frame[1], line=frame[2])
        self._out += b"u"

    def _settings(self) -> None:
        divisions = {str(2**power): 0 for power in range(16)}
        self._dict(PYTORCH_CUDA_ALLOC_CONF="", max_split_size=-1, garbage_collection_threshold=0.0, expandable_segments=False,
                   pinned_num_register_threads=1, release_lock_on_cudamalloc=False, pinned_use_cuda_host_register=False,
                   roundup_power2_divisions=divisions)

    def _open_dict(self) -> None:
        self._out += b"}"
        self._memoise()
        self._out += b"("

    def _dict(self, **items: Any) -> None:
        self._open_dict()
        self._items(**items)
        self._out += b"u"

    def _items(self, **items: Any) -> None:
        for name, value in items.items():
            self._key(name)
            self._value(value)

    def _value(self, value: Any) -> None:
        if isinstance(value, bool):
            self._out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self._out += _integer(value)
        elif isinstance(value, float):
            self._out += b"G" + struct.pack(">d", value)
        elif isinstance(value, tuple):
            self._out += b"".join(map(_integer, value)) + b"\x86"
            self._memoise()
        elif isinstance(value, dict):
            self._dict(**value)
        else:
            self._key(value)

    def _key(self, text: str) -> None:
        known = self._texts.get(text)
        if known is None:
            coded = text.encode()
            self._out += (b"\x8c" + bytes((len(coded),)) if len(coded) < 256 else b"X" + struct.pack("<I", len(coded))) + coded
            self._texts[text] = self._memoise()
        else:
            self._out += known

    def _list(self, items: Iterable[Any], write: Callable[[Any], None]) -> None:
        self._out += b"]"
        self._memoise()
        self._put(items, write)

    def _put(self, items: Iterable[Any], write: Callable[[Any], None]) -> None:
        """Append in batches of a thousand, a single one without a mark."""
        rest = iter(items)
        while batch := list(islice(rest, _BATCH)):
            if len(batch) > 1:
                self._out += b"("
            for item in batch:
                write(item)
                self._flush(_FRAME_BYTES)
            self._out += b"e" if len(batch) > 1 else b"a"

    def _memoise(self) -> bytes:
        """Give the value just written a place in the memo; the opcode that fetches it."""
        self._out += b"\x94"
        self._memos += 1
        at = self._memos - 1
        return b"h" + bytes((at,)) if at < 256 else b"j" + struct.pack("<I", at)

    def _flush(self, least: int) -> None:
        if len(self._out) >= least:
            self._file.write(b"\x95" + struct.pack("<Q", len(self._out)))
            self._file.write(self._out)
            self._out.clear()


def _integer(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes((value,))
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    length = (value.bit_length() >> 3) + 1
    return b"\x8a" + bytes((length,)) + value.to_bytes(length, "little", signed=True)
