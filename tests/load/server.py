"""A real server of the app, with what it holds and what it spent: memory and processor time of the process that runs the pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.browser.driving import serving

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A running app."""

    address: str
    pid: int

    def resident_bytes(self) -> int:
        """Memory of the process that runs the pages."""
        told = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line.split()[1] for line in told.splitlines() if line.startswith("VmRSS:"))) * 1024

    def processor_seconds(self) -> float:
        """Processor time it has spent, in all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def open_files(self) -> int:
        """Descriptors it holds."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        """Threads it runs, without those of the table format, whose pool fills up to its own bound (two dozen were seen) and stays."""
        names = (_name(Path(f"/proc/{self.pid}/task/{task}/comm")) for task in os.listdir(f"/proc/{self.pid}/task"))
        return sum(not name.startswith("tokio") for name in names)


@contextmanager
def served(lake: Path, folder: Path) -> Iterator[Server]:
    """`hbmledger app` on a lake."""
    with serving(lake, folder) as address:
        yield Server(address, _pid(address.rpartition(":")[2]))


def _name(thread: Path) -> str:
    """What a thread is called; one that has just ended counts with the pool's."""
    try:
        return thread.read_text()
    except OSError:
        return "tokio"


def _pid(port: str) -> int:
    """The process that listens: the one that was started with this port and Streamlit."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"streamlit" in words and f"--server.port={port}".encode() in words:
            return int(entry.name)
    raise AssertionError(f"no server of port {port}")
