"""Drop or thin what is old and large, and keep what sums it up: days of ranks, devices of snapshots, findings' sources.

Age is counted from ingest, so that old logs read today are not dropped tonight. Three kinds:
`events` drops `snapshot_events`, of snapshots whose peaks stand in `snapshot_devices`; `raw` drops records of `rank_memory` and
`memory_stats`; `thin` keeps of them, for months of ingest that are wholly past, the records that tell a rank's day: the first and the last
iteration, and those that hold a maximum. Views on days (`rank_days`) answer as before, for a record goes only when its piece has been added up there:
`rank_day` must have taken its source that far, and hold at least as many records of its rank as are dropped; others stay and are counted as kept.
Rows go file by file in the way of `ingest.upkeep.compact`, safe beside writers and readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa

from ingest.lake import Lake
from ingest.upkeep import stored
from ingest.upkeep.compact import Limits
from ingest.upkeep.pieces import take_pieces
from ingest.upkeep.reading import files_query, in_one_sentence, spilling
from ingest.upkeep.sorting import in_order
from ingest.upkeep.stored import StoredFile, Version, version_of

RAW = ("rank_memory", "memory_stats")
EVENTS = ("snapshot_events",)
THINNED = "thinned"
"""Files whose name begins so were thinned; compaction gives them another name, and the next retention looks at them again."""

_TELLING = {
    "rank_memory": ("GREATEST(allocated_bytes, max_allocated_bytes)", "GREATEST(reserved_bytes, max_reserved_bytes)", "device_used_bytes",
                    "device_used_bytes - reserved_bytes", "iteration", "-iteration"),
    "memory_stats": ("active_bytes_all_peak_bytes", "allocated_bytes_all_peak_bytes", "reserved_bytes_all_peak_bytes", "num_alloc_retries",
                     "num_ooms", "iteration", "-iteration"),
}
"""Of each of these the record with the largest is kept, for every rank, day and scope."""

_THINNED = """
SELECT row.* FROM ({rows}) AS row WHERE row.artifact NOT IN (SELECT artifact FROM going)
UNION ALL
SELECT * EXCLUDE ({places}) FROM (
    SELECT row.*, {ranked}
    FROM ({rows}) AS row JOIN old ON old.artifact = row.artifact
    WHERE row.artifact IN (SELECT artifact FROM going)
) WHERE {first}
"""
_PLACE = """ROW_NUMBER() OVER (
    PARTITION BY row.run, row.run_index, row.rank, row.rank_label, row.scope, COALESCE(row.valid, TRUE),
        COALESCE(CAST(row."at" AS DATE), CAST(old.ingested_at AS DATE))
    ORDER BY {figure} DESC NULLS LAST, row.iteration, row.artifact, row.line
) AS place_{number}"""
_UNCOUNTED = """
DELETE FROM going WHERE artifact IN (
    SELECT held.artifact FROM (
        SELECT artifact, run, run_index, rank, CASE WHEN rank IS NULL THEN COALESCE(rank_label, 'not told') END AS rank_label, COUNT(*) AS records
        FROM ({rows}) WHERE COALESCE(valid, TRUE) AND artifact IN (SELECT artifact FROM going) GROUP BY ALL
    ) AS held
    LEFT JOIN day_records AS day ON day.run = held.run AND day.run_index = held.run_index AND COALESCE(day.rank, -1) = COALESCE(held.rank, -1)
        AND COALESCE(day.rank_label, '') = COALESCE(held.rank_label, '')
    WHERE held.records > COALESCE(day.records, 0)
)
"""
_NO_DAYS = """SELECT '' AS run, 0 AS run_index, 0 AS rank, '' AS rank_label, '' AS artifact, 0 AS records WHERE FALSE"""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long rows are kept since their ingest; null keeps them for ever."""

    events: timedelta | None = None
    raw: timedelta | None = None
    thin: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """Rows of one table that were removed, or would be; `rows_not_summed` are old enough and stay, for no day holds them yet."""

    table: str
    rule: str
    rows: int
    rows_not_summed: int
    files: int


def retention(lake: Lake, keep: Keep, *, dry_run: bool = False, now: datetime | None = None, limits: Limits | None = None) -> list[Removed]:
    """Apply what `keep` says; with `dry_run` only count."""
    limits, now = limits or Limits(), now or datetime.now(UTC).replace(tzinfo=None)
    with in_one_sentence(lake), spilling(lake, limits.memory_bytes) as connection:
        take_pieces(connection, lake, datetime.now(UTC), limits.grace)
        work = _Retention(connection, lake, now, limits, dry_run)
        return [work.table(table, rule, span) for table, rule, span in _rules(keep)]


def _rules(keep: Keep) -> Iterator[tuple[str, str, timedelta]]:
    for tables, rule, span in ((EVENTS, "events", keep.events), (RAW, "raw", keep.raw), (RAW, "thin", keep.thin)):
        if span is not None:
            yield from ((table, rule, span) for table in tables)


