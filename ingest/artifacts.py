"""Bytes of an artifact as its parser wants them: decompressed, streamed, bounded.

The kind of compression is read from the first bytes, not from the name, because rotated logs lose their suffix. Every
codec is driven with bounded output (a few bytes of gzip or Zstandard can stand for gigabytes), several members or frames one
after the other are one stream, and a file that was cut inside gives what decodes: `damage` then says so in a sentence. Not
`gzip.open` and its kin: they raise at the end of a cut file and have no limit.
"""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard
from isal import isal_zlib

from ingest.errors import LedgerError

HEAD_BYTES = 64 * 1024
"""How many first bytes tell what an artifact is and whether it is still the same."""

_READ_BYTES = 256 * 1024
_OUTPUT_BYTES = 1024 * 1024
_ZSTD_READ_BYTES = 1024  # a Zstandard block of 4 bytes can stand for 128 KiB: 1 KiB read gives at most 32 MiB
_MEMORY_BYTES = 128 * 1024 * 1024

_BROKEN = cast(tuple[type[Exception], ...], (OSError, ValueError, lzma.LZMAError, zstandard.ZstdError, isal_zlib.error))

_MAGIC = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\x00", "xz"), (b"BZh", "bzip2"))


@dataclass(frozen=True, slots=True)
class Limits:
    """What one compressed file or archive may grow to; beyond it the input is taken for a bomb and quarantined."""

    total_bytes: int = 20 * 10**9
    ratio: int = 200
    ratio_from_bytes: int = 100 * 10**6
    members: int = 200_000

    def check(self, plain_bytes: int, compressed_bytes: int, where: str) -> None:
        """Raise where `plain_bytes` came out of `compressed_bytes` and that is too much (`LedgerError`)."""
        if plain_bytes > self.total_bytes:
            raise LedgerError(
                f"holds more than {self.total_bytes / 1e9:g} GB after decompression", where=where, todo="decompress it and ingest the files",
            )
        if plain_bytes > self.ratio_from_bytes and plain_bytes > self.ratio * max(compressed_bytes, 1):
            raise LedgerError(
                f"decompresses to more than {self.ratio} times its size: taken for a decompression bomb", where=where,
                todo="decompress it and ingest the files if it is a real log",
            )


LIMITS = Limits()


def compression(head: bytes) -> str | None:
    """The codec that the first bytes name: gzip, zstd, xz, bzip2 or None."""
    for magic, name in _MAGIC:
        if head.startswith(magic) and (name != "bzip2" or head[3:4].isdigit()):
            return name
    return None


def open_stream(path: str | Path, limits: Limits = LIMITS) -> BinaryIO:
    """The decompressed bytes of a local file (gzip, zstd, xz, bzip2 by magic; else as they are).

    Plain files seek; compressed ones do not (use `skip`). Reading past `limits` raises `LedgerError`; a file cut inside its
    compressed data ends early with `damage(stream)` set. Raises `LedgerError` where the file cannot be opened.
    """
    name = str(path)
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - handed to the caller
    except OSError as error:
        raise LedgerError(f"cannot be read: {error.strerror or error}", where=name, todo="check the path and its permissions") from error
    try:
        codec = compression(file.read(8))
        file.seek(0)
    except OSError as error:
        file.close()
        raise LedgerError(f"cannot be read: {error.strerror or error}", where=name, todo="check the path and its permissions") from error
    return file if codec is None else decompressed(file, codec, name, limits)


def decompressed(file: BinaryIO, codec: str, where: str, limits: Limits = LIMITS) -> BinaryIO:
    """Wrap an open file of compressed bytes; closing the result closes it."""
    return cast(BinaryIO, io.BufferedReader(_Decompressed(file, codec, where, limits), _OUTPUT_BYTES))


