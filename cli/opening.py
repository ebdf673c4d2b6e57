"""What a verb reads: the lake that was named, or a file, folder or archive given in place of a run.

A path goes through the same ingest as any other, into a lake that lives as long as the command, so that the answer is the one a lake
would give. With `--lake` a run name is a name even where a file of that name exists. Where two clusters gave a run of theirs the same name, it is
asked for as `CLUSTER/RUN`: their records are never put together.
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
    from ingest.pipeline import Summary

PROBLEMS_TOLD = 3
_FILE_ENDINGS = (".log", ".out", ".txt", ".gz", ".zst", ".json", ".jsonl", ".zip", ".tar")


@dataclass(frozen=True, slots=True)
class Asked:
    """Runs to answer for on a connection; `run_index` null for the last attempt; `problems` are inputs of a path that could not be read.

    `cluster` is the one that was named.
    """

    connection: duckdb.DuckDBPyConnection
    runs: tuple[str, ...]
    run_index: int | None
    problems: tuple[str, ...] = ()
    cluster: str | None = None

    def called(self, run: str) -> str:
        """What a person calls a run of these: `CLUSTER/RUN` where its name alone is that of another cluster's too."""
        return f"{self.cluster}/{run}" if self.cluster else run


def lake_of(given: str | None) -> Lake:
    """The lake named by `--lake`, else the default one. Raises LedgerError where there is none."""
    from ingest.lake import Lake, default_root

    lake = Lake(given if given is not None else default_root())
    if not lake.exists():
        raise LedgerError("there is no lake here", where=str(lake.root), todo="`hbmledger ingest PATH` makes one, --lake DIR names another")
    return lake


def _lake_with(run: str, given: str | None) -> Lake:
    """The lake that a run's name is looked up in; where none was named and there is none, the name may have been meant as a path."""
    try:
        return lake_of(given)
    except LedgerError as error:
        if given is not None:
            raise
        raise LedgerError(f"no such file or folder, and {error.what} to look a run up: {error.where}", where=run, todo=error.todo) from error


@contextmanager
def asked_run(name: str, lake: str | None) -> Iterator[Asked]:
    """The connection and runs that `RUN`, `RUN#attempt` or a path mean. Raises LedgerError."""
    from analysis.database import connect
    from ingest.lake import Lake

    if not name.strip():
        raise LedgerError("the name of a run is empty", todo="give the name of a run of the lake, or a path; `.` is the current folder")
    run, run_index = (name, None) if Path(name).exists() and lake is None else _split(name)
    if lake is not None or not Path(run).exists():
        if lake is None and (run.startswith((".", "/", "~")) or run.endswith(_FILE_ENDINGS)):
            raise LedgerError("no such file or folder", where=run, todo="give an existing path, or the name of a run of the lake")
        connection = connect(_lake_with(run, lake))
        if run_index is not None and connection.execute("SELECT 1 FROM run_attempts WHERE run = ? LIMIT 1", [name]).fetchone():
            run, run_index = name, None
        with _in_its_cluster(connection, run) as (cluster, meant):
            yield Asked(connection, (meant,), run_index, cluster=cluster)
        return
    with TemporaryDirectory(prefix="hbmledger-") as folder:
        own = Lake(Path(folder) / "lake")
        summary = _ingested(Path(run), own)
        connection = connect(own)
        runs = tuple(row[0] for row in connection.execute("SELECT DISTINCT run FROM artifacts WHERE status <> 'quarantined' ORDER BY run").fetchall())
        if not runs:
            raise _nothing(path=run, summary=summary)
        yield Asked(connection, runs, run_index, _told(summary))


@contextmanager
def _in_its_cluster(connection: duckdb.DuckDBPyConnection, name: str) -> Iterator[tuple[str | None, str]]:
    """The run that `RUN` or `CLUSTER/RUN` means, the connection showing that cluster alone. Raises LedgerError where two clusters have such a run."""
    from analysis.scope import clusters_of, within_cluster

    clusters = clusters_of(connection, name)
    if len(clusters) > 1:
        raise LedgerError(f"{len(clusters)} clusters have a run {name!r}: {', '.join(clusters)}", todo=f"name one of them, as {clusters[0]}/{name}")
    cluster, mark, run = name.partition("/")
    if clusters or not mark or cluster not in clusters_of(connection, run):
        yield None, name
        return
    with within_cluster(connection, cluster):
        yield cluster, run


def _split(name: str) -> tuple[str, int | None]:
    run, mark, index = name.rpartition("#")
    return (run, int(index)) if mark and index.isascii() and index.isdigit() else (name, None)


def _ingested(path: Path, lake: Lake) -> Summary:
    """Raises LedgerError where nothing of the path could be read."""
    from ingest.pipeline import ingest

    summary = ingest([path], lake)
    if not lake.exists() or not summary.files_new - summary.files_quarantined:
        raise _nothing(str(path), summary)
    return summary


def _nothing(path: str, summary: Summary) -> LedgerError:
    """Why there is no run in a path: its first problem, if it has one."""
    where, told = summary.problems[0] if summary.problems else (path, "nothing to read here")
    return LedgerError(told, where=where, todo="give a log, a folder or an archive of logs")


def _told(summary: Summary) -> tuple[str, ...]:
    """The first inputs that could not be read, each in one sentence."""
    told = tuple(f"{path}: {sentence}" for path, sentence in summary.problems[:PROBLEMS_TOLD])
    more = len(summary.problems) - len(told)
    return (*told, f"and {more} more inputs") if more else told
