"""`hbmledger doctor`: whether this installation and a lake are in order: versions, reach, write access, room, and counts.

Exit code 0 where everything works, 2 where something that every command needs does not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.errors import OK, USAGE, LedgerError

if TYPE_CHECKING:
    from ingest.lake import Lake

NAME = "doctor"
HELP = "check the installation and a lake"

PACKAGES = ("hbmledger", "duckdb", "deltalake", "pyarrow", "streamlit", "altair", "msgspec", "isal", "zstandard")
LEAST_ROOM_BYTES = 2**30
_COMPILED = {"log_scan": "logs", "snapshot_scan": "snapshots"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: its name, whether it is in order (null: nothing to judge), and what was found."""

    name: str
    fine: bool | None
    found: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--lake", metavar="DIR", help="a lake to check as well (default: ./lake or HBMLEDGER_LAKE, if there is one)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Run every check; the exit code tells whether all are in order."""
    checks = [*_installation(), *_lake(arguments.lake)]
    if arguments.format == "json":
        print(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{'  ' if check.fine is None else 'ok' if check.fine else 'NO'}  {check.name:<{width}}  {check.found}")
    return OK if all(check.fine is not False for check in checks) else USAGE


def _installation() -> Iterator[Check]:
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0])
    for package in PACKAGES:
        try:
            yield Check(package, True, version(package))
        except PackageNotFoundError:
            yield Check(package, False, "not installed: pip install hbmledger")
    yield Check("compiled readers", None, _compiled())
    folder = Path(tempfile.gettempdir())
    yield _room("temporary folder", folder)


def _compiled() -> str:
    from ingest.native import library

    there = [what for name, what in _COMPILED.items() if library(name) is not None]
    return f"of {' and '.join(there)}" if there else "none: the Python readers are used"


def _lake(given: str | None) -> Iterator[Check]:
    from ingest.lake import Lake, default_root

    root = str(given if given is not None else default_root())
    lake = Lake(root)
    try:
        there = lake.exists()
    except LedgerError as error:
        yield Check("lake", False, str(error))
        return
    if not there:
        yield Check("lake", None if given is None else False, f"none at {root}: `hbmledger ingest PATH --lake {root}` makes one")
        return
    yield Check("lake", True, root)
    if Path(root).is_dir():
        fine = os.access(root, os.W_OK)
        yield Check("write access", fine, "yes" if fine else f"no: this user cannot write to {root}")
        yield _room("room", Path(root))
    yield from _contents(lake)


def _contents(lake: Lake) -> Iterator[Check]:
    """Counts of the lake, and rows that no visible artifact holds (what a stopped ingest left; they are never read)."""
    from analysis.database import connect, orphans

    try:
        connection = connect(lake)
        counts = {what: connection.execute(f"SELECT COUNT(*) FROM ({query})").fetchall()[0][0] for what, query in (
            ("attempts", "SELECT DISTINCT run, run_index FROM run_attempts"), ("artifacts", "SELECT DISTINCT source FROM artifacts"),
            ("quarantined", "SELECT DISTINCT source FROM artifacts WHERE status = 'quarantined'"), ("rejects", "SELECT run FROM rejects"))}
        left = orphans(connection)
    except LedgerError as error:
        yield Check("contents", False, str(error))
        return
    yield Check("contents", True, ", ".join(f"{what} {count}" for what, count in counts.items()))
    replaced = ", ".join(f"{count} in {name}" for name, count in left.items())
    yield Check("rows out of sight", None, replaced or "none")


def _room(name: str, folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    return Check(name, free >= LEAST_ROOM_BYTES, f"{free / 2**30:.1f} GiB free at {folder}")
