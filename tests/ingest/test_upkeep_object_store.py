"""Upkeep of a lake in an object store: the same commits, files read and written there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from analysis.database import connect
from ingest.lake import Lake
from ingest.upkeep.compact import Limits, compact
from ingest.upkeep.health import health
from ingest.upkeep.retention import Keep, retention
from ingest.upkeep.vacuum import vacuum
from tests.ingest.daily import Fleet, assert_days_are_those_of_the_records
from tests.ingest.test_compact import records
from tests.s3_server import fresh, serving


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving() as served:
        yield served


@pytest.fixture
def lake(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lake:
    return Lake(fresh(address, monkeypatch, tmp_path))


@pytest.mark.long
def test_a_lake_in_an_object_store_is_compacted_vacuumed_and_thinned(lake: Lake) -> None:
    fleet = Fleet(lake, 1)
    for _ in range(4):
        fleet.write()
    before, limits = records(lake), Limits(grace=timedelta(0))
    done = {one.table: one for one in compact(lake, limits=limits)}
    assert done["rank_memory"].files_after < done["rank_memory"].files_before
    assert done["rank_day"].commits
    assert records(Lake(lake.root)) == before
    assert assert_days_are_those_of_the_records(connect(lake))
    assert sum(one.files for one in vacuum(lake, timedelta(days=1))) == 0, "all was replaced just now"
    assert {one.table: one.files for one in health(lake)}["rank_memory"] == done["rank_memory"].files_after
    days = connect(lake).execute("SELECT * FROM rank_days ORDER BY ALL").fetchall()
    gone = retention(lake, Keep(raw=timedelta(0)), now=fleet.now + timedelta(days=1), limits=limits)
    assert gone[0].rows == len(before[1]) > 0
    assert connect(Lake(lake.root)).execute("SELECT COUNT(*) FROM rank_memory").fetchall() == [(0,)]
    assert connect(lake).execute("SELECT * FROM rank_days ORDER BY ALL").fetchall() == days
