"""What reading one snapshot may cost, and the error in which a reader ends.

Both readers have the same face, `read(data, limits) -> SnapshotColumns`: `data` is the whole pickle, decompressed, as a buffer of bytes
(a `memoryview` of a mapped file). They run in a process of their own under these limits (`ingest.parsers.snapshot.reading`), because a
pickle of ten bytes can ask for 16 GB and one of a kilobyte can hash for years.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ingest.errors import LedgerError

GIB = 2**30
_BASE_BYTES = GIB
_BYTES_PER_BYTE = 14
"""Objects of Python take about 8 bytes a byte of pickle on files of torch (measured: docs/formats.md); the rest is headroom."""

_BASE_SECONDS = 2.0
_SECONDS_PER_BYTE = 1 / 4e6
MEMORY_VARIABLE = "HBMLEDGER_SNAPSHOT_MEMORY_GB"
_MEMORY_GB = 16.0
_DAMAGED = "copy the file again, or write the snapshot again"
HOSTILE = "do not load this file with pickle; ask where it comes from"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """`memory_bytes` of address space beyond the file's own and `seconds` of processor time; `file_bytes` the largest pickle, decompressed."""

    memory_bytes: int
    seconds: float
    file_bytes: int


def limits_for(pickle_bytes: int) -> ReadLimits:
    """Limits by size, below the ceiling that `HBMLEDGER_SNAPSHOT_MEMORY_GB` sets (16). Raises `LedgerError` for a ceiling that is no number."""
    ceiling_bytes = memory_ceiling_bytes()
    memory_bytes = min(_BASE_BYTES + _BYTES_PER_BYTE * pickle_bytes, ceiling_bytes)
    return ReadLimits(memory_bytes, _BASE_SECONDS + _SECONDS_PER_BYTE * pickle_bytes, ceiling_bytes)


def memory_ceiling_bytes() -> int:
    """The ceiling in bytes."""
    given = os.environ.get(MEMORY_VARIABLE) or str(_MEMORY_GB)
    try:
        gigabytes = float(given)
    except ValueError:
        gigabytes = 0.0
    if not 0.5 <= gigabytes <= 10_000:
        raise LedgerError("the memory for reading a snapshot is a number of GiB from 0.5", where=f"{MEMORY_VARIABLE}={given}", todo="set another")
    return int(gigabytes * GIB)


def hostile(what: str, byte: int | None = None) -> LedgerError:
    """A pickle that asks for what no snapshot needs."""
    return _refused(what, byte, HOSTILE)


def damaged(what: str, byte: int | None = None) -> LedgerError:
    """A pickle that does not hold together."""
    return _refused(what, byte, _DAMAGED)


def is_damage(error: LedgerError) -> bool:
    """Whether a refusal could be the fault of bytes that are missing."""
    return error.todo == _DAMAGED


def no_snapshot(what: str) -> LedgerError:
    """A pickle of another shape."""
    return _refused(what, None, "give a file of torch.cuda.memory._dump_snapshot")


def too_large(what: str) -> LedgerError:
    """A pickle that the limits stop."""
    return _refused(what, None, f"raise {MEMORY_VARIABLE} where the file is to be trusted with more")


def _refused(what: str, byte: int | None, todo: str) -> LedgerError:
    return LedgerError(what if byte is None else f"{what} (byte {byte:,})", todo=todo)
