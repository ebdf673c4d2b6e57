"""What a verb reads: the lake that was named, or a file or folder given in place of a run.

A single plain file is parsed in memory; a folder or an archive goes through the same ingest into a lake that lives as long as the command,
so that the answer is the one a lake would give. With `--lake` a run name is a name even where a file of that name exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb
    from ingest.lake import Lake


@dataclass(frozen=True, slots=True)
class Asked:
    """Runs to answer for on a connection; `run_index` null for the last attempt."""

    connection: duckdb.DuckDBPyConnection
    runs: tuple[str, ...]
    run_index: int | None


def lake_of(given: str | None) -> Lake:
    """The lake named by `--lake`, else the default one. Raises LedgerError where there is none."""
    from ingest.lake import Lake, default_root

    lake = Lake(given if given is not None else default_root())
    if not lake.exists():
        raise LedgerError("there is no lake here", where=str(lake.root), todo="`hbmledger ingest PATH` makes one, --lake DIR names another")
    return lake


@contextmanager
def asked_run(name: str, lake: str | None) -> Iterator[Asked]:
    """The connection and runs that `RUN`, `RUN#attempt` or a path mean. Raises LedgerError."""
    from analysis.database import connect, from_rows

    run, run_index = _split(name)
    path = Path(name) if Path(name).exists() else Path(run)
    if lake is not None or not path.exists():
        if lake is None and _looks_like_a_path(run):
            raise LedgerError("no such file or folder", where=run, todo="give an existing path, or the name of a run of the lake")
        yield Asked(connect(lake_of(lake)), (run,), run_index)
        return
    run_index = None if path == Path(name) and str(path) != run else run_index
    if _is_one_plain_file(path):
        from ingest.parsers import parse_file

        yield Asked(from_rows(parse_file(path).rows, path.name, str(path)), (path.name,), run_index)
        return
    with TemporaryDirectory(prefix="hbmledger-") as folder:
        connection = connect(_ingested(path, Path(folder) / "lake"))
        runs = tuple(row[0] for row in connection.execute("SELECT DISTINCT run FROM artifacts ORDER BY run").fetchall())
        yield Asked(connection, runs, run_index)


def _split(name: str) -> tuple[str, int | None]:
    run, mark, index = name.rpartition("#")
    return (run, int(index)) if mark and index.isascii() and index.isdigit() else (name, None)


def _looks_like_a_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.endswith((".log", ".out", ".txt", ".gz", ".json", ".jsonl", ".zip"))


def _is_one_plain_file(path: Path) -> bool:
    return path.is_file() and not path.name.endswith((".zip", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2"))


def _ingested(path: Path, root: Path) -> Lake:
    from ingest.lake import Lake
    from ingest.pipeline import ingest

    lake = Lake(root)
    ingest([path], lake)
    if not lake.exists() or not lake.uris("artifacts"):
        raise LedgerError("nothing to read here", where=str(path), todo="give a folder or an archive that holds logs")
    return lake
