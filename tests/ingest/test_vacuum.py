"""Vacuum: files that nobody can need go; those of readers and writers at work stay."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from analysis.database import connect
from ingest.errors import LedgerError
from ingest.lake import Lake
from ingest.upkeep.compact import Limits, compact
from ingest.upkeep.vacuum import vacuum
from tests.ingest.daily import Fleet

DAY = timedelta(days=1)


def parquet(lake: Lake) -> set[str]:
    return {str(path) for path in Path(lake.root).rglob("*.parquet") if "_delta_log" not in path.parts}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    fleet = Fleet(Lake(tmp_path / "a lake"), 1)
    for _ in range(4):
        fleet.write()
    return fleet.lake


def test_a_file_replaced_just_now_stays_however_old_it_is(lake: Lake) -> None:
    before = parquet(lake)
    for path in before:
        os.utime(path, (0, 0))
    reader = connect(lake)
    compact(lake, limits=Limits(grace=timedelta(0)))
    assert sum(one.files for one in vacuum(lake, DAY)) == 0
    assert before <= parquet(lake)
    assert reader.execute("SELECT COUNT(*) FROM rank_memory").fetchall() == connect(lake).execute("SELECT COUNT(*) FROM rank_memory").fetchall()


def test_files_replaced_long_ago_go(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rows = parquet(lake), connect(lake).execute("SELECT * FROM rank_memory ORDER BY ALL").fetchall()
    with monkeypatch.context() as patch:
        now = time.time()
        patch.setattr("ingest.upkeep.stored.time.time", lambda: now - 2 * 86400)
        compact(lake, ["rank_memory"], Limits(grace=timedelta(0)))
    wanted = set(lake.uris("rank_memory"))
    planned = vacuum(lake, DAY, dry_run=True)
    assert before <= parquet(lake), "a dry run removes nothing"
    done = {one.table: one for one in vacuum(lake, DAY)}
    assert [one.files for one in planned] == [one.files for one in done.values()]
    assert done["rank_memory"].files == len({path for path in before if "/rank_memory/" in path} - wanted) > 0
    assert done["rank_memory"].size_bytes > 0
    assert {path for path in parquet(lake) if "/rank_memory/" in path} == wanted
    assert connect(lake).execute("SELECT * FROM rank_memory ORDER BY ALL").fetchall() == rows


def test_what_a_killed_writer_left_goes_when_it_is_old(lake: Lake) -> None:
    folder = Path(lake.uris("rank_memory")[0]).parent
    for name, hours in (("old", 30), ("new", 1)):
        (folder / f"part-{name}.parquet").write_bytes(b"half")
        os.utime(folder / f"part-{name}.parquet", (time.time() - 3600 * hours,) * 2)
    assert sum(one.files for one in vacuum(lake, DAY)) == 1
    assert [(folder / f"part-{name}.parquet").exists() for name in ("old", "new")] == [False, True]


@pytest.mark.parametrize("span", [timedelta(minutes=59), timedelta(0), timedelta(days=8)])
def test_a_time_that_cannot_be_promised_is_refused(lake: Lake, span: timedelta) -> None:
    with pytest.raises(LedgerError, match="cannot be removed after"):
        vacuum(lake, span)
