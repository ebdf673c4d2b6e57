"""The process that reads one snapshot: `python -m ingest.parsers.snapshot.child READER MEMORY SECONDS FILE_BYTES`.

Standard input is the pickle (a regular file, mapped), standard output (another) takes the columns, or the one sentence of a refusal as JSON.
The limits are set before the first byte is read; the imports come before them, because they are ours and need room of their own.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence

import pyarrow as pa

from ingest.errors import LedgerError
from ingest.parsers.snapshot import transfer
from ingest.parsers.snapshot.limits import GIB, ReadLimits, damaged, too_large
from ingest.parsers.snapshot.readers import reader_named


def main(arguments: Sequence[str]) -> int:
    """Read, and end with 0, or with 1 and a sentence."""
    reader, memory, seconds, file_bytes = arguments
    limits = ReadLimits(int(memory), float(seconds), int(file_bytes))
    read = reader_named(reader)
    try:
        data = mmap.mmap(0, 0, access=mmap.ACCESS_READ)  # closed by the end of the process: a traceback may hold a view of it
        confine(limits)
        columns = read(data, limits)
        with open(1, "wb", closefd=False) as file:
            transfer.write(columns, file)
        return 0
    except LedgerError as error:
        _say(error)
    except MemoryError:
        _say(too_large("needs more memory than reading it may take"))
    except (pa.ArrowException, OverflowError, RecursionError) as error:
        _say(damaged(f"does not fit the columns of a snapshot ({type(error).__name__})"))
    return 1


def confine(limits: ReadLimits) -> None:
    """No core dump; no more address space than there is now and `memory_bytes`; no more processor time than `seconds` from now on."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_AS, _address_space() + limits.memory_bytes)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    _lower(resource.RLIMIT_CPU, max(round(time.process_time() + limits.seconds), 1))


def _lower(what: int, value: int) -> None:
    """Never above a limit that is there already; one above the soft limit is the hard one, so that the signal tells which it was."""
    _, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard - 1)
    resource.setrlimit(what, (value, value + 1))


def _address_space() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # no Linux
        return GIB


def _say(error: LedgerError) -> None:
    os.ftruncate(1, 0)
    os.pwrite(1, json.dumps({"what": error.what, "todo": error.todo}).encode(), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
