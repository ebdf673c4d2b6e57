"""Every page of the app on every sample run, with the figures the samples were made of, and on an empty lake.

Pages are the files of `app_pages`, samples the folders of `sample_data` that hold a log, and a training snapshot made with a known truth: a new one
of either is covered by itself. One session walks through all pages of a sample, as a reader does.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis.database import from_rows, records
from analysis.report.keys import as_json
from analysis.verdict import size_text
from app_pages._header import _overview
from app_pages._picture import _DRAWN, _Drawn
from app_pages._shared import _RUNS, _newest_first
from ingest.lake import Lake
from ingest.pipeline import ingest
from sample_data.snapshots import write
from tests.app_figures import FIGURES, TRUTH, Sample, truth_of
from tests.app_page import PAGES, app_on, go, page_of, said
from tests.conftest import ROOT

SAMPLES = tuple(sorted(path.name for path in (ROOT / "sample_data").iterdir() if any(path.glob("*.log"))))
DIED = tuple(run for run in SAMPLES if run.startswith("oom_"))
SNAPSHOT = "a_snapshot"
EVENTS = 2_000


@pytest.fixture(autouse=True)
def charts_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chart of every page against Vega-Lite's schema, which the app leaves to this test."""
    monkeypatch.setattr(_Drawn, "to_dict", lambda drawn: {**drawn._chart.to_dict(validate=True), **_DRAWN})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of all samples, and of a snapshot of a training step."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / SNAPSHOT).mkdir()
    truth = write(folder / SNAPSHOT / "snapshot_0.pickle", EVENTS)
    (folder / "truth.json").write_text(json.dumps(truth))
    ingest([*(ROOT / "sample_data" / run for run in SAMPLES), folder / SNAPSHOT], Lake(folder / "lake"))
    return folder / "lake"


@pytest.fixture(scope="module")
def sessions() -> dict[str, AppTest]:
    """A session for each sample, kept from page to page."""
    return {}


@pytest.fixture(scope="module")
def samples(lake: Path) -> dict[str, Sample]:
    """Each sample with its report and what was planted in it. The pages find what was read for it kept, which halves the seconds of this file."""
    version = Lake(lake).version()
    return {run: Sample(run, as_json(_overview(str(lake), version, run, 0, "")), truth_of(run)) for run in SAMPLES}


def test_what_was_planted_is_known_of_every_sample() -> None:
    assert all(truth_of(run) for run in SAMPLES)
    assert len(SAMPLES) == len(json.loads((TRUTH / "oom_cases.json").read_text())) + 3


@pytest.mark.parametrize("run", [*SAMPLES, SNAPSHOT])
@pytest.mark.parametrize("page", PAGES)
def test_page_on_a_sample(lake: Path, sessions: dict[str, AppTest], samples: dict[str, Sample], page: str, run: str,
                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBMLEDGER_LAKE", str(lake))
    if run not in sessions:
        sessions[run] = app_on(lake, monkeypatch).run()
    app = go(sessions[run], page, run=run)
    assert not app.exception
    assert app.main.children
    if page not in FIGURES:
        return
    assert app.query_params["run"] in (run, [run])
    assert not app.error or (page == "overview" and run in DIED)
    if run in samples:
        shown = said(app)
        assert [figure for figure in FIGURES[page](samples[run]) if figure not in shown] == []


@pytest.mark.parametrize("page", PAGES)
def test_page_on_an_empty_lake(tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = page_of(page, str(tmp_path / "lake"), monkeypatch)
    assert not app.exception
    assert not app.error
    assert app.main.children
    assert not (tmp_path / "lake").exists()


def test_start_lists_the_samples(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_on(lake, monkeypatch).run()
    assert not app.exception
    assert set(app.dataframe[0].value["run"]) == {*SAMPLES, SNAPSHOT}


def test_the_snapshot_of_a_training_step_shows_its_true_peak(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = json.loads((lake.parent / "truth.json").read_text())
    app = page_of("snapshot", str(lake), monkeypatch, run=SNAPSHOT)
    assert not app.exception
    assert {one.label: one.value for one in app.metric}["Peak requested"] == size_text(truth["peaks"]["requested"]["bytes"])


def test_communication_shows_each_rank_beside_its_measurement(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = page_of("communication", str(lake), monkeypatch, run="moe_16ranks")
    assert not app.exception
    ranks = app.dataframe[0].value
    assert len(ranks) == 15
    assert (round(ranks["estimate, GiB"][0] * 1024), round(ranks["outside torch, GiB"][0], 2)) == (1008, 2.2)
    assert "world" in set(app.dataframe[1].value["process group"])


def test_runs_of_one_ingest_stand_in_the_order_of_their_names_below_newer_ones() -> None:
    at = datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)
    came = {"a_good_run": at, "oom_case": at + timedelta(seconds=5), "zz_newer": at + timedelta(minutes=3)}
    whole = {"start_bytes": 0, "end_bytes": 0, "status": "closed"}
    rows = {"runs": [{"run": run, "artifact": run} for run in came],
            "artifacts": [{"run": run, "artifact": run, "source": run, "path": run, "ingested_at": when, **whole} for run, when in came.items()]}
    assert [row["run"] for row in sorted(records(from_rows(rows), _RUNS), key=_newest_first)] == ["zz_newer", "a_good_run", "oom_case"]
