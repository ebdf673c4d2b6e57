"""Lakes of other releases: read with nulls, written by adding columns, compacted without loss; a changed type is refused."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from analysis.database import VIEWS, connect
from cli import main
from ingest.errors import LedgerError
from ingest.lake import PARTITION, Lake
from ingest.pipeline import ingest
from ingest.tables import TABLES
from ingest.upkeep.compact import compact
from tests.conftest import ROOT

DATA = ROOT / "tests" / "data"
RELEASES = sorted(path.name.removesuffix(".tar.gz") for path in (DATA / "lakes").glob("*.tar.gz"))


def unpacked(release: str, target: Path) -> Lake:
    with tarfile.open(DATA / "lakes" / f"{release}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return Lake(target)


def rows(lake: Lake, *, run: str = "oom_run") -> dict[str, list[Any]]:
    """Rows of a run by table; of what pieces add to days, the sums."""
    connection = connect(lake)
    names = ("rank_days" if table.name == "rank_day" else table.name for table in TABLES)
    return {name: connection.execute(f"SELECT * FROM {name} WHERE run = '{run}' ORDER BY ALL").fetchall() for name in names}


def rewritten(lake: Lake, table: str, change: Any) -> None:
    """A table made anew from its own rows, as another release would have written it."""
    stored = connect(lake).sql(f"SELECT * FROM stored.{table}").to_arrow_table()
    shutil.rmtree(Path(lake.root) / table)
    write_deltalake(lake._address(table), change(stored), partition_by=PARTITION)


def log(tmp_path: Path) -> Path:
    """A log that no lake holds."""
    file = tmp_path / "train.log"
    file.write_text("[Rank 3] (after 7 iterations) memory (MB) | allocated: 1.00 | max allocated: 2.00 | reserved: 3.00 | max reserved: 3.00\n")
    return file


def use(lake: Lake, tmp_path: Path) -> None:
    """Every face on a lake: read by each view, written, compacted."""
    before, connection = rows(lake), connect(lake)
    for view in VIEWS:
        connection.execute(f"SELECT * FROM {view}").fetchall()
    assert ingest([log(tmp_path)], lake, run="later", workers=1).rows == {"rank_memory": 1}
    compact(lake)
    assert rows(lake) == before
    assert connect(lake).execute("SELECT rank, iteration, allocated_bytes FROM rank_memory WHERE run = 'later'").fetchall() == [(3, 7, 2**20)]
    assert connect(lake).execute("SELECT rank, records FROM rank_days WHERE run = 'later'").fetchall() == [(3, 1)]


@pytest.mark.parametrize("release", RELEASES)
def test_no_column_of_a_release_is_lost_or_changed(release: str) -> None:
    """Adding a column or a table is fine; what a release wrote keeps its name and its type."""
    released = json.loads((DATA / "schema" / f"{release}.json").read_text())
    now = {table.name: {column.name: column.type for column in table.columns} for table in TABLES}
    changed = {(table, name): kind for table, columns in released.items() for name, kind in columns.items() if now.get(table, {}).get(name) != kind}
    assert changed == {}


@pytest.mark.parametrize("release", RELEASES)
def test_a_lake_of_each_release_is_read_written_and_compacted(release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = unpacked(release, tmp_path / "lake")
    counts = json.loads((DATA / "lakes" / f"{release}.json").read_text())
    connection = connect(lake)
    assert {name: connection.execute(f"SELECT COUNT(*) FROM {name}").fetchall()[0][0] for name in counts} == counts
    use(lake, tmp_path)
    assert main(["report", "oom_run", "--lake", lake.root, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]


def test_an_older_lake_gives_nulls_and_gets_what_it_lacks(tmp_path: Path) -> None:
    lake = unpacked(RELEASES[-1], tmp_path / "lake")
    lacking = ("rounding_bytes", "valid", "at", "other")
    rewritten(lake, "rank_memory", lambda stored: stored.drop_columns(list(lacking)))
    rewritten(lake, "artifacts", lambda stored: stored.drop_columns(["host", "parser_version"]))
    for table in ("rank_day", "snapshot_segments", "parameter_counts"):
        shutil.rmtree(Path(lake.root) / table)
    found = connect(lake).execute("SELECT DISTINCT " + ", ".join(f'"{name}"' for name in lacking) + " FROM rank_memory").fetchall()
    assert found == [(None,) * len(lacking)]
    use(lake, tmp_path)
    assert connect(lake).execute("SELECT COUNT(*) FROM rank_memory WHERE valid").fetchall() == [(1,)]


def test_a_newer_lake_keeps_what_is_not_known_here(tmp_path: Path) -> None:
    lake = unpacked(RELEASES[-1], tmp_path / "lake")

    def newer(stored: pa.Table) -> pa.Table:
        return stored.append_column("colour", pa.array(["red"] * stored.num_rows)).append_column("weight", pa.array([1.5] * stored.num_rows))

    for table in ("rank_memory", "artifacts", "rank_day"):
        rewritten(lake, table, newer)
    write_deltalake(lake._address("not_known_yet"), pa.table({"x": [1]}))
    before = connect(lake).execute("SELECT COUNT(*) FROM rank_memory").fetchall()[0][0]
    use(lake, tmp_path)
    kept = lake._open("rank_memory")
    assert kept
    assert {"colour", "weight"} <= {field.name for field in kept.schema().fields}
    files = f"read_parquet({lake.uris('rank_memory')}, union_by_name = true)"
    assert set(connect(lake).execute(f"SELECT colour, COUNT(*) FROM {files} GROUP BY 1").fetchall()) == {("red", before), (None, 1)}


@pytest.mark.parametrize(("table", "column"), [("rank_memory", "iteration"), ("artifacts", "end_bytes")])
def test_a_column_of_another_type_is_refused(table: str, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = unpacked(RELEASES[-1], tmp_path / "lake")
    rewritten(lake, table, lambda stored: stored.set_column(stored.schema.get_field_index(column), column, stored[column].cast(pa.string())))
    told = f"the column {column} of the table {table} holds string, and this release expects int64"
    with pytest.raises(LedgerError, match=told):
        connect(lake)
    with pytest.raises(LedgerError, match=told):
        ingest([log(tmp_path)], lake, run="again", workers=1)
    for verb in (["report", "oom_run"], ["compact"], ["sql", "SELECT 1"]):
        assert main([*verb, "--lake", lake.root]) == 2
    assert told in capsys.readouterr().err
