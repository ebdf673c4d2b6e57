"""Which source an artifact is: new, known and unchanged, grown, moved, or a copy of another.

A source is named by `hash(absolute path, generation)`; the generation counts the files that stood at that path before and whose first bytes
no longer match (replaced, or cut and written again). So two hosts that see a shared folder for the first time give the same
names, and the lake's transactions make one of them win. What a file is told by:

* its prefix: the first min(size, 64 KiB), the longest seen so far;
* the seam: up to 4 KiB before the byte where reading ended, so that a file that was rewritten behind an equal head is not read on from its middle;
* for kinds that are written whole (snapshots): all bytes, looked at again where the file was modified since it was read;
* a file that became shorter: the longest of its hashed heads; equal so far, it was cut off or is being written anew, and nothing is read;
* for a path never seen: size, prefix and last 4 KiB equal those of a known file and the names prove no different ranks: a copy;
  or it continues a known file whose path is gone or holds something else now: moved or rotated (also when compressed since).

A copy is remembered as a source of its own without rows, because the original may grow and then no longer looks like it. What is not
recognised, and counts as another file: a copy whose original grew before both were looked at once, and a file that was moved and grew between
two looks of which the first saw less than 128 bytes of it.

Not the modification time or the inode alone: copies, rotation and object stores keep neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import BinaryIO

from ingest.artifacts import HEAD_BYTES, damage, open_stream
from ingest.errors import LedgerError
from ingest.lake import Source
from ingest.naming import base_name, same_place

SEAM_BYTES = 4096
_READ_BYTES = 1024 * 1024
_WRITTEN_WHOLE = ("snapshot",)  # kinds that are never appended to: another size is another file
_TELLING_BYTES = 128  # a moved file that also grew is recognised by at least this much, all of it equal

_HEADS = (64, 128, 256, 512, 1024, 2048, *range(4096, HEAD_BYTES, 4096))
"""Lengths of the heads that are hashed beside the prefix: what tells a file cut off from one begun anew."""

_HEAD_DIGITS = 12

Window = tuple[int, int]
"""First byte and byte after the last, of the decompressed source."""


@dataclass(frozen=True, slots=True)
class Found:
    """One artifact as it lies there. `problem` with `readable` False: quarantined; with True: read as far as it goes."""

    path: str
    file: str
    root: str | None
    member: str | None = None
    size_bytes: int = 0
    prefix_bytes: int = 0
    prefix_hash: str = ""
    last_hash: str = ""
    checks: dict[Window, str] = field(default_factory=dict)
    problem: str | None = None
    readable: bool = True
    heads: dict[int, str] = field(default_factory=dict)
    whole_hash: str | None = None
    modified_ns: int | None = None


def content_hash(data: bytes) -> str:
    """BLAKE2b, 16 bytes, hexadecimal."""
    return blake2b(data, digest_size=16).hexdigest()


def head_hashes(head: bytes) -> dict[int, str]:
    """Hashes of the first bytes, by their number."""
    hashed, found, position = blake2b(digest_size=16), {}, 0
    for size in _HEADS:
        if size > len(head):
            break
        hashed.update(head[position:size])
        found[size], position = hashed.hexdigest()[:_HEAD_DIGITS], size
    return found


def hash_of_all(stream: BinaryIO) -> str:
    """`content_hash` of a stream from where it stands to its end."""
    hashed = blake2b(digest_size=16)
    while chunk := stream.read(_READ_BYTES):
        hashed.update(chunk)
    return hashed.hexdigest()


def source_id(path: str, generation: int) -> str:
    """Name of the source that is the `generation`-th file at a logical path."""
    return blake2b(f"{absolute(path)}\0{generation}".encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def absolute(path: str) -> str:
    """Absolute logical path; links are kept, because each host may reach a shared folder by its own."""
    return os.path.abspath(path)


def windows_of(source: Source) -> list[Window]:
    """What must hold the same bytes for a file to be this source."""
    wanted = [(0, source.prefix_bytes)]
    if source.closed_bytes and source.seam_bytes:
        wanted.append((source.closed_bytes - source.seam_bytes, source.closed_bytes))
    return wanted


def examine(found: Found, stream: BinaryIO, wanted: Iterable[Window], whole: bool = False) -> Found:
    """Size, prefix, end and the `wanted` windows of a stream: by seeking in plain files, else in one bounded pass; with `whole` the hash of all."""
    windows = set(wanted) | {(0, HEAD_BYTES)}
    hashed = blake2b(digest_size=16) if whole else None
    size, pieces, last = _by_seeking(stream, windows) if stream.seekable() and not whole else _by_reading(stream, windows, hashed)
    head = pieces[0, HEAD_BYTES]
    return Found(
        found.path, found.file, found.root, found.member, size, len(head), content_hash(head), content_hash(last),
        {window: content_hash(data) for window, data in pieces.items() if len(data) == window[1] - window[0]},
        found.problem or damage(stream), heads=head_hashes(head), whole_hash=hashed.hexdigest() if hashed else None, modified_ns=found.modified_ns,
    )


def _by_seeking(stream: BinaryIO, windows: set[Window]) -> tuple[int, dict[Window, bytes], bytes]:
    size = stream.seek(0, os.SEEK_END)
    return size, {window: _read(stream, *window) for window in windows}, _read(stream, max(size - SEAM_BYTES, 0), size)


def _read(stream: BinaryIO, start: int, end: int) -> bytes:
    stream.seek(start)
    return stream.read(end - start)


def _by_reading(stream: BinaryIO, windows: set[Window], hashed: blake2b | None) -> tuple[int, dict[Window, bytes], bytes]:
    held: dict[Window, bytes] = dict.fromkeys(windows, b"")
    position, last = 0, b""
    while chunk := stream.read(_READ_BYTES):
        if hashed:
            hashed.update(chunk)
        for start, end in windows:
            if start < position + len(chunk) and end > position:
                held[start, end] += chunk[max(start - position, 0) : end - position]
        position += len(chunk)
        last = (last + chunk)[-SEAM_BYTES:]
    return position, held, last


class Known:
    """The lake's sources, found by path, by content, by prefix."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.by_id = {source.source: source for source in sources}
        self._by_content: dict[tuple[int, str], list[Source]] = {}
        self._by_prefix: dict[str, list[Source]] = {}
        self._by_base: dict[str, list[Source]] = {}
        self._standing: dict[str, bool] = {}
        for source in self.by_id.values():
            self._by_content.setdefault((source.size_bytes, source.prefix_hash), []).append(source)
            if source.prefix_bytes == HEAD_BYTES:
                self._by_prefix.setdefault(source.prefix_hash, []).append(source)
            else:
                self._by_base.setdefault(base_name(source.path), []).append(source)

    def at(self, path: str) -> list[Source]:
        """The generations of a path, oldest first."""
        generations: list[Source] = []
        while (source := self.by_id.get(source_id(path, len(generations)))) is not None:
            generations.append(source)
        return generations

    def identify(self, found: Found) -> Source | str:
        """The known source this is, or the name of a new one."""
        generations = self.at(found.path)
        if not found.readable and generations:
            return generations[-1]
        for source in reversed(generations):
            if _holds(found, source):
                return source
        return self._copy(found) or self._moved(found) or source_id(found.path, len(generations))

    def _copy(self, found: Found) -> Source | None:
        for source in self._by_content.get((found.size_bytes, found.prefix_hash), ()):
            if found.size_bytes and same_place(found.path, source.path) and _holds(found, source):
                return source
        return None

    def _moved(self, found: Found) -> Source | None:
        """A known source this file continues, where what the lake knows it by no longer stands at its path."""
        same_name = [source for source in self._by_base.get(base_name(found.path), ()) if _TELLING_BYTES <= source.prefix_bytes < found.size_bytes]
        for source in self._by_prefix.get(found.prefix_hash, []) + same_name:
            continues = found.size_bytes >= source.size_bytes and same_place(found.path, source.path) and _holds(found, source)
            if continues and (absolute(source.path) == absolute(found.path) or not self.stands(source)):
                return source
        return None

    def stands(self, source: Source) -> bool:
        """Whether the file that the source is known by is still at its path."""
        if source.source not in self._standing:
            archive, _, member = source.path.partition("!")
            alone = _look(Found(source.path, source.path, None), ())
            self._standing[source.source] = os.path.isfile(archive) if member and not alone.readable else _holds(alone, source)
        return self._standing[source.source]