@dataclass(slots=True)
class _Retention:
    """One retention under way."""

    connection: duckdb.DuckDBPyConnection
    lake: Lake
    now: datetime
    limits: Limits
    dry_run: bool

    def table(self, table: str, rule: str, span: timedelta) -> Removed:
        """One rule on one table, bin by bin."""
        removed = Removed(table, rule, 0, 0, 0)
        version = version_of(self.lake, table)
        if version is None:
            return removed
        until = self.now - span
        self._take_old(table, until)
        for files in _bins(_candidates(version.files, rule, until), self.limits):
            removed = self._bin(version, table, rule, files, removed)
        return removed

    def _take_old(self, table: str, until: datetime) -> None:
        """The temporary table `old`: pieces that are past their time, each with whether what sums it up is there."""
        self.connection.execute("""
            CREATE OR REPLACE TEMP TABLE old AS
            SELECT artifact, MIN(source) AS source, MIN(status) AS status, MIN(end_bytes) AS end_bytes, MIN(ingested_at) AS ingested_at
            FROM piece WHERE visible AND status <> 'quarantined' AND ingested_at < ? GROUP BY artifact""", [until])
        summed = self._summed_devices() if table in EVENTS else self._summed_days()
        self.connection.register("given_summed", pa.table({"artifact": pa.array(summed, pa.string())}))
        self.connection.execute("CREATE OR REPLACE TEMP TABLE summed AS SELECT artifact FROM given_summed")
        self.connection.unregister("given_summed")

    def _summed_devices(self) -> list[str]:
        devices = version_of(self.lake, "snapshot_devices")
        query = files_query(devices.files, ("artifact",)) if devices else None
        return [] if query is None else [row[0] for row in self.connection.execute(f"SELECT DISTINCT artifact FROM ({query})").fetchall()]

    def _summed_days(self) -> list[str]:
        """Pieces of sources that `rank_day` has taken at least that far; also the temporary table `day_records`: records of each rank there."""
        days = version_of(self.lake, "rank_day")
        query = files_query(days.files, ("run", "run_index", "rank", "rank_label", "artifact", "records")) if days else None
        self.connection.execute(f"""
            CREATE OR REPLACE TEMP TABLE day_records AS
            SELECT run, run_index, rank, rank_label, SUM(records) AS records FROM ({query or _NO_DAYS})
            WHERE artifact IN (SELECT artifact FROM piece WHERE visible) GROUP BY ALL""")
        if days is None:
            return []
        ends = "SELECT artifact, source || CASE WHEN status = 'tail' THEN '#tail' ELSE '' END, end_bytes FROM old"
        pieces = self.connection.execute(ends).fetchall()
        reached = self.lake._transactions.reached(days.handle, {app_id for _, app_id, _ in pieces})
        return [artifact for artifact, app_id, end in pieces if reached.get(app_id, -1) >= end]

    def _bin(self, version: Version, table: str, rule: str, files: list[StoredFile], removed: Removed) -> Removed:
        """What of some files goes, as one commit; left as it is where another upkeep took some of them meanwhile."""
        query = files_query(files, schema=version.schema) or ""
        waiting = self._take_going(table, query)
        kept = _thinned(table, query) if rule == "thin" else f"SELECT * FROM ({query}) WHERE artifact NOT IN (SELECT artifact FROM going)"
        rows = sum(one.rows for one in files) - self._count(kept)
        counted = replace(removed, rows=removed.rows + rows, rows_not_summed=removed.rows_not_summed + waiting, files=removed.files + len(files))
        if not rows or self.dry_run:
            return counted if rows else replace(counted, files=removed.files)
        prefix = THINNED if rule == "thin" else "kept"
        added = stored.write(version, files[0], in_order(self.connection, kept, version), self.limits.target_bytes, prefix)
        return counted if stored.replace(self.lake, table, files, added) else removed

    def _take_going(self, table: str, query: str) -> int:
        """The temporary table `going`: old pieces of some files that days hold, or that have nothing to hold; how many rows of old pieces stay."""
        nothing = "FALSE" if table in EVENTS else f"artifact NOT IN (SELECT artifact FROM ({query}) WHERE COALESCE(valid, TRUE))"
        self.connection.execute(f"""
            CREATE OR REPLACE TEMP TABLE going AS
            SELECT DISTINCT artifact FROM ({query})
            WHERE artifact IN (SELECT artifact FROM old) AND (artifact IN (SELECT artifact FROM summed) OR {nothing})""")
        if table == "rank_memory":
            self.connection.execute(_UNCOUNTED.format(rows=query))
        return self._count(f"SELECT 1 FROM ({query}) WHERE artifact IN (SELECT artifact FROM old) AND artifact NOT IN (SELECT artifact FROM going)")

    def _count(self, query: str) -> int:
        return int(self.connection.execute(f"SELECT COUNT(*) FROM ({query})").fetchall()[0][0])


def _thinned(table: str, query: str) -> str:
    """Rows that tell their day, and all that are not old."""
    places = [f"place_{number}" for number in range(len(_TELLING[table]))]
    ranked = ", ".join(_PLACE.format(figure=figure, number=number) for number, figure in enumerate(_TELLING[table]))
    return _THINNED.format(rows=query, places=", ".join(places), ranked=ranked, first=" OR ".join(f"{place} = 1" for place in places))


def _candidates(files: Sequence[StoredFile], rule: str, until: datetime) -> list[StoredFile]:
    """Files that may hold what is old, by the month of ingest; a month is thinned once, when it is wholly past."""
    month = f"{until:%Y-%m}"
    if rule != "thin":
        return [one for one in files if one.partition[0] <= month]
    return [one for one in files if one.partition[0] < month and not one.path.rpartition("/")[2].startswith(THINNED)]


def _bins(files: Sequence[StoredFile], limits: Limits) -> Iterator[list[StoredFile]]:
    """Files to be read together: of one partition, within the limits."""
    current: list[StoredFile] = []
    for one in sorted(files, key=lambda one: (one.partition, one.path)):
        full = len(current) >= limits.bin_files or sum(held.size_bytes for held in current) + one.size_bytes > limits.bin_bytes
        if current and (full or one.partition != current[0].partition):
            yield current
            current = []
        current.append(one)
    if current:
        yield current
