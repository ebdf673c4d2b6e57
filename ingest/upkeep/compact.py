"""Many small files of a table as few large ones, sorted, while others write and read.

Every ingest adds a file a table, so a lake fed by cron has hundreds a day. Small files of one partition are read together, in bins that bound both
memory and the number of open files, sorted by run, attempt, iteration and rank, so that a question about one run reads the row groups that hold it,
and written as files of `TARGET_BYTES`. What is large already is left alone: the work is in proportion to what is new, not to the lake.
Rows that can never count again are left out (`ingest.upkeep.pieces`); rows that pieces added to days become one a rank, day and level (`rank_day`).
One bin is one commit; a bin that another upkeep touched meanwhile is looked at again. Killed at any moment it leaves at most files that no log names.
Not `optimize.compact` of delta-rs: it neither sorts nor drops; not Z-order: a run would lie in every file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby

import duckdb

from ingest.errors import LedgerError
from ingest.lake import Lake
from ingest.tables import BY_NAME
from ingest.upkeep import stored
from ingest.upkeep.pieces import GRACE, take_dead, take_pieces
from ingest.upkeep.reading import MEMORY_BYTES, files_query, in_one_sentence, spilling
from ingest.upkeep.rollup import FOLDED, SUMS
from ingest.upkeep.sorting import in_order
from ingest.upkeep.stored import StoredFile, Version, version_of

TARGET_BYTES = 128 * 1024 * 1024
BIN_FILES, BIN_BYTES = 1_000, 1024**3
"""A bin is sorted at once: at most so many files and bytes of Parquet. Small is what has less than half of `TARGET_BYTES`."""

_PASSES = 20
_LONG_LOG = 50
"""A log of so many commits gets a checkpoint before it is opened for every bin."""


Progress = Callable[[str, int, int], None]
"""table, small files done, small files in all."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done to one table; `rows_dropped` could never count again, `rows_folded` became part of a sum."""

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows_dropped: int
    rows_folded: int
    commits: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of a compaction; smaller ones for tests."""

    target_bytes: int = TARGET_BYTES
    bin_files: int = BIN_FILES
    bin_bytes: int = BIN_BYTES
    memory_bytes: int = MEMORY_BYTES
    grace: timedelta = GRACE


def compact(lake: Lake, tables: Sequence[str] | None = None, limits: Limits | None = None, progress: Progress | None = None) -> list[Compacted]:
    """Compact some tables or all, then write a checkpoint of each log and remove expired entries. Raises LedgerError for an unknown table."""
    if unknown := set(tables or ()) - set(BY_NAME):
        raise LedgerError(f"there is no table {', '.join(sorted(unknown))}", where=lake.root, todo="docs/schema.md lists the tables")
    limits = limits or Limits()
    with in_one_sentence(lake), spilling(lake, limits.memory_bytes) as connection:
        take_pieces(connection, lake, datetime.now(UTC), limits.grace)
        done = [_table(connection, lake, name, limits, progress or _silent) for name in tables or BY_NAME]
    return [one for one in done if one is not None]


def _silent(table: str, done: int, total: int) -> None:
    pass


def _table(connection: duckdb.DuckDBPyConnection, lake: Lake, name: str, limits: Limits, progress: Progress) -> Compacted | None:
    version = version_of(lake, name)
    if version is None:
        return None
    if version.handle.version() >= _LONG_LOG:
        version.handle.create_checkpoint()
    report = Compacted(name, len(version.files), 0, sum(one.size_bytes for one in version.files), 0, 0, 0, 0)
    for _ in range(_PASSES):
        bins = list(planned(version.files, limits))
        if not bins:
            break
        small, looked = sum(map(len, bins)), 0
        for files in bins:
            report = _bin(connection, lake, version, files, limits, report)
            looked += len(files)
            progress(name, looked, small)
        version = version_of(lake, name) or version
        if small <= sum(map(len, planned(version.files, limits))):
            break
    if report.commits:
        version.handle.create_checkpoint()
        version.handle.cleanup_metadata()
    return replace(report, files_after=len(version.files), bytes_after=sum(one.size_bytes for one in version.files))


def planned(files: Sequence[StoredFile], limits: Limits) -> Iterator[list[StoredFile]]:
    """Small files that are to be read together: of one partition, in the order of their time, at least two."""
    small = sorted((one for one in files if one.size_bytes < limits.target_bytes // 2), key=lambda one: (one.partition, one.written_ms, one.path))
    for _, of_partition in groupby(small, key=lambda one: one.partition):
        current: list[StoredFile] = []
        for one in of_partition:
            if len(current) >= limits.bin_files or sum(held.size_bytes for held in current) + one.size_bytes > limits.bin_bytes:
                yield current
                current = []
            current.append(one)
        if len(current) > 1:
            yield current


def _bin(connection: duckdb.DuckDBPyConnection, lake: Lake, version: Version, files: list[StoredFile], limits: Limits,
         report: Compacted) -> Compacted:
    """One bin as one commit; left as it is where another upkeep took some of its files meanwhile."""
    query = files_query(files, schema=version.schema) or ""
    before = sum(one.rows for one in files)
    try:
        dead = take_dead(connection, query)
        kept = f"SELECT * FROM ({query}) WHERE artifact NOT IN (SELECT artifact FROM dead)" if dead else query
        alive = int(connection.execute(f"SELECT COUNT(*) FROM ({kept})").fetchall()[0][0]) if dead else before
        chosen = _folded(connection, kept, version) if version.table == "rank_day" else kept
        added = stored.write(version, files[0], in_order(connection, chosen, version), limits.target_bytes)
    except duckdb.IOException as error:
        if not set(files) <= set((version_of(lake, version.table) or version).files):
            return report
        raise LedgerError(f"a file of the table {version.table} is lost or damaged: {str(error).partition(chr(10))[0]}", where=lake.root,
                          todo="restore the file, or ingest the artifacts into a new lake") from error
    if not stored.replace(lake, version.table, files, added):
        return report
    after = sum(stored.rows_of(one) for one in added)
    dropped, folded = report.rows_dropped + before - alive, report.rows_folded + alive - after
    return replace(report, rows_dropped=dropped, rows_folded=folded, commits=report.commits + 1)


def _folded(connection: duckdb.DuckDBPyConnection, query: str, version: Version) -> str:
    """Rows of closed pieces summed to one a rank, day and level; those of open ends, which may be replaced, stay as they are.

    The sum stands under the name of one of its pieces, which counts for ever. A table that has figures this release does not know is not summed.
    """
    known = set(BY_NAME["rank_day"].names)
    if not known.issuperset(version.schema.names):
        return query
    keys = [name for name in FOLDED if name != "day"]
    figures = ", ".join(f"CAST({how.upper()}(part.{name}) AS {_type(name)}) AS {name}" for name, how in SUMS.items())
    by = ", ".join(f"part.{name}" for name in keys)
    day = "COALESCE(part.day, CAST(piece.ingested_at AS DATE))"
    names = [*keys, "day", *SUMS, "artifact"]
    return f"""
        SELECT {by}, {day} AS day, {figures}, MIN(part.artifact) AS artifact
        FROM ({query}) AS part JOIN closed_piece AS piece ON piece.artifact = part.artifact
        GROUP BY {by}, {day}
        UNION ALL
        SELECT {', '.join(f'part.{name}' for name in names)}
        FROM ({query}) AS part WHERE part.artifact NOT IN (SELECT artifact FROM closed_piece)
    """


def _type(name: str) -> str:
    return "TIMESTAMP" if name.endswith("_at") else "BIGINT"
