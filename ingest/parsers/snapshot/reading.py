"""Read one snapshot in a process of its own, confined in memory and time, and take its columns over without a copy.

What a hostile file can do to a reader (ask for memory, hash for years, overflow a stack) then happens to a process that holds nothing.
The pickle goes there as an open file: the file itself where it is plain, else an unnamed temporary one of the decompressed bytes.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from ingest.artifacts import Limits, damage, open_stream
from ingest.errors import LedgerError
from ingest.parsers.snapshot.columns import SnapshotColumns
from ingest.parsers.snapshot.limits import ReadLimits, damaged, hostile, limits_for, memory_ceiling_bytes, too_large
from ingest.parsers.snapshot.readers import chosen

_ROOT = Path(__file__).resolve().parents[3]
_COPY_BYTES = 1024 * 1024
_WAIT_RATIO, _WAIT_SECONDS = 5, 60
"""A process that waits for its disk uses no processor time: it is ended after this much of the clock."""


def read_snapshot(path: str | Path, reader: str = "auto", limits: ReadLimits | None = None) -> SnapshotColumns:
    """The columns of a snapshot file, compressed or not. `reader` is auto, python or compiled; `limits` are by size unless given.

    Raises `LedgerError`, one sentence, for a file that cannot be read, names code, is damaged, is no snapshot or needs too much.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise LedgerError("is no regular file", where=str(path), todo="give a file of torch.cuda.memory._dump_snapshot")
    with open_stream(path, Limits(total_bytes=memory_ceiling_bytes())) as stream:
        return read_stream(stream, str(path), reader, limits)


def read_stream(stream: BinaryIO, where: str, reader: str = "auto", limits: ReadLimits | None = None) -> SnapshotColumns:
    """The same for an open stream at its begin; `where` names it in errors."""
    name = chosen(reader)
    try:
        with _as_file(stream) as file:
            size = os.fstat(file.fileno()).st_size
            if problem := damage(stream):
                raise damaged(problem.split(";")[0])
            if not size:
                raise damaged("is empty")
            limits = limits or limits_for(size)
            if size > limits.file_bytes:
                raise too_large(f"holds {size:,} bytes of pickle, more than the {limits.file_bytes:,} that may be read")
            return _in_child(file, name, limits)
    except OSError as error:
        todo = "make room in the temporary folder, or name another by TMPDIR"
        raise LedgerError(f"cannot be unpacked: {error.strerror or error}", where=where, todo=todo) from error
    except LedgerError as error:
        raise LedgerError(error.what, where=error.where or where, todo=error.todo) from None


def _as_file(stream: BinaryIO) -> BinaryIO:
    """A file at the operating system with all bytes of the stream."""
    try:
        if stream.tell() == 0:
            return os.fdopen(os.dup(stream.fileno()), "rb")
    except (OSError, io.UnsupportedOperation):
        pass
    file = tempfile.TemporaryFile()  # noqa: SIM115 - handed to the caller
    while chunk := stream.read(_COPY_BYTES):
        file.write(chunk)
    file.flush()
    return file


def _in_child(file: BinaryIO, reader: str, limits: ReadLimits) -> SnapshotColumns:
    from ingest.parsers.snapshot import transfer

    module = [sys.executable, "-P", "-m", "ingest.parsers.snapshot.child"]
    command = [*module, reader, str(limits.memory_bytes), str(limits.seconds), str(limits.file_bytes)]
    with tempfile.TemporaryFile() as result:
        try:
            done = subprocess.run(
                command, stdin=file, stdout=result, stderr=subprocess.PIPE, env=_environment(), timeout=_WAIT_SECONDS + _WAIT_RATIO * limits.seconds)
        except subprocess.TimeoutExpired:
            raise too_large(f"was not read within {_WAIT_SECONDS + _WAIT_RATIO * limits.seconds:.0f} s") from None
        if done.returncode == 0:
            return transfer.load(result)
        result.seek(0)
        raise _refusal(done.returncode, result.read() if done.returncode == 1 else b"", done.stderr, limits)


def _environment() -> dict[str, str]:
    """This process's, with our packages findable from any folder and without pools that reserve address space."""
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
            "PYTHONIOENCODING": "utf-8"}


def _refusal(code: int, said: bytes, printed: bytes, limits: ReadLimits) -> LedgerError:
    if code == -signal.SIGXCPU:
        return hostile(f"takes more than {limits.seconds:.0f} s of processor time, which no snapshot of its size does: reading was given up")
    if code == -signal.SIGKILL:
        return too_large("made the system end the process that read it (out of memory?)")
    if code < 0:
        return damaged(f"made the reading process crash (signal {-code}): it is damaged or hostile")
    try:
        return LedgerError(**json.loads(said))
    except (ValueError, TypeError):
        last = (printed.decode("utf-8", "replace").strip().splitlines() or [f"exit code {code}"])[-1]
        return damaged(f"made the reading process fail ({last[:200]}); please report it")
