"""The made fleet: its rollups are those an ingest would write, and the lake answers what was planted in it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from analysis.database import connect, records
from analysis.overview import overview
from analysis.scope import listed, scoped
from benchmarks.fleet import make
from benchmarks.fleet_lake.jobs import jobs, near_steps
from benchmarks.fleet_lake.records import Block, day_rows, memory_rows, sizes_of
from ingest.lake import Lake
from ingest.upkeep.rollup import FOLDED, rank_day_of, summed


@pytest.mark.parametrize("kind", ["pretrain", "trial"])
def test_the_rollup_of_a_block_is_that_of_an_ingest(kind):
    job = next(one for one in jobs() if one.kind.name == kind)
    block = Block(job, 4, 8, job.first, min(job.first + 5, job.first + job.days), 30, 3)
    sizes = sizes_of(block)
    rows = memory_rows(block, sizes)
    given = rows.append_column("month", pa.repeat("2026-09", rows.num_rows)).append_column("cluster", pa.repeat("made", rows.num_rows))
    ingested, made = (summed(one, FOLDED).sort_by([(name, "ascending") for name in FOLDED]).drop_columns(["pieces"])
                      for one in (rank_day_of({"rank_memory": given}), day_rows(block, sizes)))
    assert made.equals(ingested)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    root = tmp_path_factory.mktemp("fleet") / "lake"
    rows = make(root, 120_000, days=5, share=0.01, workers=1)
    return connect(Lake(root)), rows


def test_every_record_of_every_job_is_seen(fleet):
    connection, rows = fleet
    counted = records(connection, "SELECT COUNT(*) AS n, COUNT(DISTINCT run) AS runs FROM rank_memory")
    assert counted == [{"n": rows, "runs": len(list(jobs(5, 0.01)))}]
    assert records(connection, "SELECT SUM(records) AS n FROM rank_days") == [{"n": rows}]
    assert records(connection, "SELECT COUNT(*) AS n FROM run_attempts WHERE ranks_seen = world_size")[0]["n"] == counted[0]["runs"]


def test_what_was_planted_near_the_limit_is_found_by_the_rollups(fleet):
    connection, rows = fleet
    every = list(jobs(5, 0.01))
    each = rows // sum(job.kind.ranks * job.days for job in every)
    planted = {(job.run, rank, number - job.first): count for job in every for rank in range(job.kind.ranks)
               for number in range(job.first, job.first + job.days) if (count := near_steps(job, rank, number, each))}
    found = records(connection, "SELECT run, rank, day, near_least, near_most FROM fleet_near_limit WHERE near_most > 0")
    assert sum(planted.values()) > 0
    assert {(row["run"], row["rank"]): (row["near_least"], row["near_most"]) for row in found} == {
        (run, rank): (count, count) for (run, rank, _), count in planted.items()}


@pytest.mark.parametrize("kind", ["pretrain", "trial"])
def test_an_attempt_judged_by_its_last_steps_keeps_the_maxima_of_all(fleet, kind):
    connection, _ = fleet
    job = next(one for one in jobs(5, 0.01) if one.kind.name == kind and not one.died)
    whole, last = overview(connection, job.run, 0), overview(connection, job.run, 0, records_at_most=job.kind.ranks)
    for name in ("rank", "stage", "records", "iteration", "allocated_bytes", "max_allocated_bytes", "max_reserved_bytes", "outside_bytes",
                 "capacity_bytes", "soft_headroom_bytes", "hard_headroom_bytes", "scope"):
        assert [getattr(one, name) for one in last.ranks] == [getattr(one, name) for one in whole.ranks], name
    assert "are read one by one" in last.coverage.sentence
    assert whole.coverage.sentence == last.coverage.sentence.partition("; steps")[0]
    assert (last.records["rank_memory"], last.verdict.level) == (whole.records["rank_memory"], whole.verdict.level)


def test_the_steps_that_are_read_are_as_all_have_them_and_nothing_stays_behind(fleet):
    connection, _ = fleet
    job = next(one for one in jobs(5, 0.01) if one.kind.name == "pretrain")
    query = f"SELECT * EXCLUDE (exact, reserved_exact) FROM rank_steps WHERE run = '{job.run}' AND rank = 5 ORDER BY iteration"
    every = records(connection, query)
    with scoped(connection, job.run, 0, job.kind.ranks * 2) as window:
        read = records(connection, query)
        assert window is not None
        assert read == [one for one in every if one["iteration"] >= window.first_iteration]
    assert len(read) < len(every)
    assert records(connection, query) == every
    with scoped(connection, job.run, 0) as window:
        assert window is None
        assert records(connection, query) == every


def test_a_large_lake_lists_its_attempts_by_rollups_as_a_small_one_by_records(fleet):
    connection, _ = fleet
    query = "SELECT * FROM run_attempts ORDER BY run, run_index"
    by_records = records(connection, query)
    with listed(connection, records_at_most=0):
        assert records(connection, "SELECT COUNT(*) AS n FROM rank_memory") == [{"n": 0}]
        assert records(connection, query) == by_records
    assert records(connection, query) == by_records
