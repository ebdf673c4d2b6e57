"""The file system through which DuckDB reads a lake in an object store: the lake's own data files by range, and nothing else.

It speaks a scheme of its own (`lake://TABLE/...`), so that DuckDB never takes such a file for one of its `s3://` extension, and it answers for
files that the lake has named only: a query of a person reaches no other object, whatever it says. Sizes come from the table's log: no request
is spent on them. Needs fsspec, whose class DuckDB insists on; the reading itself is delta-rs's, with the credentials that write.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from deltalake.fs import DeltaStorageHandler
from fsspec import AbstractFileSystem

SCHEME = "lake"


class RangeFile:
    """One file, read by many threads: DuckDB seeks and then reads, from several threads on one handle, so each thread has a position of its own.

    Not a `threading.local`: for Python such a thread begins anew with every call.
    """

    closed = False

    def __init__(self, store: DeltaStorageHandler, name: str, size: int) -> None:
        self._store, self._name, self.size = store, name, size
        self._positions: dict[int, int] = {}

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move this thread's position (bytes)."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self.size}[whence]
        self._positions[threading.get_ident()] = start + offset
        return start + offset

    def tell(self) -> int:
        """This thread's position in bytes."""
        return self._positions.get(threading.get_ident(), 0)

    def read(self, size: int = -1) -> bytes:
        """Bytes from this thread's position on."""
        start = self.tell()
        wanted = self.size - start if size < 0 else min(size, self.size - start)
        if wanted <= 0:
            return b""
        with self._store.open_input_file(self._name) as reader:
            reader.seek(start)
            found = bytes(reader.read(wanted))
        self.seek(start + len(found))
        return found

    def seekable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Nothing is held open between two reads."""


class LakeFiles(AbstractFileSystem):  # type: ignore[misc]
    """Read only; `sizes` are bytes by `TABLE/path`, and may grow."""

    protocol = SCHEME
    cachable = False

    def __init__(self, root: str, settings: dict[str, str], sizes: Mapping[str, int]) -> None:
        super().__init__()
        self._root, self._settings, self._sizes = root, settings, sizes
        self._handler: tuple[int, DeltaStorageHandler] | None = None

    def _size(self, path: str) -> int:
        name = self._strip_protocol(path)
        if name not in self._sizes:
            raise FileNotFoundError(f"no file of this lake: {path}")
        return self._sizes[name]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type. Raises FileNotFoundError for a file that is not the lake's."""
        return {"name": self._strip_protocol(path), "size": self._size(path), "type": "file"}

    def exists(self, path: str, **_: Any) -> bool:
        """Whether the lake has named the file."""
        return self._strip_protocol(path) in self._sizes

    def glob(self, path: str, **_: Any) -> list[str]:
        """The file itself: a pattern stands for nothing here."""
        return [self._strip_protocol(path)] if self.exists(path) else []

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """The file itself: folders are not listed."""
        return [self.info(path) if detail else self._strip_protocol(path)] if self.exists(path) else []

    def modified(self, path: str) -> datetime:
        """One moment for all: a data file is never changed after it is written."""
        self._size(path)
        return datetime(1970, 1, 1, tzinfo=UTC)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise PermissionError(f"the files of a lake are read only: {path}")
        return RangeFile(self._store(), self._strip_protocol(path), self._size(path))

    def _store(self) -> DeltaStorageHandler:
        """One connection pool for all files; made anew where files were named since, because it is told their sizes once."""
        count = len(self._sizes)
        if self._handler is None or self._handler[0] != count:
            self._handler = count, DeltaStorageHandler(self._root, self._settings, dict(self._sizes))
        return self._handler[1]
