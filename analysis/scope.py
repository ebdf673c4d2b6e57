"""What all questions about one attempt share, worked out once: temporary tables that stand before the views of the same name.

The engine looks a name up among temporary tables first, inside views too. So `run_attempts`, `rank_layout` and `rank_latest` of the attempt, made
once, serve every view and query below them. An attempt of a month has a hundred million records; who opens it to look gives `records_at_most`, and
the tables a step (`rank_memory`, `memory_stats`, `expert_load`) then show the last steps only, about so many records of `rank_memory`, while
maxima and counts of each rank come from its rollup over all days. Those steps and rollups are read from the lake once, not by each of some forty
questions. `Window` says which steps are read, and the answer must.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis.database import asked_text, records
from analysis.rows import Near, Rank

if TYPE_CHECKING:
    import duckdb

RECORDS_TO_LOOK_AT = 250_000
"""What a page reads of an attempt at most."""

RECORDS_TO_LIST = 20_000_000
"""Lakes with more records list their attempts by rollups."""

_STEPPED = ("rank_memory", "memory_stats", "expert_load")
_KEPT = {
    "attempt_facts": "SELECT * FROM attempt_facts WHERE run = $run",
    "run_attempts": "SELECT * FROM run_attempts WHERE run = $run",
    "rank_layout": "SELECT * FROM rank_layout WHERE run = $run AND run_index = $run_index",
    "rank_latest": "SELECT * FROM rank_latest WHERE run = $run AND run_index = $run_index",
}
_CLUSTERS = "SELECT DISTINCT COALESCE(cluster, 'default') AS cluster FROM artifacts WHERE run = ? OR ? IS NULL ORDER BY cluster"
_EXTENT = """
SELECT CAST(SUM(records) AS BIGINT) AS records, COUNT(DISTINCT rank) AS ranks, MIN(first_iteration) AS first, MAX(last_iteration) AS last
FROM rank_day WHERE run = ? AND run_index = ? AND records > 0 AND first_iteration IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Window:
    """The steps that are read of an attempt, from `first_iteration` to the last, and all that it has."""

    first_iteration: int
    last_iteration: int
    begun_at: int
    records: int

    @property
    def sentence(self) -> str:
        """What is judged by steps, and what by days."""
        return (f"steps {self.first_iteration:,} to {self.last_iteration:,} are read one by one; maxima and counts are of all steps since "
                f"{self.begun_at:,} ({self.records:,} records)")


def clusters_of(connection: duckdb.DuckDBPyConnection, run: str | None = None) -> tuple[str, ...]:
    """The clusters that a run's artifacts came from, or all of the lake, by name."""
    return tuple(row["cluster"] for row in records(connection, _CLUSTERS, [run, run]))


@contextmanager
def within_cluster(connection: duckdb.DuckDBPyConnection, cluster: str) -> Iterator[None]:
    """Every table and view shows one cluster's rows, as long as the block runs: two clusters may give two runs one name."""
    narrow(connection, cluster)
    try:
        yield
    finally:
        connection.execute("DROP VIEW IF EXISTS temp.main.artifacts")


def narrow(connection: duckdb.DuckDBPyConnection, cluster: str) -> None:
    """The same for all that this connection, or cursor, is asked from now on: each table shows what `artifacts` names, a narrower one here."""
    chosen = f"COALESCE(cluster, 'default') = '{cluster.replace(chr(39), chr(39) * 2)}'"
    connection.execute(f"CREATE OR REPLACE TEMP VIEW artifacts AS SELECT * FROM memory.main.artifacts WHERE {chosen}")


@contextmanager
def scoped(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, records_at_most: int | None = None) -> Iterator[Window | None]:
    """The tables of one attempt, as long as the block runs; the window where not every step is read."""
    given = {"run": run, "run_index": run_index}
    with last_steps(connection, run, run_index, records_at_most) as window:
        try:
            for name, query in _KEPT.items():
                text = asked_text("window_latest") if window and name == "rank_latest" else query
                asked = {key: value for key, value in given.items() if f"${key} " in f"{text} "}
                connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {text}", asked)
            yield window
        finally:
            for name in _KEPT:
                connection.execute(f"DROP TABLE IF EXISTS temp.main.{name}")


