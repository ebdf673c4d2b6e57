"""Which pieces are settled: closed for ever, or dead for ever, so that upkeep may fold or drop their rows while others write and read.

A closed row of `artifacts` counts for ever. Rows of a piece are dead where that piece can never count again: an open end that was replaced,
or rows that a killed writer left and whose place another piece has taken since, for `artifacts` accepts a piece only where its source still
stands at its first byte. Rows that no artifact holds may be those of a writer between its two commits: such are left alone until the source has
moved past them, however long that takes; the clock decides nothing about writers.
For readers it does: one that opened `artifacts` a moment ago may open this table only now, and must find what it was told. So what counts is what
`artifacts` said an hour ago (`GRACE`), read at the version of that time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb

from ingest.lake import Lake
from ingest.upkeep.reading import files_query
from ingest.upkeep.stored import version_of

GRACE = timedelta(hours=1)
"""Longer than any reader takes between opening its first and its last table."""

_PIECE = r"^(.*):([0-9]+)-([0-9]+)([a-z]?)(~[^~]*)?$"

_TAKEN = """
CREATE OR REPLACE TEMP TABLE piece AS
WITH told AS ({artifacts}), closed AS (
    SELECT source, MAX(end_bytes) AS end_bytes FROM told WHERE status = 'closed' GROUP BY source
), newest AS (
    SELECT source, MAX(end_bytes) AS end_bytes FROM told WHERE status IN ('closed', 'tail') GROUP BY source
)
SELECT
    told.artifact, told.source, told.status, told.end_bytes, told.ingested_at, COALESCE(closed.end_bytes, 0) AS closed_bytes,
    newest.end_bytes AS newest_bytes,
    told.status <> 'tail' OR (told.start_bytes = COALESCE(closed.end_bytes, 0) AND told.end_bytes = newest.end_bytes) AS visible
FROM told
LEFT JOIN closed ON closed.source = told.source
LEFT JOIN newest ON newest.source = told.source
"""
_STANDING = """
CREATE OR REPLACE TEMP TABLE standing AS
SELECT source, MAX(closed_bytes) AS closed_bytes, MAX(newest_bytes) AS newest_bytes FROM piece WHERE newest_bytes IS NOT NULL GROUP BY source
"""
_CLOSED = """
CREATE OR REPLACE TEMP TABLE closed_piece AS
SELECT artifact, MIN(ingested_at) AS ingested_at FROM piece WHERE status = 'closed' GROUP BY artifact
"""
_DEAD = """
WITH named AS (
    SELECT DISTINCT artifact FROM ({rows})
), placed AS (
    SELECT
        named.artifact, piece.visible, REGEXP_EXTRACT(named.artifact, $piece, 1) AS source, REGEXP_EXTRACT(named.artifact, $piece, 4) AS mark,
        TRY_CAST(REGEXP_EXTRACT(named.artifact, $piece, 2) AS BIGINT) AS start_bytes,
        TRY_CAST(REGEXP_EXTRACT(named.artifact, $piece, 3) AS BIGINT) AS end_bytes
    FROM named
    LEFT JOIN piece ON piece.artifact = named.artifact
)
SELECT placed.artifact
FROM placed
LEFT JOIN standing ON standing.source = placed.source
WHERE NOT placed.visible
   OR (placed.visible IS NULL AND placed.mark IN ('', 't') AND standing.closed_bytes > placed.start_bytes)
   OR (placed.visible IS NULL AND placed.mark = 't' AND standing.newest_bytes >= placed.end_bytes)
"""


def take_pieces(connection: duckdb.DuckDBPyConnection, lake: Lake, now: datetime | None = None, grace: timedelta = GRACE) -> None:
    """The temporary tables `piece`, `standing` and `closed_piece`: what `artifacts` told `grace` ago. Empty where there was no lake yet."""
    version = version_of(lake, "artifacts", (now or datetime.now(UTC)) - grace if grace else None)
    artifacts = files_query(version.files, ("artifact", "source", "status", "ingested_at", "start_bytes", "end_bytes")) if version else None
    connection.execute(_TAKEN.format(artifacts=artifacts or _NONE))
    connection.execute(_STANDING)
    connection.execute(_CLOSED)


def take_dead(connection: duckdb.DuckDBPyConnection, rows: str) -> int:
    """The temporary table `dead`: artifacts of a query's rows that can never count again; how many."""
    connection.execute(f"CREATE OR REPLACE TEMP TABLE dead AS {_DEAD.format(rows=rows)}", {"piece": _PIECE})
    return int(connection.execute("SELECT COUNT(*) FROM dead").fetchall()[0][0])


_NONE = """SELECT '' AS artifact, '' AS source, '' AS status, CAST(NULL AS TIMESTAMP) AS ingested_at, 0 AS start_bytes, 0 AS end_bytes WHERE FALSE"""
