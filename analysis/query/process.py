"""A person's query in a process of its own, which can be stopped whatever it does: `answer` starts it, `main` is it.

DuckDB's limits hold for what it buffers, and its interrupt for what it checks between steps: a single value of gigabytes or a deep expression passes
both. So the child gives up memory above a limit (RLIMIT_DATA), writing files (RLIMIT_FSIZE) and processor time, and is killed when
its time is over; whatever becomes of it, the caller lives and says one sentence. The answer comes back as an Arrow stream through a pipe.
"""

from __future__ import annotations

import io
import json
import os
import resource
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import duckdb
import pyarrow as pa

from analysis.database import locked
from analysis.query.ask import ROW_LIMIT, SECONDS_LIMIT, Answer, ask, too_slow
from ingest.errors import LedgerError
from ingest.lake import Lake

MEMORY_BYTES = 2 * 2**30
"""What DuckDB may buffer (`analysis.database.locked`)."""
SPARE_BYTES = 2**30
"""What the child may hold beside it: the answer, single large values, lists of files."""
OPENING_SECONDS = 300.0
_GRACE_SECONDS = 1.0
_ROOT = Path(__file__).resolve().parents[2]
_AT_ONCE = threading.BoundedSemaphore(2)


def answer(root: str, query: str, *, rows: int = ROW_LIMIT, seconds: float = SECONDS_LIMIT) -> Answer:
    """The answer of the lake at `root` to one SELECT. Raises LedgerError as `analysis.query.ask.ask` does, and where the child had to be stopped.

    Two queries run at a time in one process; a third waits.
    """
    request = json.dumps({"root": root, "query": query, "rows": rows, "seconds": seconds}).encode()
    with _AT_ONCE:
        child = subprocess.Popen([sys.executable, "-P", "-m", "analysis.query.process"], env=_environment(), stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(request)
            child.stdin.close()
            said = _heard(child.stdout, seconds)
        except BrokenPipeError:
            said = b""
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
    return _understood(said)


def _heard(pipe: IO[bytes], seconds: float) -> bytes:
    """All that the child says: a first line when the lake is open, from then on within the query's time."""
    said, deadline, opened = bytearray(), time.monotonic() + OPENING_SECONDS, False
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            break
        chunk = os.read(pipe.fileno(), 2**20)
        if not chunk:
            return bytes(said)
        said += chunk
        if not opened and b"\n" in said:
            opened, deadline = True, time.monotonic() + seconds + _GRACE_SECONDS
    raise too_slow(seconds) if opened else LedgerError(f"the lake did not open within {OPENING_SECONDS:g} s")


def _understood(said: bytes) -> Answer:
    lines = said.split(b"\n", 2)
    if len(lines) < 3:
        raise LedgerError("the query was stopped: it needs more memory or processor time than it may take", todo="narrow it")
    head = json.loads(lines[1])
    if "error" in head:
        raise LedgerError(**head["error"])
    return Answer(pa.ipc.open_stream(lines[2]).read_all(), head["capped"])


def _environment() -> dict[str, str]:
    """This process's, with our packages findable from any folder and without pools that reserve address space."""
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def main() -> int:
    """Answer the request on standard input."""
    request: dict[str, Any] = json.load(sys.stdin.buffer)
    with os.fdopen(os.dup(1), "wb", buffering=0) as said:
        try:
            connection = locked(Lake(request["root"]))
        except LedgerError as error:
            said.write(b"closed\n" + _refusal(error) + b"\n")
            return 0
        _confine(request["seconds"])
        said.write(b"open\n")
        said.write(_answered(connection, request["query"], request["rows"], request["seconds"]))
    return 0


def _answered(connection: duckdb.DuckDBPyConnection, query: str, rows: int, seconds: float) -> bytes:
    try:
        found = ask(connection, query, rows=rows, seconds=seconds)
        body = io.BytesIO()
        with pa.ipc.new_stream(body, found.table.schema) as stream:
            stream.write_table(found.table)
        return json.dumps({"capped": found.capped}).encode() + b"\n" + body.getvalue()
    except LedgerError as error:
        return _refusal(error) + b"\n"
    except MemoryError:
        return _refusal(LedgerError("the query needs more memory than it may take", todo="narrow it")) + b"\n"


def _refusal(error: LedgerError) -> bytes:
    return json.dumps({"error": {"what": error.what, "where": error.where, "todo": error.todo}}).encode()


def _confine(seconds: float) -> None:
    """No core dump, no byte into any file, no more data than there is now and the query may take, and an end though the caller has died."""
    limits = ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_DATA, _held("VmData") + MEMORY_BYTES + SPARE_BYTES),
              (resource.RLIMIT_CPU, round(min(time.process_time() + 4 * seconds + 60, 2**31))))
    for what, value in limits:
        _, hard = resource.getrlimit(what)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))


def _held(name: str) -> int:
    """Bytes of a line of /proc/self/status; 1 GiB where there is no such file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 2**30
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 2**30)


if __name__ == "__main__":
    sys.exit(main())
