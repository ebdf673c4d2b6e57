"""The page Compare on the samples and on an empty lake: the figures of `hbmledger diff`, and a link that keeps both runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis.database import connect
from analysis.diff.compare import diff, side_of
from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.app_page import page_of

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("compare") / "lake"
    ingest([ROOT / "sample_data" / run for run in ("moe_16ranks", "oom_run")], Lake(root))
    return str(root)


def page(lake: str, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    return page_of("compare", lake, monkeypatch, **query)


def test_two_samples_stand_beside_each_other(lake, monkeypatch):
    app = page(lake, monkeypatch, before="moe_16ranks#0", after="oom_run#0")
    assert not app.exception
    assert [one.value for one in app.selectbox] == ["moe_16ranks#0", "oom_run#0"]
    connection = connect(Lake(lake))
    found = diff(side_of(connection, "moe_16ranks"), side_of(connection, "oom_run"))
    tables = [one.value for one in app.dataframe]
    assert list(tables[0]["name"]) == [one.name for one in found.changes]
    assert list(tables[1]["change, bytes"].dropna()) == [one.change_bytes for one in (*found.measured, *found.theory) if one.change_bytes is not None]


def test_a_run_beside_itself_differs_in_nothing(lake, monkeypatch):
    app = page(lake, monkeypatch, before="oom_run#0", after="oom_run#0")
    assert not app.exception
    assert [one.value for one in app.info] == ["Nothing differs in what is known of both."]


def test_a_link_to_a_run_that_is_gone_says_so(lake, monkeypatch):
    app = page(lake, monkeypatch, before="gone#0", after="oom_run#0")
    assert not app.exception
    assert "gone" in app.warning[0].value


def test_an_empty_lake_offers_to_bring_artifacts(tmp_path, monkeypatch):
    app = page(str(tmp_path / "none"), monkeypatch)
    assert not app.exception
    assert app.info[0].value == "No run in this lake yet."


def test_no_constant_of_the_script_is_shown():
    """Streamlit writes every bare string of a page's script: only the module's docstring, which it leaves out, may stand alone."""
    body = ast.parse((ROOT / "app_pages" / "compare.py").read_text(encoding="utf-8")).body[1:]
    assert [one.lineno for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)] == []
