"""Compaction: fewer, sorted files with the same answers; nothing lost or doubled whoever else is at work."""

from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from analysis.database import connect, orphans
from ingest.errors import LedgerError
from ingest.lake import Batch, Lake
from ingest.tables import arrow_schema
from ingest.upkeep import stored
from ingest.upkeep.compact import Compacted, Limits, compact, planned
from ingest.upkeep.stored import StoredFile, version_of
from tests.ingest.daily import Died, Fleet, assert_days_are_those_of_the_records

NOW = Limits(grace=timedelta(0))


def done(lake: Lake, limits: Limits = NOW, tables: tuple[str, ...] | None = None) -> dict[str, Compacted]:
    return {one.table: one for one in compact(lake, tables, limits)}


def records(lake: Lake) -> list[Any]:
    """Every visible record."""
    connection = connect(lake)
    tables = ("artifacts", "rank_memory", "memory_stats", "oom_events")
    return [connection.execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall() for table in tables]


def fleet(tmp_path: Path, writes: int = 6, seed: int = 1) -> Fleet:
    made = Fleet(Lake(tmp_path / "lake"), seed)
    for _ in range(writes):
        made.write()
    return made


def test_small_files_of_a_partition_become_one_in_order(tmp_path: Path) -> None:
    lake = fleet(tmp_path).lake
    before = records(lake)
    assert len(lake.uris("rank_memory")) > 2
    report = done(lake)["rank_memory"]
    months = {row[0] for row in connect(lake).execute("SELECT DISTINCT month FROM rank_memory").fetchall()}
    assert len(lake.uris("rank_memory")) == report.files_after == len(months)
    assert records(lake) == before
    rows = pq.read_table(lake.uris("rank_memory")[0], columns=["run", "run_index", "iteration", "rank"], partitioning=None).to_pylist()
    keys = [tuple(-1 if value is None else value for value in row.values()) for row in rows]
    assert [key[0] for key in keys] == sorted(key[0] for key in keys)
    told = [key for key in keys if -1 not in key]
    assert told == sorted(told)
    assert done(lake)["rank_memory"].commits == 0, "what is compact stays as it is"


def test_rows_that_can_never_count_again_go_and_those_of_a_writer_at_work_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fleet(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "_append_artifacts", lambda *_: (_ for _ in ()).throw(Died()))
        for _ in range(6):
            with suppress(Died):
                made.write()
    before = records(made.lake)
    in_flight = orphans(connect(made.lake))
    report = done(made.lake)
    assert records(made.lake) == before
    left = orphans(connect(made.lake))
    assert 0 < report["rank_memory"].rows_dropped == in_flight["rank_memory"] - left["rank_memory"]
    assert left["rank_memory"], "the newest pieces may still be committed"


def test_what_a_reader_was_told_an_hour_ago_is_still_there(tmp_path: Path) -> None:
    lake = fleet(tmp_path).lake
    left = orphans(connect(lake))
    report = done(lake, Limits())
    assert (report["rank_memory"].rows_dropped, report["rank_day"].rows_folded) == (0, 0)
    assert orphans(connect(lake)) == left


def reading(start: int, end: int) -> Batch:
    """A piece with one record, alike but for its place."""
    keys: dict[str, Any] = {"run": "r", "run_index": 0, "artifact": f"s:{start}-{end}~0", "month": "2026-11", "cluster": "c"}
    batch = Batch(expected={"s": start or None})
    batch.artifacts.append({**keys, "source": "s", "path": "p", "start_bytes": start, "end_bytes": end, "status": "closed",
                            "ingested_at": datetime(2026, 11, 1)})
    batch.tables["rank_memory"] = [pa.Table.from_pylist([{**keys, "rank": 0, "allocated_bytes": 5}], schema=arrow_schema("rank_memory"))]
    return batch


