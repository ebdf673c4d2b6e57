"""Days of ranks are what the records that count add up to, whatever happened to the lake."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from analysis.database import connect
from ingest.lake import Lake
from ingest.pipeline import ingest
from ingest.tables import arrow_schema
from ingest.upkeep.rollup import SUMS, rank_day_of
from tests.conftest import ROOT
from tests.ingest.daily import Died, Fleet, assert_days_are_those_of_the_records

_KEYS = {"run": "r", "run_index": 0, "artifact": "a", "month": "2026-11", "cluster": "default", "rank": 0}


def _memory(*rows: dict[str, Any]) -> dict[str, pa.Table]:
    return {"rank_memory": pa.Table.from_pylist([{**_KEYS, **row} for row in rows], schema=arrow_schema("rank_memory"))}


def test_records_of_one_level_are_one_row() -> None:
    level = 2**28
    rows = rank_day_of(_memory({"max_reserved_bytes": 5 * level, "allocated_bytes": 7, "max_allocated_bytes": 3},
                               {"max_reserved_bytes": 6 * level - 1, "reserved_bytes": 1}, {"max_reserved_bytes": 6 * level},
                               {"max_reserved_bytes": 5 * level, "valid": False})).to_pylist()
    found = sorted((row["reserved_level"], row["records"], row["min_reserved_bytes"], row["max_allocated_bytes"], row["pieces"]) for row in rows
                   if row["allocated_level"] is None)
    assert found == [(5, 1, 6 * level - 1, None, 1), (6, 1, 6 * level, None, 1)]
    assert [row["max_allocated_bytes"] for row in rows if row["allocated_level"] == 0] == [7]


def test_figures_that_are_not_told_stay_null_and_nothing_gives_no_row() -> None:
    row = rank_day_of(_memory({"allocated_bytes": 7})).to_pylist()[0]
    assert {name for name in SUMS if row[name] is None} == set(SUMS) - {"records", "ooms", "pieces", "max_allocated_bytes", "min_allocated_bytes"}
    nothing = ({}, {"iterations": arrow_schema("iterations").empty_table()}, _memory({"valid": False}))
    assert [rank_day_of(tables).num_rows for tables in nothing] == [0, 0, 0]
    assert rank_day_of({}).schema == arrow_schema("rank_day")


def test_a_figure_beyond_every_device_does_not_break_an_ingest() -> None:
    assert rank_day_of(_memory({"allocated_bytes": 2**62})).to_pylist()[0]["allocated_level"] == 2**31 - 1


def _die(waiting: list[str], name: str) -> None:
    """End the writer where it was told to, once."""
    if name in waiting:
        waiting.clear()
        raise Died


@pytest.mark.parametrize("seed", [*range(1), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 40))])
def test_days_hold_through_every_history(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, deaths = Fleet(Lake(tmp_path), seed), ["memory_stats", "oom_events", "rank_day", "artifacts", "nowhere", "nowhere"]
    waiting: list[str] = []
    rows, artifacts = Lake._append_rows, Lake._append_artifacts
    monkeypatch.setattr(Lake, "_append_rows", lambda lake, name, *given: _die(waiting, name) or rows(lake, name, *given))
    monkeypatch.setattr(Lake, "_append_artifacts", lambda *given: _die(waiting, "artifacts") or artifacts(*given))
    for _ in range(8):
        waiting[:] = [fleet.random.choice(deaths)]
        with suppress(Died):
            fleet.write()
        seen = assert_days_are_those_of_the_records(connect(fleet.lake))
    assert seen


def test_the_samples_have_their_days(tmp_path: Path) -> None:
    ingest([ROOT / "sample_data"], tmp_path / "lake", workers=1)
    assert assert_days_are_those_of_the_records(connect(Lake(tmp_path / "lake"))) > 10
