"""Answers as files, and the DuckDB file that other programs open: the same rows, and nothing overwritten."""

from __future__ import annotations

import csv

import duckdb
import pyarrow.parquet as pq
import pytest

from analysis.database import VIEWS, WORKED_OUT, connect
from analysis.query.check import COMPUTED
from cli import main
from ingest.lake import Lake
from ingest.pipeline import ingest
from ingest.tables import TABLES
from tests.conftest import ROOT

QUERY = "SELECT run, rank, max_allocated_bytes, SUM(max_allocated_bytes) OVER () AS total FROM rank_latest WHERE rank IS NOT NULL ORDER BY run, rank"


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    root = tmp_path_factory.mktemp("lakes") / "a lake, it's one"
    ingest([ROOT / "sample_data" / name for name in ("dense_7b5_pp2", "oom_run")], Lake(root))
    return str(root)


def test_csv_and_parquet_hold_the_answer_and_are_never_overwritten(lake, tmp_path, capsys):
    with connect(Lake(lake)) as connection:
        expected = connection.execute(QUERY).fetchall()
    for form in ("csv", "parquet"):
        out = tmp_path / f"answer.{form}"
        asked = ["sql", QUERY, "--lake", lake, "--format", form, "--output", str(out)]
        assert main(asked) == 0
        before = out.read_bytes()
        assert main(asked) == 2
        assert "not overwritten" in capsys.readouterr().err
        assert out.read_bytes() == before
    with open(tmp_path / "answer.csv", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["run", "rank", "max_allocated_bytes", "total"]
    assert [tuple(line) for line in lines] == [tuple(map(str, row)) for row in expected]
    table = pq.read_table(tmp_path / "answer.parquet")
    assert [str(field.type) for field in table.schema] == ["string", "int32", "int64", "int64"]
    assert [tuple(row.values()) for row in table.to_pylist()] == expected


def test_a_refused_query_leaves_no_file(lake, tmp_path, capsys):
    out = tmp_path / "answer.csv"
    assert main(["sql", "SELECT nothing FROM runs", "--lake", lake, "--format", "csv", "--output", str(out)]) == 2
    assert not out.exists()
    assert main(["sql", "SELECT 1", "--lake", lake, "--format", "parquet"]) == 2
    assert "--output FILE" in capsys.readouterr().err


def test_a_database_file_gives_the_same_answers_without_this_package(lake, tmp_path, capsys):
    file = tmp_path / "lake's.duckdb"
    assert main(["export-db", str(file), "--lake", lake]) == 0
    assert Lake(lake).version() in capsys.readouterr().out
    with duckdb.connect(str(file), read_only=True) as plain, connect(Lake(lake)) as ours:
        for name in (*(table.name for table in TABLES), *VIEWS, *WORKED_OUT):
            asked = f"SELECT * FROM {name} ORDER BY ALL"
            assert plain.execute(asked).fetchall() == ours.execute(asked).fetchall(), name
            assert plain.execute(f"DESCRIBE {name}").fetchall() == ours.execute(f"DESCRIBE {name}").fetchall(), name
        for module in COMPUTED:
            for name in module.COLUMNS:
                plain.execute(f"SELECT COUNT(*) FROM {name}").fetchall()
        assert plain.execute("SELECT COUNT(*) FROM rank_memory").fetchall() > [(0,)]
        assert plain.execute("SELECT version FROM about").fetchall() == [(Lake(lake).version(),)]
        assert "measured rank" in plain.execute("SELECT comment FROM duckdb_views() WHERE view_name = 'rank_headroom'").fetchall()[0][0]
    assert main(["export-db", str(file), "--lake", lake]) == 2
    assert "not overwritten" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name]


def test_a_database_file_of_no_lake_is_refused_in_a_sentence(tmp_path, capsys):
    assert main(["export-db", str(tmp_path / "x.duckdb"), "--lake", str(tmp_path / "none")]) == 2
    assert "there is no lake here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
