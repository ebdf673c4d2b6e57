"""The two readers of one face, `read(data, limits) -> SnapshotColumns`, chosen at run time."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable

from ingest.errors import LedgerError
from ingest.parsers.snapshot.columns import SnapshotColumns
from ingest.parsers.snapshot.limits import ReadLimits
from ingest.parsers.snapshot.source import Bytes

READERS = ("auto", "python", "compiled")
READER_VARIABLE = "HBMLEDGER_SNAPSHOT_READER"

Read = Callable[[Bytes, ReadLimits], SnapshotColumns]


def chosen(reader: str = "auto") -> str:
    """`python` or `compiled`: what is asked for, by argument or `HBMLEDGER_SNAPSHOT_READER`; else compiled where it was built.

    Raises `LedgerError` for a name that is no reader and for a compiled reader that was not built.
    """
    asked = (os.environ.get(READER_VARIABLE) or "auto") if reader == "auto" else reader
    if asked not in READERS:
        raise LedgerError("is no snapshot reader", where=asked, todo=f"give one of {', '.join(READERS)}")
    built = asked != "python" and _compiled_is_built()
    if asked == "compiled" and not built:
        raise LedgerError("the compiled snapshot reader was not built", where=asked, todo="install again with a C compiler, or use the python reader")
    return "compiled" if built else "python"


def reader_named(name: str) -> Read:
    """The function of a reader."""
    read: Read = importlib.import_module(f"ingest.parsers.snapshot.{'compiled' if name == 'compiled' else 'pickled'}").read
    return read


def _compiled_is_built() -> bool:
    from ingest.parsers.snapshot.compiled import available

    return available()
