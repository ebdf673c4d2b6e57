"""Every page of the app on every sample run, with the figures the samples were made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis.database import from_rows, records
from app_pages._shared import _RUNS
from ingest.lake import Lake
from ingest.pipeline import ingest

ROOT = Path(__file__).resolve().parent.parent
CASES = tuple(sorted(path.name for path in (ROOT / "sample_data").glob("oom_case_*")))
RUNS = ("dense_7b5_pp2", "moe_16ranks", "oom_run")
MEASURED = {"dense_7b5_pp2": "4 of 256", "moe_16ranks": "15 of 16"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of the samples."""
    root = tmp_path_factory.mktemp("samples") / "lake"
    ingest([ROOT / "sample_data" / run for run in (*RUNS, *CASES)], Lake(root))
    return str(root)


@pytest.fixture
def app(lake: str, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("HBMLEDGER_LAKE", lake)
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("page", ["overview", "findings", "ledger", "steps", "theory", "plan", "communication", "rejects"])
def test_page_on_a_sample(app: AppTest, page: str, run: str) -> None:
    app.run()
    app.switch_page(f"app_pages/{page}.py")
    app.query_params["run"] = run
    app.run()
    assert not app.exception
    assert not app.error or (page, run) == ("overview", "oom_run")
    assert app.sidebar.selectbox[0].value == run


@pytest.mark.parametrize("run", CASES)
@pytest.mark.parametrize("page", ["overview", "findings"])
def test_page_on_an_out_of_memory_case(app: AppTest, page: str, run: str) -> None:
    app.run()
    app.switch_page(f"app_pages/{page}.py")
    app.query_params["run"] = run
    app.run()
    assert not app.exception
    assert app.sidebar.selectbox[0].value == run
    assert page != "overview" or app.error


@pytest.mark.parametrize("run", sorted(MEASURED))
def test_overview_counts_the_ranks_of_a_sample(app: AppTest, run: str) -> None:
    app.run()
    app.switch_page("app_pages/overview.py")
    app.query_params["run"] = run
    app.run()
    assert {one.label: one.value for one in app.metric}["Ranks measured"] == MEASURED[run]


def test_start_lists_the_samples(app: AppTest) -> None:
    app.run()
    assert not app.exception
    assert set(app.dataframe[0].value["run"]) == {*RUNS, *CASES}


def test_runs_of_one_ingest_stand_in_the_order_of_their_names_below_newer_ones() -> None:
    at = datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)
    came = {"a_good_run": at, "oom_case": at + timedelta(seconds=5), "zz_newer": at + timedelta(minutes=3)}
    whole = {"start_bytes": 0, "end_bytes": 0, "status": "closed"}
    rows = {"runs": [{"run": run, "artifact": run} for run in came],
            "artifacts": [{"run": run, "artifact": run, "source": run, "path": run, "ingested_at": when, **whole} for run, when in came.items()]}
    assert [row["run"] for row in records(from_rows(rows), _RUNS)] == ["zz_newer", "a_good_run", "oom_case"]


def test_communication_shows_each_rank_beside_its_measurement(app: AppTest) -> None:
    app.run()
    app.switch_page("app_pages/communication.py")
    app.query_params["run"] = "moe_16ranks"
    app.run()
    assert not app.exception
    ranks = app.dataframe[0].value
    assert len(ranks) == 15
    assert (round(ranks["estimate, GiB"][0] * 1024), round(ranks["outside torch, GiB"][0], 2)) == (1008, 2.2)
    assert "world" in set(app.dataframe[1].value["process group"])
