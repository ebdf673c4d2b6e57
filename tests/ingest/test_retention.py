"""Retention: what is old goes, what it adds up to stays, and nothing goes that is not added up yet."""

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from analysis.database import connect
from ingest.errors import LedgerError
from ingest.lake import Batch, Lake
from ingest.tables import arrow_schema
from ingest.upkeep.ages import age, told
from ingest.upkeep.compact import Limits, compact
from ingest.upkeep.retention import Keep, Removed, retention
from tests.ingest.daily import Fleet

NOW = Limits(grace=timedelta(0))
DAYS = timedelta(days=1)


def applied(lake: Lake, keep: Keep, now: datetime, *, dry_run: bool = False) -> dict[str, Removed]:
    return {one.table: one for one in retention(lake, keep, dry_run=dry_run, now=now, limits=NOW)}


def days(connection: duckdb.DuckDBPyConnection) -> list[Any]:
    return [connection.execute(f"SELECT * FROM {view} ORDER BY ALL").fetchall() for view in ("rank_days", "rank_day_levels")]


def counts(lake: Lake, cutoff: datetime) -> tuple[int, int]:
    """Records of pieces ingested before, and since."""
    query = """SELECT COUNT(*) FILTER (a.ingested_at < ?), COUNT(*) FILTER (a.ingested_at >= ?)
        FROM rank_memory AS r JOIN artifacts AS a ON a.artifact = r.artifact"""
    return connect(lake).execute(query, [cutoff, cutoff]).fetchall()[0]  # type: ignore[no-any-return]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = Fleet(Lake(tmp_path / "lake"), 3)
    for _ in range(10):
        made.write()
    return made


def test_old_records_go_and_their_days_stay(fleet: Fleet) -> None:
    cutoff, before = fleet.now - 3 * DAYS, days(connect(fleet.lake))
    old, new = counts(fleet.lake, cutoff)
    assert old > 0 < new
    keep = Keep(raw=3 * DAYS)
    first = applied(fleet.lake, keep, fleet.now, dry_run=True)
    assert counts(fleet.lake, cutoff) == (old, new), "a dry run removes nothing"
    done = applied(fleet.lake, keep, fleet.now)
    assert (done["rank_memory"].rows, done["rank_memory"].rows_not_summed) == (old, 0)
    assert first == done
    assert counts(fleet.lake, cutoff) == (0, new)
    assert days(connect(fleet.lake)) == before
    assert [one.rows for one in applied(fleet.lake, keep, fleet.now).values()] == [0, 0]
    compact(fleet.lake, limits=NOW)
    assert days(connect(fleet.lake)) == before


