"""The pickle opcodes that a snapshot may hold, and where in a refused file the first other one stands.

Plain containers, texts, numbers and memo references: what 71 real files hold and what torch's C++ pickler writes besides. All others
(GLOBAL, REDUCE, BUILD, ...) find, call or fill classes. The walk is for the sentence only: it runs after a file was refused, for at most two
seconds, because it takes a microsecond an opcode. The unpickler itself decides.
"""

from __future__ import annotations

import pickletools
import time
from dataclasses import dataclass

from ingest.parsers.snapshot.source import Bytes, Source

ALLOWED = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1",
    "BININT2", "LONG1", "LONG4", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
))
_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """The first opcode that is not allowed, by name; `opcode` is None where the stream of opcodes itself breaks at `byte`."""

    opcode: str | None
    byte: int


def first_refused(data: Bytes, seconds: float = _SECONDS) -> Place | None:
    """Where a pickle stops being a snapshot's; None where it does not within `seconds`."""
    until = time.monotonic() + seconds
    source = Source(data)
    position = 0
    try:
        for count, (opcode, _, at) in enumerate(pickletools.genops(source)):  # type: ignore[arg-type]
            position = at or 0
            if opcode.name not in ALLOWED:
                return Place(opcode.name, position)
            if not count % 4096 and time.monotonic() > until:
                return None
    except (ValueError, UnicodeDecodeError, OverflowError):
        return Place(None, position)
    return None