def test_a_sleeping_writer_does_not_write_again_what_was_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passed the first look at `artifacts`, slept while another wrote the same and upkeep folded it, and goes on."""
    sleeper, other = Lake(tmp_path), Lake(tmp_path)
    other.commit(reading(0, 5))
    batch, slept = reading(5, 10), []
    original = Lake._append_rows

    def sleepy(lake: Lake, name: str, *given: Any) -> None:
        if lake is sleeper and not slept:
            slept.append(other.commit(batch))
            assert done(other)["rank_day"].rows_folded == 1
        original(lake, name, *given)

    monkeypatch.setattr(Lake, "_append_rows", sleepy)
    assert (sleeper.commit(batch), slept) == ({"s"}, [set()])
    assert connect(other).execute("SELECT records FROM rank_days").fetchall() == [(2,)]
    assert assert_days_are_those_of_the_records(connect(other)) == 1


@pytest.mark.parametrize("rival", ["ours", "of the table format"])
def test_of_two_compactions_of_the_same_files_one_wins(tmp_path: Path, rival: str) -> None:
    lake = fleet(tmp_path, 3).lake
    before, version = records(lake), version_of(lake, "rank_memory")
    assert version
    if rival == "ours":
        done(lake)
    else:
        DeltaTable(lake._address("rank_memory")).optimize.compact()
    alike = [one for one in version.files if one.partition == version.files[0].partition]
    added = stored.write(version, alike[0], [pq.read_table(lake.root + "/rank_memory/" + alike[0].path, schema=version.schema)], 1)
    assert len(alike) > 1
    assert not stored.replace(lake, "rank_memory", alike, added)
    assert not (Path(lake.root) / "rank_memory" / added[0].path).exists()
    assert records(lake) == before


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = fleet(tmp_path, 3).lake
    files = set(Path(lake.root).rglob("*.parquet"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ingest.upkeep.stored.pq.ParquetWriter.write_table", full)
    with pytest.raises(LedgerError, match="No space left"):
        done(lake, tables=("rank_memory",))
    assert {path for path in Path(lake.root).rglob("*.parquet") if "_delta_log" not in path.parts} == files


def test_a_fault_ends_in_one_sentence_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = fleet(tmp_path, 3).lake
    before, files = records(lake), lake.uris("rank_memory")
    faults = [(OSError(28, "No space left on device"), "space"), (DeltaError("denied"), "denied"),
              (duckdb.OutOfMemoryException("failed to spill"), "spill")]

    def failing(*_: Any, **__: Any) -> None:
        raise faults[0][0]

    monkeypatch.setattr("ingest.upkeep.stored.write", failing)
    while faults:
        with pytest.raises(LedgerError, match=rf"upkeep stopped: .*{faults[0][1]}") as told:
            done(lake)
        assert "run the same command again" in str(told.value)
        assert (records(lake), lake.uris("rank_memory")) == (before, files)
        faults.pop(0)


def test_columns_of_a_newer_release_survive(tmp_path: Path) -> None:
    lake = fleet(tmp_path, 2).lake
    newer = "SELECT *, 'kept' AS word FROM stored.{table} LIMIT 3"
    for table in ("rank_memory", "rank_day"):
        rows = connect(lake).sql(newer.format(table=table)).to_arrow_table()
        write_deltalake(lake._address(table), rows, mode="append", schema_mode="merge")
    report = done(lake)
    assert report["rank_day"].rows_folded == 0, "unknown figures are not summed"
    for table in ("rank_memory", "rank_day"):
        assert sum(pq.read_table(uri, partitioning=None)["word"].to_pylist().count("kept") for uri in lake.uris(table)) == 3


def test_bins_hold_small_files_of_one_partition_and_keep_their_bounds() -> None:
    def file(number: int, size: int, month: str = "2026-11") -> StoredFile:
        return StoredFile(f"{month}/{number}", "", size, 1, number, (month, "c"))

    limits = Limits(target_bytes=100, bin_files=3, bin_bytes=90)
    files = [file(1, 20), file(2, 20), file(3, 20), file(4, 20), file(5, 40), file(6, 40), file(7, 50), file(8, 20, "2026-10")]
    assert [[one.written_ms for one in of_bin] for of_bin in planned(files, limits)] == [[1, 2, 3], [4, 5], [6]][:2]


def test_an_unknown_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no table nonsense"):
        compact(Lake(tmp_path), ["nonsense"])


@pytest.mark.parametrize("seed", [*range(1), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 25))])
def test_answers_hold_through_every_history_of_writers_and_compactions(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, waiting = Fleet(Lake(tmp_path), seed), [""]
    artifacts = Lake._append_artifacts

    def dying(*given: Any) -> set[str]:
        if waiting[0]:
            raise Died
        return artifacts(*given)

    monkeypatch.setattr(Lake, "_append_artifacts", dying)
    for _ in range(8):
        waiting[0] = made.random.choice(["", "", "dies"])
        with suppress(Died):
            made.write()
        if made.lake.exists() and made.random.random() < 0.5:
            before = records(made.lake)
            done(made.lake, Limits(grace=timedelta(0), bin_files=made.random.choice([2, 5, 100])))
            assert records(made.lake) == before
        assert_days_are_those_of_the_records(connect(made.lake))