@pytest.fixture
def dense(tmp_path: Path) -> Lake:
    """Two ranks of one run over two days, 300 records a day each, in pieces of 100."""
    lake, draw = Lake(tmp_path / "dense"), random.Random(1)
    for piece in range(6):
        day = datetime(2026, 9, 1 + piece // 3)
        keys: dict[str, Any] = {"run": "r", "run_index": 0, "artifact": f"s:{piece}-{piece + 1}~0", "month": "2026-09", "cluster": "c"}
        rows = [{**keys, "rank": rank, "iteration": 100 * piece + step, "at": day, "scope": "interval", "line": step, "reserved_bytes": 70 * 2**30,
                 "allocated_bytes": draw.randrange(2**36), "device_used_bytes": draw.randrange(2**37)} for rank in (0, 1) for step in range(100)]
        batch = Batch(expected={"s": piece or None}, tables={"rank_memory": [pa.Table.from_pylist(rows, schema=arrow_schema("rank_memory"))]})
        batch.artifacts.append({**keys, "source": "s", "path": "p", "start_bytes": piece, "end_bytes": piece + 1, "status": "closed",
                                "ingested_at": day})
        assert lake.commit(batch) == set()
    return lake


def test_thinning_keeps_the_first_the_last_and_the_highest_of_a_day(dense: Lake) -> None:
    extremes = """SELECT rank, CAST("at" AS DATE), MAX(allocated_bytes), MAX(reserved_bytes), MAX(device_used_bytes),
        MAX(device_used_bytes - reserved_bytes), MIN(iteration), MAX(iteration) FROM rank_memory GROUP BY ALL ORDER BY ALL"""
    latest = "SELECT * EXCLUDE (records, iterations) FROM rank_latest ORDER BY ALL"
    before = [days(connect(dense)), *(connect(dense).execute(query).fetchall() for query in (extremes, latest))]
    done = applied(dense, Keep(thin=30 * DAYS), datetime(2026, 11, 15))
    left = connect(dense).execute("SELECT COUNT(*) FROM rank_memory").fetchall()[0][0]
    assert done["rank_memory"] == Removed("rank_memory", "thin", 1200 - left, 0, 6)
    assert 4 * 3 <= left <= 4 * 6
    assert [days(connect(dense)), *(connect(dense).execute(query).fetchall() for query in (extremes, latest))] == before
    assert applied(dense, Keep(thin=30 * DAYS), datetime(2026, 11, 15))["rank_memory"] == Removed("rank_memory", "thin", 0, 0, 0)


def test_a_month_that_is_not_wholly_past_is_not_thinned(dense: Lake) -> None:
    assert applied(dense, Keep(thin=30 * DAYS), datetime(2026, 10, 29))["rank_memory"].rows == 0


def test_records_that_no_day_holds_stay(fleet: Fleet) -> None:
    """A lake whose records came without days, as from another program."""
    DeltaTable(fleet.lake._address("rank_day")).delete()
    old, new = counts(fleet.lake, fleet.now + DAYS)
    done = applied(fleet.lake, Keep(raw=timedelta(0)), fleet.now + DAYS)
    assert (done["rank_memory"].rows, done["rank_memory"].rows_not_summed) == (0, old + new)
    assert counts(fleet.lake, fleet.now + DAYS) == (old, new)


def test_records_that_cannot_be_true_need_no_day(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    keys: dict[str, Any] = {"run": "r", "run_index": 0, "artifact": "s:0-9~0", "month": "2026-01", "cluster": "c"}
    rows = pa.Table.from_pylist([{**keys, "rank": 0, "valid": False}], schema=arrow_schema("rank_memory"))
    batch = Batch(expected={"s": None}, tables={"rank_memory": [rows]})
    batch.artifacts.append({**keys, "source": "s", "path": "p", "start_bytes": 0, "end_bytes": 9, "status": "closed",
                            "ingested_at": datetime(2026, 1, 1)})
    lake.commit(batch)
    assert applied(lake, Keep(raw=30 * DAYS), datetime(2026, 3, 1))["rank_memory"] == Removed("rank_memory", "raw", 1, 0, 1)


def test_events_go_where_their_peaks_are_known(tmp_path: Path) -> None:
    lake, batch = Lake(tmp_path), Batch()
    for source in ("known", "unknown"):
        keys: dict[str, Any] = {"run": "r", "run_index": 0, "artifact": f"{source}:0-9~0", "month": "2026-01", "cluster": "c"}
        batch.artifacts.append({**keys, "source": source, "path": "p", "start_bytes": 0, "end_bytes": 9, "status": "closed",
                                "ingested_at": datetime(2026, 1, 1)})
        batch.expected[source] = None
        for table in ("snapshot_events", *(["snapshot_devices"] if source == "known" else [])):
            batch.tables.setdefault(table, []).append(pa.Table.from_pylist([{**keys, "device": 0}] * 3, schema=arrow_schema(table)))
    lake.commit(batch)
    done = applied(lake, Keep(events=30 * DAYS), datetime(2026, 3, 1))["snapshot_events"]
    assert (done.rows, done.rows_not_summed) == (3, 3)
    assert connect(lake).execute("SELECT DISTINCT artifact FROM snapshot_events").fetchall() == [("unknown:0-9~0",)]
    assert connect(lake).execute("SELECT COUNT(*) FROM snapshot_devices").fetchall() == [(3,)]


def test_all_rows_of_a_file_may_go(fleet: Fleet) -> None:
    assert applied(fleet.lake, Keep(raw=timedelta(0)), fleet.now + DAYS)["rank_memory"].rows_not_summed == 0
    assert connect(fleet.lake).execute("SELECT COUNT(*) FROM rank_memory").fetchall() == [(0,)]


@pytest.mark.parametrize(("text", "span"), [("36h", timedelta(hours=36)), ("7d", 7 * DAYS), ("2w", 14 * DAYS)])
def test_ages(text: str, span: timedelta) -> None:
    assert age(text, "--raw") == span
    assert age(told(span), "") == span


@pytest.mark.parametrize("text", ["", "7", "7 days", "-3d", "1.5d", "d"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(LedgerError, match="no age"):
        age(text, "--raw")
