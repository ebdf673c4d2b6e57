"""Many pickles through one reader in one confined process: `python -m tests...batch READER FOLDER` prints how each ended, as JSON lines."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from ingest.errors import LedgerError
from ingest.parsers.snapshot.child import confine
from ingest.parsers.snapshot.limits import ReadLimits
from ingest.parsers.snapshot.readers import reader_named

LIMITS = ReadLimits(memory_bytes=2**30, seconds=600, file_bytes=2**30)


def main(reader: str, folder: str) -> None:
    """Anything but columns or a `LedgerError` ends the process with a traceback."""
    read = reader_named(reader)
    confine(LIMITS)
    for path in sorted(Path(folder).iterdir()):
        began = time.process_time()
        try:
            read(memoryview(path.read_bytes()), LIMITS)
            said = {"ok": True}
        except LedgerError as error:
            said = {"ok": False, "what": error.what, "todo": error.todo}
        print(json.dumps({"name": path.name, "seconds": time.process_time() - began, **said}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
