"""Rows that a parser gives as Arrow columns reach the lake beside rows that come as dictionaries, with the keys of their artifact."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from analysis.database import connect
from ingest.arrow_rows import Collector, completed
from ingest.lake import Lake
from ingest.pipeline import ingest

KEYS = {"run": "r", "artifact": "a", "month": "2026-11", "cluster": "default"}


def _write(folder: Path, rank: int, steps: int) -> None:
    path = folder / "job" / "tokens_per_expert" / f"rank{rank}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"iter": step, "block": "decoder", "layer": layer, "tpe": [[rank, step]]}) + "\n"
                            for step in range(1, steps + 1) for layer in range(2)))


def test_counts_of_many_ranks_are_in_the_lake_once_however_often_they_are_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for rank in range(4):
        _write(tmp_path, rank, 5)
    summary = ingest([tmp_path / "job"], lake)
    assert summary.rows == {"expert_load": 4 * 5 * 2 * 2}
    _write(tmp_path, 3, 7)
    assert ingest([tmp_path / "job"], lake).files_grown == 1
    assert ingest([tmp_path / "job"], lake).files_unchanged == 4
    query = "SELECT rank, COUNT(*), SUM(tokens), COUNT(DISTINCT run), MIN(run_index) FROM expert_load GROUP BY rank ORDER BY rank"
    assert connect(lake).execute(query).fetchall() == [(rank, 20, 10 * rank + 30, 1, 0) for rank in range(3)] + [(3, 28, 14 * 3 + 56, 1, 0)]


def test_a_column_that_the_schema_lacks_is_a_mistake_of_the_parser() -> None:
    with pytest.raises(ValueError, match="no column weight"):
        completed("expert_load", pa.table({"weight": [1]}), KEYS)


def test_both_kinds_of_rows_are_counted_and_have_all_columns() -> None:
    rows = Collector()
    rows.add({"expert_load": [{"tokens": 3, "rank": 1}]}, KEYS)
    rows.add_tables({"expert_load": pa.table({"tokens": pa.array([4, 5], pa.int64())})}, KEYS)
    rows.squeeze()
    assert (rows.count, [part["tokens"].to_pylist() for part in rows.tables["expert_load"]]) == (3, [[4, 5], [3]])
    assert {part.column_names[0] for part in rows.tables["expert_load"]} == {"run"}