@contextmanager
def last_steps(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, records_at_most: int | None) -> Iterator[Window | None]:
    """The tables a step show the last steps of an attempt alone, as long as the block runs; all of them where it has few enough records.

    A maximum that never resets tells nothing of the first step that is read: there is no reading before it to rise above.
    """
    window = _window(connection, run, run_index, records_at_most)
    chosen = f"run = '{run.replace(chr(39), chr(39) * 2)}' AND run_index = {int(run_index)}"
    rows = {} if window is None else {
        **{table: f"SELECT * FROM memory.main.{table} WHERE {chosen} AND iteration >= {window.first_iteration}" for table in _STEPPED},
        "rank_day": f"SELECT * FROM memory.main.rank_day WHERE {chosen}"}
    views = {} if window is None else {"rank_steps": f"""
        WITH read AS (
            SELECT *, MIN(iteration) OVER (PARTITION BY rank) AS first_read FROM memory.main.rank_steps WHERE {chosen}
        )
        SELECT * EXCLUDE (first_read) FROM read WHERE scope = 'interval' OR iteration > first_read"""}
    with _standing_before(connection, rows, "TABLE"), _standing_before(connection, views):
        yield window


@contextmanager
def listed(connection: duckdb.DuckDBPyConnection, records_at_most: int = RECORDS_TO_LIST) -> Iterator[None]:
    """For questions about all attempts of a lake: where it has more records, `run_attempts` counts ranks by rollups and small tables alone.

    Ranks that only tokens per expert name are not counted then.
    """
    count = records(connection, "SELECT COALESCE(SUM(records), 0) AS records FROM rank_day")[0]["records"]
    hidden = _STEPPED if count > records_at_most else ()
    with _standing_before(connection, {name: f"SELECT * FROM memory.main.{name} WHERE FALSE" for name in hidden}):
        yield


@contextmanager
def _standing_before(connection: duckdb.DuckDBPyConnection, queries: Mapping[str, str], kind: str = "VIEW") -> Iterator[None]:
    """Temporary views, or tables, that are found before the views of their name."""
    try:
        for name, text in queries.items():
            connection.execute(f"CREATE OR REPLACE TEMP {kind} {name} AS {text}")
        yield
    finally:
        for name in queries:
            connection.execute(f"DROP {kind} IF EXISTS temp.main.{name}")


def remembered(near: Sequence[Near], ranks: Sequence[Rank]) -> tuple[Near, ...]:
    """Classes by the last steps, corrected for ranks that came near in the steps before: their maximum over all steps, which is known, says so."""
    known = {rank.rank: rank for rank in ranks}
    return tuple(_remembered(one, known[one.rank]) for one in near)


def _remembered(one: Near, rank: Rank) -> Near:
    left = {"hard": rank.hard_headroom_bytes, "cache": rank.soft_headroom_bytes}
    kinds = [kind for kind, size in left.items() if size is not None and one.margin_bytes is not None and size <= one.margin_bytes]
    if one.kind is not None or one.near_steps or not kinds:
        return one
    return replace(one, near="occasional", kind="hard" if "hard" in kinds else "cache", near_steps=1, steps=rank.records, low=None, high=None,
                   reason="its maximum over all steps is near, so at least one step was; none of those that are read one by one is")


def _window(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, records_at_most: int | None) -> Window | None:
    """None where all is read: few enough records, or no rollup that tells how many there are."""
    if records_at_most is None:
        return None
    extent: dict[str, Any] = records(connection, _EXTENT, [run, run_index])[0]
    if (extent["records"] or 0) <= records_at_most:
        return None
    share = records_at_most / extent["records"]
    first = extent["last"] - int((extent["last"] - extent["first"]) * share)
    return Window(first, extent["last"], extent["first"], extent["records"])
