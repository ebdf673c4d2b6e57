"""The views over a lake and over rows in memory: what is visible, what old files lack, and what a locked connection refuses."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from importlib.resources import files
from threading import Event

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.database import VIEWS, connect, from_rows, locked, orphans, records, view_text
from analysis.query.ask import ask
from ingest.errors import LedgerError
from ingest.lake import Lake
from ingest.pipeline import ingest
from ingest.tables import TABLES, arrow_schema
from tests.analysis.made import GIB, dense_run, memory
from tests.conftest import ROOT


class FolderLake:
    """Parquet files under a folder, as a lake names them: partition columns stand in the path only."""

    def __init__(self, root):
        self.root = root

    def put(self, table, rows, *, without=(), month="2026-11", name="part-0"):
        schema = pa.schema([field for field in arrow_schema(table) if field.name not in ("month", "cluster", *without)])
        folder = self.root / table / f"month={month}" / "cluster=default"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / f"{name}.parquet")

    def uris(self, table):
        return sorted(str(path) for path in (self.root / table).rglob("*.parquet"))

    def file_system(self):
        return None


def piece(source, start, end, status="closed", at=1):
    name = f"{source}:{start}-{end}" + ("t" if status == "tail" else "")
    return {"run": "r", "run_index": 0, "artifact": name, "source": source, "path": f"{source}.log", "start_bytes": start, "end_bytes": end,
            "status": status, "ingested_at": datetime(2026, 11, at)}


@pytest.fixture
def lake(tmp_path):
    return FolderLake(tmp_path / "it's a lake")


def test_an_empty_lake_has_every_table_with_its_types(lake):
    connection = connect(lake)
    for table in TABLES:
        described = connection.execute(f"DESCRIBE {table.name}").fetchall()
        assert tuple(row[0] for row in described) == table.names
        assert connection.execute(f"SELECT COUNT(*) FROM {table.name}").fetchall() == [(0,)]
    kinds = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE rank_memory)").fetchall())
    assert (kinds["rank"], kinds["allocated_bytes"], kinds["valid"], kinds["at"]) == ("INTEGER", "BIGINT", "BOOLEAN", "TIMESTAMP")
    assert kinds["other"] == "MAP(VARCHAR, VARCHAR)"


def test_every_view_answers_on_an_empty_lake(lake):
    connection = connect(lake)
    assert {view: records(connection, f"SELECT * FROM {view}") for view in VIEWS} == {view: [] for view in VIEWS}


def test_only_rows_of_visible_pieces_are_seen(lake):
    pieces = [piece("a", 0, 10), piece("a", 10, 20), piece("a", 20, 25, "tail"), piece("a", 10, 18, "tail"), piece("b", 0, 7, "tail"),
              piece("c", 0, 4, "tail"), piece("c", 0, 9, "tail"), piece("q", 0, 0, "quarantined"),
              piece("z", 0, 0, "quarantined"), piece("z", 0, 5, at=2)]
    lake.put("artifacts", pieces)
    lake.put("rank_memory", [{**memory(at, line=at), "run": "r", "run_index": 0, "artifact": one["artifact"]} for at, one in enumerate(pieces)]
             + [{**memory(99, line=1), "run": "r", "run_index": 0, "artifact": "crashed:0-5"}])
    connection = connect(lake)
    seen = {row["artifact"] for row in records(connection, "SELECT artifact FROM rank_memory")}
    assert seen == {"a:0-10", "a:10-20", "a:20-25t", "b:0-7t", "c:0-9t", "q:0-0", "z:0-5"}
    assert orphans(connection) == {"artifacts": 3, "rank_memory": 4}


def test_old_files_without_a_column_and_partitions_of_the_path(lake):
    lake.put("artifacts", [piece("a", 0, 10)])
    row = {**memory(3, line=7, rounding_bytes=5), "run": "r", "run_index": 0, "artifact": "a:0-10"}
    lake.put("rank_memory", [row], without=("rounding_bytes", "at"), month="2026-10", name="old")
    lake.put("rank_memory", [{**row, "rank": 4}], month="2026-11", name="new")
    found = records(connect(lake), "SELECT rank, rounding_bytes, month, cluster FROM rank_memory ORDER BY rank")
    assert [tuple(one.values()) for one in found] == [(3, None, "2026-10", "default"), (4, 5, "2026-11", "default")]
    lake.put("rank_memory", [{**row, "rank": 4}], without=("rounding_bytes", "at"), month="2026-11", name="new")
    assert records(connect(lake), "SELECT SUM(rounding_bytes) AS n FROM rank_memory") == [{"n": None}]


def test_a_lake_and_rows_in_memory_give_the_same_answers(lake):
    rows = dense_run()
    lake.put("artifacts", [{**piece("log", 0, 10), "run": "x"}])
    for table, own in rows.items():
        lake.put(table, [{**row, "run": "x", "run_index": 0, "artifact": "log:0-10"} for row in own])
    stored, held = connect(lake), from_rows(rows, "x", "log:0-10")
    for view in (*VIEWS, "rank_layout"):
        one, other = (sorted(map(str, records(connection, f"SELECT * EXCLUDE (run) FROM {view}"))) for connection in (stored, held))
        blank = [re.sub(r"'(month|cluster)': [^,}]*", "", text) for text in one], [re.sub(r"'(month|cluster)': [^,}]*", "", text) for text in other]
        assert blank[0] == blank[1], view


def test_ranks_stand_on_the_grid_of_their_run_and_none_is_invented():
    rows = dense_run()
    assert records(from_rows(rows), "SELECT rank, tp, pp, dp FROM rank_layout ORDER BY rank")[-1] == {"rank": 13, "tp": 1, "pp": 3, "dp": 0}
    assert len(records(from_rows(rows), "SELECT * FROM rank_layout")) == 8
    rows["run_args"].append({"name": "use_tp_pp_dp_mapping", "value": "True", "origin": "dump", "line": 30})
    assert records(from_rows(rows), "SELECT pp FROM rank_layout WHERE rank = 4") == [{"pp": 2}]
    rows["runs"][0]["world_size"] = rows["run_args"][2]["value"] = None
    assert records(from_rows(rows), "SELECT * FROM rank_layout") == []


def test_views_are_listed_and_keep_to_the_common_subset():
    assert {entry.name.removesuffix(".sql") for entry in files("analysis").joinpath("sql").iterdir() if entry.name.endswith(".sql")} == set(VIEWS)
    for view in VIEWS:
        text = re.sub(r"--.*", "", view_text(view)).lower()
        assert not re.search(r"\b(qualify|quantile_cont|arg_max|arg_min|exclude|filter|unnest|struct_pack|any_value)\b|::", text), view


REFUSED = (
    "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/hostname')", "SELECT * FROM glob('/etc/*')",
    "COPY runs TO '/tmp/x.csv'", "SELECT 1; SELECT 2", "CREATE TABLE t AS SELECT 1", "SET memory_limit = '50GB'",
    "ATTACH '/tmp/other.db'", "INSTALL httpfs", "", "-- nothing", "SELEC 1", "DROP VIEW runs",
    "SELECT * FROM secret_frame", "PRAGMA database_list; SELECT 1", "EXPLAIN ANALYZE SELECT 1", "SELECT * FROM no_such_table",
)


def test_a_locked_connection_refuses_all_but_one_select_of_the_lake(lake):
    secret_frame = pa.table({"a": [1]})
    lake.put("artifacts", [piece("a", 0, 10)])
    connection = locked(lake)
    answered = []
    for query in REFUSED:
        with suppress(LedgerError):
            answered.append((query, ask(connection, query)))
    assert answered == []
    assert secret_frame.num_rows == 1


def test_a_locked_connection_reads_the_lake_and_caps_rows(lake):
    lake.put("artifacts", [piece("a", 0, 10)])
    connection = locked(lake)
    assert ask(connection, "SELECT path FROM artifacts -- ; DROP").rows == (("a.log",),)
    assert ask(connection, "WITH one AS (SELECT ';' AS mark) SELECT mark FROM one").rows == ((";",),)
    answer = ask(connection, "SELECT * FROM range(100)", rows=7)
    assert (len(answer.rows), answer.capped) == (7, True)
    assert not ask(connection, "SELECT * FROM range(7)", rows=7).capped
    assert ask(locked(from_rows(dense_run())), "SELECT COUNT(*) FROM rank_memory").rows == ((8,),)


def test_a_query_that_runs_too_long_is_stopped():
    with pytest.raises(LedgerError, match=r"longer than 0\.2 s"):
        ask(locked(from_rows({})), "SELECT SUM(a.range * b.range) FROM range(10000000) AS a, range(10000000) AS b", seconds=0.2)


def test_capacity_is_the_ranks_own_before_another_ranks():
    rows = dense_run()
    rows["oom_events"] = [{"rank": 4, "capacity_bytes": 80 * GIB, "line": 500},
                          {"rank": 0, "capacity_bytes": 40 * GIB, "allowed_bytes": 30 * GIB, "line": 501}]
    rows["rank_memory"][3]["device_total_bytes"] = 79 * GIB
    found = {row["rank"]: (row["capacity_bytes"] // GIB, row["capacity_line"]) for row in records(from_rows(rows), "SELECT * FROM rank_capacity")}
    assert (found[4], found[0], found[5], found[12]) == ((80, 500), (30, 501), (79, 105), (30, 501))


def test_artifacts_are_looked_at_before_any_other_table(lake):
    """They are committed last: where they are looked at later than a table, a piece may be visible whose rows were not there yet."""
    others = Event()

    class Watched(FolderLake):
        def uris(self, table):
            if table != "artifacts":
                others.set()
            elif others.wait(0.3):
                raise AssertionError("another table was looked at meanwhile")
            return super().uris(table)

    connect(Watched(lake.root))
    assert others.is_set()


def test_the_given_rows_are_not_changed_and_bad_settings_do_not_leak():
    rows = dense_run()
    before = str(rows)
    from_rows(rows, "x")
    assert str(rows) == before
    locked(from_rows(rows))
    assert duckdb.connect().execute("SELECT current_setting('lock_configuration')").fetchall() == [(False,)]


def test_a_lake_is_read_wherever_its_path_and_cluster_need_escapes(tmp_path):
    lake = Lake(tmp_path / "my lake 100%")
    ingest([ROOT / "sample_data/moe_16ranks/memory_stats_rank0.jsonl"], lake, cluster="a@b", run="r")
    query = "SELECT cluster, COUNT(*) AS n FROM rank_memory GROUP BY cluster"
    assert records(connect(lake), query) == [{"cluster": "a@b", "n": 50}]
    assert ask(locked(lake), query).rows == (("a@b", 50),)


def test_opening_a_lake_opens_no_file_of_records(lake):
    lake.put("artifacts", [piece("a", 0, 10)])
    lake.put("rank_memory", [{**memory(3, line=7), "run": "r", "run_index": 0, "artifact": "a:0-10"}])
    (file,) = lake.uris("rank_memory")
    with open(file, "wb") as broken:
        broken.write(b"no parquet at all")
    connection = connect(lake)
    assert records(connection, "SELECT path FROM artifacts") == [{"path": "a.log"}]
    with pytest.raises(LedgerError, match="rank_memory is lost or damaged"):
        records(connection, "SELECT * FROM rank_memory")