def hashed_whole(found: Found, sources: Iterable[Source]) -> bool:
    """Whether all bytes of a file have to be looked at to tell it from one of these sources: modified since, and of a kind that is written whole."""
    return any(source.whole_hash is not None and source.modified_ns != found.modified_ns for source in sources)


def _same_whole(found: Found, source: Source) -> bool:
    """Whether a file of the same size as a source that is written whole is that source."""
    if found.size_bytes != source.size_bytes:
        return False
    if source.whole_hash is None or (found.modified_ns == source.modified_ns and found.path == source.path):
        return True
    if found.whole_hash is None and found.member is None:
        found = _look(found, (), whole=True)
    return found.whole_hash in (None, source.whole_hash)


def _holds(found: Found, source: Source) -> bool:
    """Whether the bytes that the source is known by are there; an empty file says nothing yet, a shorter one holds by its longest hashed head."""
    if source.parser in _WRITTEN_WHOLE and source.size_bytes and not _same_whole(found, source):
        return False
    if not found.readable or source.prefix_bytes > max(found.size_bytes, 0):
        common = max(found.heads.keys() & source.heads.keys(), default=None)
        return found.readable and (not found.size_bytes or (common is not None and found.heads[common] == source.heads[common]))
    wanted = [window for window in windows_of(source) if window[1] <= found.size_bytes]
    checks = {(0, found.prefix_bytes): found.prefix_hash, (0, 0): "", **found.checks}
    if found.member is None and not checks.keys() >= set(wanted):
        checks |= _look(found, wanted).checks
    prefix, *seam = wanted
    same_head = not source.prefix_bytes or checks.get(prefix) == source.prefix_hash
    return same_head and all(checks.get(window, source.seam_hash) == source.seam_hash for window in seam)


def _look(found: Found, wanted: Iterable[Window], whole: bool = False) -> Found:
    """Examine a file outside the plan; one that cannot be read holds nothing."""
    try:
        with open_stream(found.file) as stream:
            return examine(found, stream, wanted, whole)
    except (LedgerError, OSError):
        return replace(found, readable=False)
