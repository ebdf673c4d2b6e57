"""What the page Fleet shows: the views on history asked for the attempts that its filters choose, each picture already summed up by SQL.

`History` works the views out once, into temporary tables of its own cursor: a temporary table stands before the view of its name, inside views
too, so that each view is built on those before it. A change of a filter then asks small tables. No answer grows with the records: days,
bins of ratios, devices and hosts are counted in the engine, and lists of runs and ranks are cut, worst first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from analysis.database import asked_text, records

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]
RUNS_SHOWN = 2_000
DAYS_SHOWN = 400
VERDICTS = ("oom", "near", "undetermined", "insufficient", "unknown", "clear")
"""Worst first."""
_KEPT = ("fleet_attempts", "fleet_grid", "fleet_ranks", "fleet_runs", "fleet_ratio", "fleet_outside_torch", "fleet_oom", "fleet_drift")
"""Views kept whole, each after those it reads: a row a rank at most."""
_SUMMED = {"near_days": "fleet_kept_days", "near_ranks": "fleet_kept_near"}
"""What is kept of the days."""
_NEAR = """
CREATE TEMP TABLE fleet_near_limit AS
SELECT cluster, run, run_index, rank, rank_label, stage, day, month, near_class, near_least, near_most, records, soft_headroom_bytes,
    hard_headroom_bytes
FROM fleet_near_limit
"""
"""A row a rank and day, kept for as long as both sums of it are made."""
_QUESTIONS = ("ratios", "days", "near_ranks", "ooms", "drifts", "hardware", "hosts")
_OPTIONS = """
SELECT DISTINCT cluster, COALESCE(family, 'not told') AS family, COALESCE(gpu, 'not told') AS gpu,
    SUBSTRING(CAST(first_day AS STRING), 1, 7) AS first_month, SUBSTRING(CAST(last_day AS STRING), 1, 7) AS last_month
FROM fleet_runs
"""
_VERDICTS = "SELECT verdict, COUNT(*) AS n, SUM(ranks_measured) AS ranks FROM chosen GROUP BY verdict"
_RUNS = f"""
SELECT * FROM chosen
ORDER BY CASE verdict {" ".join(f"WHEN '{verdict}' THEN {at}" for at, verdict in enumerate(VERDICTS))} END, soft_headroom_bytes NULLS LAST,
    cluster, run, run_index
LIMIT {RUNS_SHOWN}
"""


@dataclass(frozen=True, slots=True)
class Filters:
    """What to look at; null is all. `month` as YYYY-MM, by the days of the records."""

    cluster: str | None = None
    month: str | None = None
    family: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """The page's answers: rows of the questions by their name, and how many attempts, ranks and verdicts the filters choose."""

    attempts: int
    ranks_measured: int
    verdicts: Mapping[str, int]
    runs: tuple[Row, ...]
    ratios: tuple[Row, ...]
    days: tuple[Row, ...]
    near_ranks: tuple[Row, ...]
    ooms: tuple[Row, ...]
    drifts: tuple[Row, ...]
    hardware: tuple[Row, ...]
    hosts: tuple[Row, ...]


class History:
    """The views of one moment of a lake, worked out; its answers may be asked from several threads, one at a time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        """`connection` is a cursor for this alone."""
        self._connection = connection
        self._lock = Lock()
        for name in _KEPT:
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}")
        connection.execute(_NEAR)
        for name, text in _SUMMED.items():
            connection.execute(f"CREATE TEMP TABLE {name} AS {asked_text(text)}")
        connection.execute("DROP TABLE temp.main.fleet_near_limit")

    def options(self) -> dict[str, list[str]]:
        """What each filter can be, from the runs there are; months between the first and last day of any."""
        with self._lock:
            rows = records(self._connection, _OPTIONS)
        found = {name: sorted({row[name] for row in rows}) for name in ("cluster", "family", "gpu")}
        months = {month for row in rows if row["first_month"] for month in _months(row["first_month"], row["last_month"])}
        return {**found, "month": sorted(months, reverse=True)}

    def fleet(self, filters: Filters) -> Fleet:
        """Every answer for the attempts that `filters` choose."""
        given = {name: getattr(filters, name) for name in ("cluster", "month", "family", "gpu")}
        with self._lock:
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE chosen AS {asked_text('fleet_chosen')}", given)
            runs, verdicts = records(self._connection, _RUNS), records(self._connection, _VERDICTS)
            asked = {name: tuple(self._answer(name, filters.month)) for name in _QUESTIONS}
        counts = {row["verdict"]: int(row["n"]) for row in verdicts}
        kept = sorted({row["day"] for row in asked["days"]})[-DAYS_SHOWN:]
        days = tuple(row for row in asked["days"] if row["day"] >= kept[0]) if kept else ()
        return Fleet(sum(counts.values()), int(sum(row["ranks"] for row in verdicts)), counts, tuple(runs), **{**asked, "days": days})

    def _answer(self, name: str, month: str | None) -> list[Row]:
        text = asked_text(f"fleet_{name}")
        return records(self._connection, text, {"month": month} if "$month" in text else {})


def _months(first: str, last: str) -> list[str]:
    """Every month from `first` to `last`, both YYYY-MM."""
    start, end = (int(text[:4]) * 12 + int(text[5:7]) - 1 for text in (first, last))
    return [f"{at // 12:04d}-{at % 12 + 1:02d}" for at in range(start, min(end, start + 600) + 1)]
