"""Bytes of a log into chunks of whole lines, with offsets, in bounded memory.

A log is whatever a job left: LF, CRLF or bare CR (progress bars), NULs after a crash, UTF-16 from a Windows copy, a gigabyte without a
newline. Chunks stay bytes and hold many lines, so that the scanner can jump over what holds no record; `readline` on a
text stream would decode everything and stop at the first byte that is not UTF-8. Where a chunk is cut depends on the lines alone, never on the
block that was read, so that any way of reading gives the same lines.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

BLOCK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20
"""What is longer between newlines or carriage returns is no record: its head goes to the rejects, the rest is skipped."""
HEAD_BYTES = 4096
KEPT_HEAD_BYTES = 2000


@dataclass(slots=True)
class Chunk:
    """Whole lines with their newlines; `closed` is False for what stands after the last newline, `cut` for the head of an endless line."""

    data: bytes
    offset: int
    end: int
    closed: bool = True
    cut: bool = False


def encoding_of(head: bytes) -> str:
    """`utf-8`, or UTF-16 by its mark or by the NULs of its first line (which decides, so that any cut of the file agrees)."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    line = head[: head.find(b"\n") if b"\n" in head else len(head)]
    even, odd = line[0::2], line[1::2]
    if len(odd) < 4:
        return "utf-8"
    zeros = even.count(0) / len(even), odd.count(0) / len(odd)
    return "utf-16-le" if zeros[0] < 0.1 and zeros[1] > 0.6 else "utf-16-be" if zeros[0] > 0.6 and zeros[1] < 0.1 else "utf-8"


def blocks_of(stream: BinaryIO) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes, for judging the encoding, and all blocks."""
    head = b""
    while len(head) < HEAD_BYTES and (block := stream.read(BLOCK_BYTES)):
        head += block
    return head[:HEAD_BYTES], chain([head] if head else [], iter(lambda: stream.read(BLOCK_BYTES), b""))


def chunks(blocks: Iterator[bytes], start: int, encoding: str) -> Iterator[Chunk]:
    """Chunks of the stream from byte `start` on."""
    return _narrow(blocks, start) if encoding == "utf-8" else _wide(blocks, start, encoding)


def _narrow(blocks: Iterator[bytes], start: int) -> Iterator[Chunk]:
    rest, offset, head, lost = b"", start, b"", 0
    for block in blocks:
        data = rest + block
        if head:  # inside an endless line: skip to its end
            stop = _first_end(data)
            if stop < 0:
                lost, rest = lost + len(data), b""
                continue
            yield Chunk(head, offset, offset + lost + stop, cut=True)
            offset, data, head, lost = offset + lost + stop, data[stop:], b"", 0
        whole = data.rfind(b"\n") + 1
        if whole:
            yield from _short(data[:whole], offset)
        offset, rest = offset + whole, data[whole:]
        if len(rest) > LONGEST_LINE_BYTES:
            kept = rest.rfind(b"\r") + 1
            if kept:
                yield from _short(rest[:kept], offset)
            offset, rest = offset + kept, rest[kept:]
            if len(rest) > LONGEST_LINE_BYTES:
                head, lost, rest = rest[:KEPT_HEAD_BYTES], len(rest), b""
    if head:
        yield Chunk(head, offset, offset + lost, closed=False, cut=True)
    elif rest:
        yield Chunk(rest, offset, offset + len(rest), closed=False)


def _first_end(data: bytes) -> int:
    found = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
    return min(found, default=-1)


def _short(data: bytes, offset: int) -> Iterator[Chunk]:
    """The lines of `data`, endless ones apart."""
    at = begin = 0
    while len(data) - at > LONGEST_LINE_BYTES:
        window = at + LONGEST_LINE_BYTES + 1
        stop = max(data.rfind(b"\n", at, window), data.rfind(b"\r", at, window)) + 1
        if not stop:
            ends = _first_end(data[at:])
            stop = at + ends if ends >= 0 else len(data)
            if at > begin:
                yield Chunk(data[begin:at], offset + begin, offset + at)
            yield Chunk(data[at:at + KEPT_HEAD_BYTES], offset + at, offset + stop, cut=True)
            begin = stop
        at = stop
    if len(data) > begin:
        yield Chunk(data[begin:], offset + begin, offset + len(data))


def _wide(blocks: Iterator[bytes], start: int, encoding: str) -> Iterator[Chunk]:
    """UTF-16, a line a chunk, as UTF-8 with the offsets of the artifact; `surrogatepass` keeps every length exact."""
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    rest, offset, read = "", start, start
    for block in blocks:
        read += len(block)
        parts = (rest + _decoded(decoder, block)).split("\n")
        rest = parts.pop()
        for part in parts:
            end = offset + 2 * _units(part) + 2
            yield _wide_chunk(part + "\n", offset, end)
            offset = end
        if len(rest) > LONGEST_LINE_BYTES:
            yield Chunk(_narrowed(rest[:KEPT_HEAD_BYTES]), offset, offset + 2 * _units(rest), cut=True)
            offset, rest = offset + 2 * _units(rest), ""
    if rest or read > offset:
        yield Chunk(_narrowed(rest), offset, read, closed=False)


def _decoded(decoder: codecs.IncrementalDecoder, block: bytes) -> str:
    try:
        return decoder.decode(block)
    except UnicodeDecodeError:
        decoder.reset()
        return block.decode("latin-1").replace("\0", "")[: len(block) // 2]


def _units(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)


def _narrowed(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _wide_chunk(text: str, offset: int, end: int) -> Chunk:
    cut = len(text) > LONGEST_LINE_BYTES
    return Chunk(_narrowed(text[:KEPT_HEAD_BYTES] if cut else text), offset, end, cut=cut)