def damage(stream: BinaryIO) -> str | None:
    """Why a compressed stream ended early; None while nothing is wrong."""
    raw = getattr(stream, "raw", None)
    return raw.damage if isinstance(raw, _Decompressed) else None


def skip(stream: BinaryIO, count: int) -> None:
    """Move `count` bytes forward: by seeking where that is possible, else by reading."""
    if stream.seekable():
        stream.seek(count, io.SEEK_CUR)
        return
    while count > 0 and (chunk := stream.read(min(count, _OUTPUT_BYTES))):
        count -= len(chunk)


class _Decompressed(io.RawIOBase):
    """Decompressed bytes on demand; what is held at once is one bounded chunk."""

    def __init__(self, file: BinaryIO, codec: str, where: str, limits: Limits) -> None:
        self.damage: str | None = None
        self._file = file
        self._where = where
        self._limits = limits
        self._chunks = _chunks(_Source(file), codec)
        self._rest = memoryview(b"")
        self._position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = self._next()
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._position += count
        return count

    def _next(self) -> bytes | None:
        if self.damage:
            return None
        try:
            chunk = next(self._chunks, None)
        except EOFError:
            self.damage = f"the compressed data is cut off after {self._position:,} decompressed bytes; what decodes was read"
            return None
        except _BROKEN as error:
            self.damage = f"the compressed data is broken after {self._position:,} decompressed bytes ({error}); what decodes was read"
            return None
        if chunk is not None:
            self._limits.check(self._position + len(chunk), self._file.tell(), self._where)
        return chunk

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _Source:
    """Compressed bytes with push-back: codecs return what they did not use."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unused = b""

    def read(self, size: int) -> bytes:
        data, self._unused = (self._unused or self._file.read(size)), b""
        return data

    def push(self, data: bytes) -> None:
        self._unused = data + self._unused


def _chunks(source: _Source, codec: str) -> Iterator[bytes]:
    """Decompress member after member; EOFError where one is cut, ValueError where something else follows the first."""
    first = True
    while data := source.read(_READ_BYTES):
        if not first:
            data = data.lstrip(b"\0")  # padding of tapes and block devices
            if not data:
                continue
            if len(data) < 8:
                data += source.read(_READ_BYTES)
            if compression(data) != codec:
                raise ValueError("other bytes follow the compressed data")
        source.push(data)
        yield from _member(source, codec)
        first = False


def _member(source: _Source, codec: str) -> Iterator[bytes]:
    if codec == "gzip":
        return _gzip(source)
    if codec == "zstd":
        return _zstd(source)
    return _bounded(source, bz2.BZ2Decompressor() if codec == "bzip2" else lzma.LZMADecompressor(memlimit=_MEMORY_BYTES))


def _gzip(source: _Source) -> Iterator[bytes]:
    decoder = isal_zlib.decompressobj(wbits=31)
    while not decoder.eof:
        data = decoder.unconsumed_tail or source.read(_READ_BYTES)
        if not data:
            raise EOFError
        if chunk := decoder.decompress(data, _OUTPUT_BYTES):
            yield chunk
    source.push(decoder.unused_data)


def _zstd(source: _Source) -> Iterator[bytes]:
    decoder = zstandard.ZstdDecompressor(max_window_size=_MEMORY_BYTES).decompressobj()
    while not decoder.eof:
        data = source.read(_ZSTD_READ_BYTES)
        if not data:
            raise EOFError
        source.push(data[_ZSTD_READ_BYTES:])
        if chunk := decoder.decompress(data[:_ZSTD_READ_BYTES]):
            yield chunk
    source.push(decoder.unused_data)


def _bounded(source: _Source, decoder: Any) -> Iterator[bytes]:
    while not decoder.eof:
        data = source.read(_READ_BYTES) if decoder.needs_input else b""
        if decoder.needs_input and not data:
            raise EOFError
        if chunk := decoder.decompress(data, _OUTPUT_BYTES):
            yield chunk
    source.push(decoder.unused_data)
