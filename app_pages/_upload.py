"""An upload on its way into the lake: spooled to disk in pieces, then ingested by a thread that the page watches and can stop.

The ingest runs beside the page, not in its body: a rerun (any click) would start it again, and a cancel button could not be pressed.
Uploads lie in a temporary folder that goes when their session goes, below a name that becomes the run's.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Any, BinaryIO, Protocol

from ingest.errors import LedgerError
from ingest.lake import Lake

SPOOL = "hbmledger-upload-"
"""Prefix of the temporary folder that holds a session's uploads."""

PIECE_BYTES = 4 * 2**20
LONGEST_NAME_BYTES = 200
"""Of one part of a name, in UTF-8: file systems take 255, and a number or an ending may be put to it."""
COMMIT_SECONDS = 5.0
"""So long a person waits at most for the first of many files: what is read by then can be opened while the rest is read."""
_ARCHIVE = re.compile(r"\.(?:zip|tar|tgz|tar\.\w+)$", re.IGNORECASE)
_ENDINGS = re.compile(r"(?:\.(?:gz|zst|xz|bz2|zip|tar|tgz|log|txt|out|jsonl?|pickle))+$", re.IGNORECASE)


class Upload(Protocol):
    """What Streamlit hands over: a name (with folders, for a folder) and bytes to read."""

    name: str

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""


class Folder:
    """A temporary folder that goes with the last session or job that holds it, or at exit."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix=SPOOL))
        self._end = weakref.finalize(self, shutil.rmtree, self.path, True)


@dataclass
class Job:
    """One ingest under way; `summary` or `error` tells how it ended, `folder` keeps the uploaded files until the session ends.

    `named` tells that a person named the run, and so may mean one that is there already. `runs` can be opened already, in the order they came.
    """

    paths: list[Path]
    lake: str
    run: str | None = None
    folder: Folder | None = None
    named: bool = False
    stage: str = "waiting"
    done_bytes: int = 0
    total_bytes: int = 0
    path: str = ""
    runs: list[str] = field(default_factory=list)
    summary: Any = None
    error: str | None = None
    started: float = field(default_factory=time.monotonic)
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def start(self) -> Job:
        """Begin; returns at once."""
        self.thread = threading.Thread(target=self._work, name="ingest", daemon=True)
        self.thread.start()
        return self

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.thread is not None and self.thread.is_alive()

    @property
    def rate_bytes(self) -> float:
        """Bytes a second since the start."""
        return self.done_bytes / max(time.monotonic() - self.started, 0.1)

    def _work(self) -> None:
        from ingest.pipeline import ingest

        try:
            self.summary = ingest(self.paths, Lake(self.lake), run=self.run, progress=self._note, cancelled=self.stop.is_set,
                                  committed=self._committed, commit_seconds=COMMIT_SECONDS)
        except LedgerError as error:
            self.error = str(error)
        except Exception as error:
            self.error = f"the ingest ended by a defect of ours ({type(error).__name__}); what was committed before stays"
            raise

    def _committed(self, runs: Collection[str]) -> None:
        self.runs += sorted(set(runs) - set(self.runs))

    def _note(self, stage: str, done_bytes: int, total_bytes: int, path: str) -> None:
        self.stage, self.done_bytes, self.total_bytes, self.path = stage, done_bytes, total_bytes, path


def spool(uploads: Iterable[Upload], folder: Path, known: Iterable[str]) -> Path:
    """Write uploads below `folder`, in a folder named after them; that folder, or the only archive. No name leaves it, none overwrites another.

    Raises LedgerError where the disk does not take them all, and leaves none of them there.
    """
    named = [(_parts(upload.name), upload) for upload in uploads]
    label = _label([parts for parts, _ in named], {*known, *(path.name for path in folder.iterdir())})
    try:
        return _spooled(named, folder / label)
    except OSError as error:
        shutil.rmtree(folder / label, ignore_errors=True)
        raise LedgerError(f"the upload could not be written to the server's disk: {error.strerror or error}", where=label,
                          todo=f"bring less, or have room made in {folder.parent}; the app's TMPDIR names another folder") from error


def _spooled(named: list[tuple[tuple[str, ...], Upload]], target: Path) -> Path:
    names = [parts for parts, _ in named]
    if len(named) == 1 and (ending := _ARCHIVE.search(names[0][-1])):
        return _write(named[0][1], target / f"{target.name}{ending.group()}")
    for parts, upload in named:
        _write(upload, _free(target / Path(*parts[1 if _common_top(names) else 0:])))
    return target


def under_root(given: str, root: str) -> Path:
    """A path on the server below the allowed root. Raises LedgerError where it leads elsewhere or is not there."""
    allowed = Path(root).resolve()
    path = (allowed / given.strip()).resolve()
    if not path.is_relative_to(allowed):
        raise LedgerError("this path is outside the folder that the server offers", where=given, todo="give a path below it")
    if not path.exists():
        raise LedgerError("no such file or folder", where=given, todo="give a path relative to the folder that the server offers")
    return path


def _write(upload: Upload | BinaryIO, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as target:
        while piece := upload.read(PIECE_BYTES):
            target.write(piece)
    return path


def _parts(name: str) -> tuple[str, ...]:
    """The harmless parts of an uploaded name."""
    plain = "".join(char if char.isprintable() else "_" for char in name.replace("\\", "/"))
    kept = [_cut(part) for part in PurePosixPath(plain).parts if part not in ("/", ".", "..")]
    return tuple(kept) or ("upload",)


def _cut(part: str) -> str:
    """As much of a name as a file system takes, with its last endings, which tell what it holds."""
    ending = ("".join(PurePosixPath(part).suffixes[-2:])).encode()[-40:]
    stem = part.encode().removesuffix(ending)[:LONGEST_NAME_BYTES - len(ending)]
    return part if len(part.encode()) <= LONGEST_NAME_BYTES else (stem + ending).decode(errors="ignore")


def _common_top(names: list[tuple[str, ...]]) -> str | None:
    """The one folder that all names lie in."""
    tops = {parts[0] if len(parts) > 1 else None for parts in names}
    return next(iter(tops)) if len(tops) == 1 else None


def _label(names: list[tuple[str, ...]], taken: set[str]) -> str:
    """What the run is called when nobody names it: the folder, the one file, or `upload`; new where that name is taken."""
    top = _common_top(names)
    return free_name(top or (_ENDINGS.sub("", names[0][-1]) if len(names) == 1 else "upload") or "upload", taken)


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or the first of `name-2`, `name-3`, ... that is not taken."""
    return name if name not in taken else next(one for one in (f"{name}-{number}" for number in range(2, 1_000_000)) if one not in taken)


def _free(path: Path) -> Path:
    """The path, or one beside it where it is taken."""
    candidates = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(2, 1_000_000))
    return path if not path.exists() else next(one for one in candidates if not one.exists())
