"""Bytes of a log into physical lines, with number and offset, in bounded memory.

A log is whatever a job left: LF, CRLF or bare CR (progress bars), NULs after a crash, UTF-16 from a Windows copy, a gigabyte without a
newline. Lines are cut from blocks as bytes and decoded only where wanted, because most lines of a log hold no record; `readline` on a
text stream would decode everything and stop at the first byte that is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20
"""What is longer is kept up to here and the rest skipped: no record is, and memory stays bounded."""


@dataclass(slots=True)
class RawLine:
    """One physical line without its newline; `closed` is False where the stream ended before a newline."""

    data: bytes
    number: int
    offset: int
    end: int
    closed: bool
    cut: bool = False


def raw_lines(stream: BinaryIO, start: int = 0, number: int = 0) -> Iterator[RawLine]:
    """Physical lines from byte `start` on; `number` is that of the line before."""
    rest, offset, skipped = b"", start, 0
    while block := stream.read(BLOCK_BYTES):
        parts = (rest + block).split(b"\n")
        rest = parts.pop()
        for part in parts:
            number += 1
            end = offset + skipped + len(part) + 1
            yield RawLine(part[:LONGEST_LINE_BYTES], number, offset, end, True, bool(skipped) or len(part) > LONGEST_LINE_BYTES)
            offset, skipped = end, 0
        if len(rest) > LONGEST_LINE_BYTES:
            skipped += len(rest) - LONGEST_LINE_BYTES
            rest = rest[:LONGEST_LINE_BYTES]
    if rest:
        yield RawLine(rest, number + 1, offset, offset + skipped + len(rest), False, bool(skipped))
