"""Snapshots made call by call: a toy allocator that keeps the true levels, and the columns a reader would give for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ingest.parsers.snapshot.columns import ACTIONS, ANNOTATIONS, BLOCKS, EVENTS, FRAMES, SEGMENTS, STACKS, STATES, SnapshotColumns

MIB = 2**20
Stack = tuple[str, ...]


@dataclass
class Held:
    """A block of the toy: one slot of a segment of its own stream."""

    address: int
    size: int
    requested: int
    stack: Stack | None
    state: str = "active_allocated"


@dataclass
class Maker:
    """One device. Every block lies in the one segment of its stream and pool, at an address of its own; `truth` is the requested level."""

    device: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    clock: int = 1_000_000
    events: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    held: dict[int, Held] = field(default_factory=dict)
    segments: dict[int, dict[str, Any]] = field(default_factory=dict)
    truth: list[int] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    frames: dict[tuple[int, int, int], int] = field(default_factory=dict)
    stacks: dict[tuple[int, ...], int] = field(default_factory=dict)

    def segment(self, size: int, stream: int = 0, pool: str = "0,0", kind: str = "large", expandable: bool = False, stack: Stack | None = ()) -> int:
        """Take a segment from the device."""
        address = 2**40 + len(self.segments) * 2**36 + len(self.events) * 2**20
        self.segments[address] = {"size": size, "stream": stream, "pool": pool, "kind": kind, "expandable": expandable, "stack": stack, "used": 0}
        self._event("segment_alloc", address, size, stream, stack)
        return address

    def segment_free(self, address: int) -> None:
        """Give a segment back."""
        gone = self.segments.pop(address)
        self._event("segment_free", address, gone["size"], gone["stream"], ())

    def alloc(self, size: int, stack: Stack | None = (), segment: int | None = None, rounded: int | None = None) -> int:
        """Allocate `size` in a segment (default: the first that has room)."""
        block = rounded or -(-size // 512) * 512
        where = segment if segment is not None else next(at for at, one in self.segments.items() if one["used"] + block <= one["size"])
        one = self.segments[where]
        address = where + one["used"]
        one["used"] += block
        self.held[address] = Held(address, block, size, stack)
        self._event("alloc", address, size, one["stream"], stack)
        return address

    def free(self, address: int, completed: bool = True) -> None:
        """Ask for a free; without `completed` the block stays pending."""
        block = self.held[address]
        self._event("free_requested", address, block.requested, 0, ())
        block.state = "active_pending_free"
        if completed:
            self.complete(address)

    def complete(self, address: int) -> None:
        """Complete a free."""
        block = self.held[address]
        del self.held[address]
        self._event("free_completed", address, block.requested, 0, ())

    def oom(self, size: int, device_free: int, stack: Stack | None = ()) -> None:
        """A request that failed."""
        self._event("oom", device_free, size, 0, stack)

    def annotate(self, name: str, stage: str) -> None:
        """One end of a named range."""
        self.annotations.append({"device": self.device, "stage": self._text(stage), "name": self._text(name), "time_us": self.clock})

    def columns(self, dropped: int = 0) -> SnapshotColumns:
        """What a reader gives, after a ring buffer lost the first `dropped` events."""
        blocks, segments = [], []
        for address, one in sorted(self.segments.items()):
            inside = [self.held[at] for at in sorted(self.held) if address <= at < address + one["size"]]
            blocks += self._tiled(len(segments), address, one["size"], inside)
            active = sum(block.size for block in inside)
            live = sum(block.size for block in inside if block.state == "active_allocated")
            segments.append({"device": self.device, "address": address, "size_bytes": one["size"], "allocated_bytes": live, "active_bytes": active,
                             "requested_bytes": sum(block.requested for block in inside), "stream": one["stream"], "kind": self._text(one["kind"]),
                             "pool": self._text(one["pool"]), "expandable": one["expandable"], "stack": self._stack(one["stack"])})
        table = pa.Table.from_pylist
        frames = [dict(zip(("name", "filename", "line"), frame, strict=True)) for frame in self.frames]
        stacks = [{"frames": list(stack)} for stack in self.stacks]
        return SnapshotColumns(
            "made", 0, self.device + 1, table(self.events[dropped:], EVENTS), table(segments, SEGMENTS), table(blocks, BLOCKS),
            table(self.annotations, ANNOTATIONS), table(stacks, STACKS), table(frames, FRAMES), pa.array(list(self.texts), pa.string()),
            settings=self.settings)

    def _tiled(self, segment: int, start: int, size: int, inside: list[Held]) -> list[dict[str, Any]]:
        rows, at = [], start
        for block in inside:
            rows += self._free(segment, at, block.address - at)
            rows.append({"segment": segment, "address": block.address, "size_bytes": block.size, "requested_bytes": block.requested,
                         "state": STATES.index(block.state), "stack": self._stack(block.stack)})
            at = block.address + block.size
        return [*rows, *self._free(segment, at, start + size - at)]

    def _free(self, segment: int, at: int, size: int) -> list[dict[str, Any]]:
        return [{"segment": segment, "address": at, "size_bytes": size, "requested_bytes": 0, "state": STATES.index("inactive"), "stack": None}
                ] if size else []

    def _event(self, action: str, address: int, size: int, stream: int, stack: Stack | None) -> None:
        self.clock += 10
        self.events.append({"device": self.device, "action": ACTIONS.index(action), "address": address, "size_bytes": size, "stream": stream,
                            "time_us": self.clock, "stack": self._stack(stack), "pool": None, "metadata": None, "context": None})
        self.truth.append(sum(block.requested for block in self.held.values()))

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _stack(self, stack: Stack | None) -> int | None:
        """Frames as `file:line function`."""
        return None if stack is None else self.stacks.setdefault(tuple(map(self._frame, stack)), len(self.stacks))

    def _frame(self, frame: str) -> int:
        place, _, name = frame.partition(" ")
        file, _, line = place.rpartition(":")
        return self.frames.setdefault((self._text(name), self._text(file), int(line)), len(self.frames))
