"""Snapshot reader (a), in Python: the C unpickler, allowed to find nothing.

First every instruction is checked against the few that plain data needs (`opcodes`). Then the unpickler runs with a `find_class` and a
`persistent_load` that always raise: a second lock, as no instruction that asks for them is left. Neither stops memory bombs of plain data: run it
under limits (`ingest.parsers.snapshot.reading`). The garbage collector is off meanwhile, because it would walk millions of
live containers again and again. Not `pickle.loads`: it takes no `find_class`. Not a loop over instructions in Python: ten times slower.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ingest.errors import LedgerError
from ingest.parsers.snapshot.assemble import assemble
from ingest.parsers.snapshot.columns import SnapshotColumns
from ingest.parsers.snapshot.limits import ReadLimits, damaged, hostile, too_large
from ingest.parsers.snapshot.opcodes import PROTOCOLS as PROTOCOLS
from ingest.parsers.snapshot.opcodes import checked_end
from ingest.parsers.snapshot.source import Bytes, Source


def read(data: Bytes, limits: ReadLimits) -> SnapshotColumns:
    """Read a whole pickle. Raises `LedgerError` for one that names code, is damaged, is no snapshot or is larger than `limits` allow."""
    if len(data) > limits.file_bytes:
        raise too_large(f"holds {len(data):,} bytes of pickle, more than the {limits.file_bytes:,} that may be read")
    end = checked_end(data)
    with _uncollected():
        columns = assemble(_load(data), len(data))
    if end < len(data):
        columns.unknown["bytes after the end"] = len(data) - end
    return columns


class _FindsNothing(pickle.Unpickler):
    """An unpickler without classes."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise hostile("is a pickle that names code to run, which no snapshot does; nothing was executed")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise hostile("is a pickle that points to objects outside itself, which no snapshot does; nothing was executed")


def _load(data: Bytes) -> Any:
    try:
        return _FindsNothing(Source(data)).load()
    except LedgerError:
        raise
    except MemoryError:
        raise too_large("asks for more memory than reading it may take") from None
    except Exception as error:  # the unpickler raises whatever a damaged stream makes its instructions meet
        raise damaged(f"is no whole pickle ({type(error).__name__}: {ascii(str(error)[:80])[1:-1]})") from None


@contextmanager
def _uncollected() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
