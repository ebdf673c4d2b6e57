"""Two clusters that gave a run of theirs the same name: the app calls each by its cluster, and shows the records of that one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingest.pipeline import ingest
from sample_data.snapshots import write
from tests.app_page import app_on, go, said
from tests.cli.test_check import CLEAR, DIED


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the run `same` of two clusters, only the western one out of memory, and with a snapshot."""
    root = tmp_path_factory.mktemp("clusters")
    for cluster, text in (("east", CLEAR), ("west", CLEAR + "[rank0]: " + DIED)):
        folder = root / cluster
        folder.mkdir()
        (folder / "train.log").write_text(text)
        if cluster == "west":
            write(folder / "snapshot_0.pickle", 500)
        ingest([folder], root / "lake", run="same", cluster=cluster)
    return root / "lake"


@pytest.mark.parametrize(("run", "died"), [("east/same", False), ("west/same", True), ("same", False)])
def test_a_run_is_that_of_its_cluster(lake: Path, monkeypatch: pytest.MonkeyPatch, run: str, died: bool) -> None:
    app = app_on(lake, monkeypatch).run()
    assert {"east/same", "west/same"} <= {re.sub(r"\\(.)", r"\1", one.proto.label) for one in app.get("page_link")}
    called = "east/same" if run == "same" else run
    for page in ("overview", "findings", "steps", "plan", "rejects", "theory", "ledger", "communication"):
        go(app, page, run=run)
        assert not app.exception, page
        assert app.query_params["run"] == called
    go(app, "overview", run=run)
    assert ("ran out of memory" in said(app)) is died


def test_snapshots_and_comparison_tell_them_apart(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_on(lake, monkeypatch).run()
    go(app, "snapshot")
    assert not app.exception
    assert app.query_params["run"] == "west/same"
    go(app, "compare", before="east/same#0", after="west/same#0")
    assert not app.exception
    assert "OOM" in said(app) or "out of memory" in said(app)
