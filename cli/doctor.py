"""`hbmledger doctor`: whether this installation and a lake are in order: versions, reach, write access, room, and counts.

Exit code 0 where everything works, 1 where upkeep of the lake is due (the command to run is told), 2 where something that every command needs does
not work, or a table of the lake cannot be opened.
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
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.errors import FINDINGS, OK, USAGE, LedgerError
from ingest.installation import compiled, versions

if TYPE_CHECKING:
    import duckdb

    from ingest.lake import Lake

NAME = "doctor"
HELP = "check the installation and a lake"

LEAST_ROOM_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: its name, whether it is in order (null: nothing to judge), what was found, and the command that is due, if one is."""

    name: str
    fine: bool | None
    found: str
    due: str | None = None


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
            mark = "->" if check.due else "  " if check.fine is None else "ok" if check.fine else "NO"
            print(f"{mark}  {check.name:<{width}}  {check.found}" + (f": run `{check.due}`" if check.due else ""))
    if any(check.fine is False for check in checks):
        return USAGE
    return FINDINGS if any(check.due for check in checks) else OK


def _installation() -> Iterator[Check]:
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0])
    for package, found in versions().items():
        yield Check(package, found is not None, found or "not installed: pip install hbmledger")
    yield Check("compiled readers", None, compiled())
    folder = Path(tempfile.gettempdir())
    yield _room("temporary folder", folder)


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
    yield from _upkeep(lake)


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
    yield _days(connection)


def _days(connection: duckdb.DuckDBPyConnection) -> Check:
    """Whether every record is in a day. Thinned records are in fewer rows than their days tell, so only more is a fault."""
    query = """SELECT (SELECT COUNT(*) FROM rank_memory WHERE COALESCE(valid, TRUE)),
        (SELECT CAST(COALESCE(SUM(records), 0) AS BIGINT) FROM rank_days), (SELECT COUNT(*) FROM rank_days), (SELECT COUNT(*) FROM rank_day)"""
    records, summed, days, rows = connection.execute(query).fetchall()[0]
    missing = f"; {records - summed} records are in no day: retention keeps them" if records > summed else ""
    return Check("days", None if missing else True, f"{days} days of ranks hold {summed} records, in {rows} rows{missing}")


def _upkeep(lake: Lake) -> Iterator[Check]:
    """Files and sizes, and which command is due."""
    from ingest.upkeep.health import MANY_SMALL, health

    try:
        tables = health(lake)
    except LedgerError as error:
        yield Check("tables", False, str(error))
        return
    for one in tables:
        yield Check(f"table {one.table}", None,
                    f"{one.rows:,} rows, {one.files:,} files of {one.size_bytes / 2**20:,.1f} MiB, {one.commits:,} commits")
    small, most = sum(one.small_files for one in tables), max(one.most_small_files for one in tables)
    yield Check("small files", True, f"{small:,} could be merged, at most {most:,} of one table, month and cluster",
                f"hbmledger compact --lake {lake.root}" if most >= MANY_SMALL else None)
    old, size = sum(one.removable_files for one in tables), sum(one.removable_bytes for one in tables)
    since = min((one.oldest_removable for one in tables if one.oldest_removable), default=None)
    yield Check("files of no use", True, f"{old:,} of {size / 2**20:,.1f} MiB, the oldest of {since:%Y-%m-%d}" if since else "none older than a week",
                f"hbmledger vacuum --lake {lake.root}" if old else None)


def _room(name: str, folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    return Check(name, free >= LEAST_ROOM_BYTES, f"{free / 2**30:.1f} GiB free at {folder}")
