"""The ledger in SQL: the rows that a report shows, for every attempt, and nothing where the arguments do not lay it out."""

from __future__ import annotations

import pytest

from analysis.database import from_rows, locked
from analysis.overview import overview
from analysis.query.ask import ask
from analysis.query.ledger_views import COLUMNS
from tests.analysis.made import GIB, dense_run
from tests.analysis.test_reconcile import MODEL


@pytest.fixture(scope="module")
def rows():
    made = dense_run()
    made["run_args"] += [{"name": name, "value": str(value), "origin": "dump", "line": 40} for name, value in MODEL.items()]
    made["runs"][0]["num_microbatches"] = 8
    made["theory_reports"] = [{"line": 50, "iteration": 10, "total_bytes": 12 * GIB, "weight_and_optimizer_bytes": 9 * GIB,
                               "activation_bytes": 3 * GIB}]
    bare = [{**row, "run": "bare", "artifact": "bare"} for row in dense_run()["rank_memory"]]
    return {**made, "rank_memory": made["rank_memory"] + bare, "runs": made["runs"] + [{"run": "bare", "artifact": "bare", "world_size": 16}]}


def asked(rows, query):
    return ask(locked(from_rows(rows, run="made")), query).rows


def test_stages_are_those_of_the_report(rows):
    expected = overview(from_rows(rows, run="made"), "made").ledger.expected.stages
    found = asked(rows, "SELECT run, stage, steady_allocated_bytes, peak_allocated_bytes, classes['weights'] FROM stage_ledger ORDER BY stage")
    assert found == tuple(("made", stage, row.steady_allocated_bytes, row.peak_allocated_bytes, row.classes["weights"])
                          for stage, row in sorted(expected.items()))


def test_stages_of_one_name_in_two_clusters_stay_apart(rows):
    made = {name: [{**row, "cluster": cluster, "artifact": cluster} for cluster in ("east", "west") for row in rows[name] if row.get("run") != "bare"]
            for name in rows}
    expected = overview(from_rows(rows, run="made"), "made").ledger.expected.stages
    found = asked(made, "SELECT cluster, stage, peak_allocated_bytes FROM stage_ledger ORDER BY cluster, stage")
    assert found == tuple((cluster, stage, row.peak_allocated_bytes) for cluster in ("east", "west") for stage, row in sorted(expected.items()))


def test_parts_add_up_in_sql(rows):
    off = asked(rows, "SELECT run, rank, MAX(gap_bytes) - COALESCE(SUM(part_bytes), 0) FROM gap GROUP BY run, rank")
    assert len(off) == 8
    assert {row[2] for row in off} == {0}
    assert asked(rows, "SELECT COUNT(*) FROM gap WHERE part_bytes IS NULL AND reason IS NULL") == ((0,),)


def test_ranks_stand_beside_their_expectation(rows):
    found = asked(rows, "SELECT rank, max_allocated_bytes, expected_peak_bytes IS NOT NULL, max_reserved_bytes FROM rank_ledger "
                  "WHERE run = 'made' ORDER BY 1")
    assert found[0] == (0, 24 * GIB, True, 32 * GIB)
    assert len(found) == 8


def test_columns_are_those_that_are_documented(rows):
    given, empty = locked(from_rows(rows, run="made")), locked(from_rows({}))
    for name in sorted(COLUMNS):
        assert [row[0] for row in ask(given, f"DESCRIBE {name}").rows] == [column for column, _, _ in COLUMNS[name]]
        assert ask(empty, f"SELECT COUNT(*) FROM {name}").rows == ((0,),), name
