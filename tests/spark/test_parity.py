"""Every table and view answers the same on a real Spark cluster as on DuckDB, over one lake of the sample runs.

First the tables, read by the workers from the lake's own files through what decides which rows count. Then each view's own `.sql` on the same
inputs, so that a difference is told of the view that makes it, and the plans stay small. Then whole chains, by the function that the command calls.
Whole numbers, texts, times and their types are compared exactly, doubles to a relative 1e-12.
"""

from __future__ import annotations

import math
import re
import shutil
import warnings

import pyarrow as pa
import pytest

from analysis.database import VIEWS, connect, view_text
from analysis.query import spark
from analysis.query.ask import Answer
from cli import main
from ingest.errors import LedgerError
from ingest.lake import Lake
from ingest.pipeline import ingest
from ingest.tables import BY_NAME
from tests.conftest import ROOT
from tests.spark.cluster import spark_cluster

if shutil.which("java") is None:
    pytest.skip("no Java here: the views were not compared with Spark", allow_module_level=True)
pytest.importorskip("pyspark.sql.connect.session", reason="the full pyspark is not installed: the views were not compared with Spark",
                    exc_type=ImportError)

SAMPLES = ("dense_7b5_pp2", "moe_16ranks", "oom_run", "snapshots")
MAY_BE_EMPTY = {"rejects", "fleet_drift"}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    found = Lake(tmp_path_factory.mktemp("lakes") / "a lake, it's one")
    ingest([ROOT / "sample_data" / name for name in SAMPLES], found)
    return found


@pytest.fixture(scope="module")
def local(lake):
    with connect(lake) as connection:
        yield connection


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@pytest.fixture(scope="module")
def session(remote):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with spark.session(remote) as opened:
            yield opened


@pytest.fixture(scope="module")
def given():
    """Which relations were handed to the session as rows."""
    return set()


def kind(type_: pa.DataType) -> str:
    """What a column holds, over the engines' own widths: sums of whole numbers are 128 bits wide in DuckDB and 64 in Spark."""
    if pa.types.is_integer(type_) or (pa.types.is_decimal(type_) and type_.scale == 0):
        return "whole number"
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    return re.sub(r"large_| not null|(?<=<)\w+: ", "", str(type_))


def ordered(table: pa.Table) -> list[tuple[object, ...]]:
    """Rows in an order that no last digit of a double decides."""
    rows = Answer(table, False).rows
    return sorted(rows, key=lambda row: ([repr(one) for one in row if not isinstance(one, float)], [one for one in row if isinstance(one, float)]))


def same(one: object, other: object) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return one is not None and other is not None and math.isclose(float(one), float(other), rel_tol=1e-12, abs_tol=0)  # type: ignore[arg-type]
    return one == other


def agree(there: pa.Table, here: pa.Table) -> None:
    assert there.column_names == here.column_names
    kinds = [(name, kind(a.type), kind(b.type)) for name, a, b in zip(there.column_names, there.schema, here.schema, strict=True)]
    assert [found for found in kinds if found[1] != found[2]] == []
    assert there.num_rows == here.num_rows
    for row, (one, other) in enumerate(zip(ordered(there), ordered(here), strict=True)):
        different = [(name, a, b) for name, a, b in zip(here.column_names, one, other, strict=True) if not same(a, b)]
        assert not different, f"row {row}: {different}"


def inputs(name: str) -> list[str]:
    text = re.sub(r"--[^\n]*", "", view_text(name))
    relations = {*BY_NAME, *VIEWS, *spark.WORKED_OUT}
    return sorted(word for word in set(re.findall(r"\w+", text)) if word in relations and word != name)


def test_every_table_reads_the_lake_s_files_as_duckdb_does(session, local, lake):
    spark.make_views(session, lake, local, tuple(BY_NAME))
    filled = [name for name in BY_NAME if local.execute(f"SELECT COUNT(*) FROM {name}").fetchall()[0][0]]
    assert {"rank_memory", "artifacts", "run_args", "oom_events", "expert_load"} <= set(filled)
    for name in BY_NAME:
        if name in filled:
            agree(session.table(name).toArrow(), local.sql(f"SELECT * FROM {name}").to_arrow_table())
        else:
            assert session.table(name).columns == list(BY_NAME[name].names)


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_answers_the_same(name, session, local, given):
    for needed in inputs(name):
        if needed not in given:
            spark.given(session, local.sql(f"SELECT * FROM {needed}").to_arrow_table()).createOrReplaceTempView(needed)
            given.add(needed)
    here = local.sql(f"SELECT * FROM {name}").to_arrow_table()
    assert here.num_rows or name in MAY_BE_EMPTY, "the samples do not reach this view"
    agree(session.sql(view_text(name)).toArrow(), here)


def test_the_command_answers_on_the_cluster(remote, lake, local, capsys):
    query = "SELECT run, rank, max_allocated_bytes FROM rank_latest WHERE rank IS NOT NULL ORDER BY run, rank"
    asked = ["sql", query, "--lake", lake.root, "--format", "csv", "--seconds", "300", "--engine", "spark", "--remote", remote]
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [",".join(map(str, row)) for row in local.execute(query).fetchall()]
    assert main([*asked, "--rows", "2"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert "only the first 2 rows" in said.err


@pytest.mark.parametrize("query", ["SELECT * FROM parquet.`/etc/passwd`", "SELECT reflect('java.lang.System', 'getenv', 'HOME')", "SHOW TABLES",
                                   "SELECT java_method('java.lang.System', 'getProperty', 'user.home')", "CREATE TABLE mine (a INT)", "SET a = 1",
                                   "SELECT 'a\\'', reflect('a'), '\\'", "SELECT 1; SELECT 2", "SELECT * FROM read_files('/etc')",
                                   "SELECT nothing FROM runs"])
def test_what_only_spark_would_take_never_reaches_it(query, lake):
    class Unreached:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was called")

    with pytest.raises(LedgerError):
        spark.ask(Unreached(), lake, query)
