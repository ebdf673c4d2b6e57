"""A buffer as the file object that an unpickler reads, which gives no byte that is not there and allocates none that is only announced."""

from __future__ import annotations

import mmap

Bytes = bytes | bytearray | memoryview | mmap.mmap


class Source:
    """`read`, `readinto`, `readline` and `peek` over a buffer; `position` is the next byte. `peek` lets the unpickler take 128 KiB at once."""

    def __init__(self, data: Bytes) -> None:
        self.data = memoryview(data)
        self.position = 0

    def __len__(self) -> int:
        return len(self.data)

    def read(self, count: int = -1) -> bytes:
        """At most `count` bytes."""
        end = len(self.data) if count < 0 else min(self.position + count, len(self.data))
        taken = bytes(self.data[self.position : end])
        self.position = end
        return taken

    def readinto(self, target: bytearray | memoryview) -> int:
        """Fill a buffer as far as the bytes go."""
        view = memoryview(target)
        taken = self.read(len(view))
        view[: len(taken)] = taken
        return len(taken)

    def readline(self) -> bytes:
        """Up to a line feed; no opcode of a snapshot has a line, so a long one is cut."""
        piece = bytes(self.data[self.position : self.position + 4096])
        return self.read(piece.find(b"\n") + 1 or len(piece))

    def peek(self, count: int) -> bytes:
        """The next bytes, not consumed."""
        return bytes(self.data[self.position : self.position + count])

    def tell(self) -> int:
        """The next byte."""
        return self.position
