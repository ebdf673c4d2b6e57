"""Snapshot reader (a), in Python: the C unpickler, allowed to find nothing.

Plain containers, texts and numbers need no class, so `find_class` and `persistent_load` always raise; without a class from there the
opcodes that call or fill one (REDUCE, BUILD, NEWOBJ, OBJ, ...) have nothing to work on. That does not stop memory bombs: run
it under limits (`ingest.parsers.snapshot.reading`). The garbage collector is off meanwhile, because it would walk millions of live
containers again and again. Not `pickle.loads`: it takes no `find_class`. Not a loop over opcodes in Python: ten times slower.
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
from ingest.parsers.snapshot.limits import HOSTILE, ReadLimits, damaged, hostile, too_large
from ingest.parsers.snapshot.opcodes import first_refused
from ingest.parsers.snapshot.source import Bytes, Source

PROTOCOLS = (2, 3, 4, 5)
_BUILDS = "is a pickle with instructions to build objects, which no snapshot has; nothing was executed"


def read(data: Bytes, limits: ReadLimits) -> SnapshotColumns:
    """Read a whole pickle. Raises `LedgerError` for one that names code, is damaged, is no snapshot or is larger than `limits` allow."""
    if len(data) > limits.file_bytes:
        raise too_large(f"holds {len(data):,} bytes of pickle, more than the {limits.file_bytes:,} that may be read")
    if len(data) < 2 or data[0] != 0x80 or data[1] not in PROTOCOLS:
        raise damaged("does not begin as a pickle of protocol 2 to 5", 0)
    source = Source(data)
    with _uncollected():
        columns = assemble(_load(source), len(data))
    if source.position < len(data):
        columns.unknown["bytes after the end"] = len(data) - source.position
    return columns


class _FindsNothing(pickle.Unpickler):
    """An unpickler without classes."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise hostile(f"is a pickle that names code to run ({_shown(module)}.{_shown(name)}), which no snapshot does; nothing was executed")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise hostile("is a pickle that points to objects outside itself, which no snapshot does; nothing was executed")


def _load(source: Source) -> Any:
    try:
        return _FindsNothing(source).load()
    except LedgerError as error:
        raise _placed(error, source) from None
    except MemoryError:
        raise _placed(too_large("asks for more memory than reading it may take"), source) from None
    except Exception as error:  # the unpickler raises whatever a damaged stream makes its opcodes meet
        raise _placed(_reason(error), source) from None


def _placed(error: LedgerError, source: Source) -> LedgerError:
    """The error with the opcode and byte, where those are found quickly."""
    place = first_refused(source.data)
    if place is None:
        return error
    if place.opcode is None:
        return damaged(f"is no whole pickle: it breaks after {place.byte:,} of {len(source):,} bytes")
    return hostile(f"{error.what if error.todo == HOSTILE else _BUILDS}: {place.opcode}", place.byte)


def _reason(error: Exception) -> LedgerError:
    if isinstance(error, EOFError) or "truncated" in str(error) or "exhausted" in str(error):
        return damaged("ends early: the pickle is cut off")
    return damaged(f"is no whole pickle ({type(error).__name__}: {_shown(str(error))})")


def _shown(text: str) -> str:
    return ascii(text[:60])[1:-1]


@contextmanager
def _uncollected() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
