"""Files inside folders and archives, one after the other, with nothing trusted.

Folders are walked in order of names; a folder reached twice (a loop of links) is entered once, hidden entries, Delta tables and program
text (`SOURCES`) are left out. Members of zip and tar archives (tar also compressed) are streamed, never extracted to a place that the
archive names. A member with an absolute or climbing name, a link, a device, a sparse file, an encrypted or a nested archive is refused with
a sentence, and the others are read. An archive that grows beyond `Limits` ends there. Not `extractall`: it writes where the archive says and
has no limit.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from ingest.artifacts import HEAD_BYTES, LIMITS, Limits, compression, damage, decompressed, open_stream
from ingest.errors import LedgerError

_NOT_ARCHIVES = (".npz", ".pt", ".pth", ".whl", ".jar", ".docx", ".xlsx")  # zip inside, but one document
SOURCES = (".py", ".pyc", ".md", ".rst", ".html", ".ipynb", ".patch", ".diff", ".toml", ".lock", ".c", ".cc", ".cpp", ".cu", ".h", ".js", ".css")
"""Program text and pages: they quote what programs print and are no records of a run. Read only where given by themselves."""

_DIRECTORY_BYTES = 64 * 1024 * 1024
_HEADER_BYTES = 1024 * 1024
BROKEN = (tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError, EOFError, struct.error)


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive; `stream` is None where it was refused, with the reason in `problem`."""

    name: str
    stream: BinaryIO | None
    problem: str | None = None


def files_below(path: Path, enters: Callable[[str], bool] | None = None) -> Iterator[tuple[Path, str | None]]:
    """Files of a folder, in order of names, each folder once whatever the links say; a folder that cannot be listed with the reason.

    `enters` is asked for each folder below.
    """
    seen: set[tuple[int, int]] = set()
    failed: list[OSError] = []
    for folder, folders, files in os.walk(path, followlinks=True, onerror=failed.append):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen or "_delta_log" in folders:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith(".") and (enters is None or enters(os.path.join(folder, name))))
        yield from ((Path(folder, name), None) for name in sorted(files) if not (name.startswith(".") or name.lower().endswith(SOURCES)))
    yield from ((Path(os.fsdecode(error.filename)), f"the folder cannot be listed: {error.strerror}") for error in failed)


def archive_kind(path: str) -> str | None:
    """`zip`, `tar` or None. Raises `LedgerError` where the file cannot be read."""
    with open_stream(path) as stream:
        return _kind(stream.read(HEAD_BYTES), path)


def members(path: str, limits: Limits = LIMITS) -> Iterator[Member]:
    """The files of an archive in its order; use each stream before the next. What stops the archive raises `LedgerError`."""
    inner = _zip_members if archive_kind(path) == "zip" else _tar_members
    names: set[str] = set()
    try:
        for member in inner(path, limits):
            if len(names) >= limits.members:
                raise _refused(path, f"holds more than {limits.members:,} files")
            yield Member(member.name, None, "the name occurs twice in the archive; the first was read") if member.name in names else member
            names.add(member.name)
    except BROKEN as error:
        raise _refused(path, f"the archive is damaged: {error}") from error


def _kind(head: bytes, path: str) -> str | None:
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06") and not path.lower().endswith(_NOT_ARCHIVES):
        return "zip"
    return "tar" if head[257:262] == b"ustar" or (path.lower().endswith(".tar") and _old_tar(head)) else None


def _old_tar(head: bytes) -> bool:
    try:
        return bool(tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape").name)
    except tarfile.HeaderError:
        return False


def _refused(path: str, what: str) -> LedgerError:
    return LedgerError(what, where=path, todo="unpack what you need of it and ingest the folder")


def _unsafe(name: str) -> str | None:
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or name[1:2] == ":" or "\0" in name:
        return "the archive gives it an absolute name"
    return "the archive gives it a name that climbs out (..)" if ".." in parts else None


def _zip_members(path: str, limits: Limits) -> Iterator[Member]:
    _check_directory(path)
    with zipfile.ZipFile(path) as archive:
        total_bytes = 0
        for info in archive.infolist():
            total_bytes += info.file_size
            limits.check(total_bytes, total_bytes, path)
            if not info.is_dir():
                yield from _opened(info.filename, _zip_problem(info, limits), lambda info=info: archive.open(info), limits, path)


def _zip_problem(info: zipfile.ZipInfo, limits: Limits) -> str | None:
    mode = info.external_attr >> 16
    if problem := _unsafe(info.filename):
        return problem
    if stat.S_IFMT(mode) and not stat.S_ISREG(mode):
        return "it is a link or a device"
    if info.flag_bits & 1:
        return "it is encrypted"
    try:
        limits.check(info.file_size, info.compress_size, info.filename)
    except LedgerError as error:
        return error.what
    return None


def _check_directory(path: str) -> None:
    """Refuse a zip whose table of contents alone would fill the memory: `ZipFile` reads it whole."""
    with open(path, "rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - 66_000, 0))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    directory = struct.unpack_from("<I", tail, at + 12)[0] if at >= 0 else 0
    if directory == 0xFFFFFFFF and (at := tail.rfind(b"PK\x06\x06")) >= 0:
        directory = struct.unpack_from("<Q", tail, at + 40)[0]
    if directory > _DIRECTORY_BYTES:
        raise _refused(path, f"its table of contents holds {directory:,} bytes")


class _CheckedHeader(tarfile.TarInfo):
    """A tar header whose extensions (long names, pax records) are small: `tarfile` reads those whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Any:
        header = super().frombuf(buf, encoding, errors)
        if header.type in b"xgXLK" and header.size > _HEADER_BYTES:
            raise _refused(header.name, f"a header of the archive holds {header.size:,} bytes")
        return header


def _tar_members(path: str, limits: Limits) -> Iterator[Member]:
    with open_stream(path, limits) as stream:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_CheckedHeader) as archive:
            for info in archive:
                if not info.isdir():
                    yield from _opened(info.name, _tar_problem(info), lambda info=info: archive.extractfile(info), limits, path)
                archive.members = []  # type: ignore[attr-defined]  # else every header stays in memory
        if problem := damage(stream):
            raise _refused(path, problem)


def _tar_problem(info: tarfile.TarInfo) -> str | None:
    if problem := _unsafe(info.name):
        return problem
    return None if info.isreg() and not info.issparse() else "it is a link, a device or a sparse file"


def _opened(name: str, problem: str | None, opener: Any, limits: Limits, path: str) -> Iterator[Member]:
    """One member: decompressed where it is compressed itself, refused where it is an archive or cannot be opened."""
    if problem:
        yield Member(name, None, problem)
        return
    try:
        opened = opener()
    except (NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        yield Member(name, None, f"it cannot be opened: {error}")
        return
    with io.BufferedReader(_Forward(opened), HEAD_BYTES) as stream:
        codec = compression(stream.peek(8))
        plain = decompressed(cast(BinaryIO, stream), codec, f"{path}!{name}", limits) if codec else cast(BinaryIO, stream)
        head = cast(io.BufferedReader, plain).peek(512)
        yield Member(name, None, "it is an archive inside an archive") if _kind(head, name) else Member(name, plain)


class _Forward(io.RawIOBase):
    """A member read from its start to its end only: tar streams cannot go back, and their file objects say so by failing."""

    def __init__(self, member: Any) -> None:
        self._member = member

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._member.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._member.close()
        super().close()
