"""The page Settings: one device memory and one choice of exact bytes for all pages, and what the app runs with."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.analysis.made import GIB, dense_run
from tests.app_page import app_on, go, said
from tests.test_app import lake_with


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """A session on a small lake."""
    lake_with(tmp_path / "lake", dense_run(), run="a_run")
    return app_on(tmp_path / "lake", monkeypatch).run()


def told(app: AppTest) -> dict[str, str]:
    """What the app says it runs with."""
    table = app.dataframe[0].value
    return dict(zip(table["what"], table["is"], strict=True))


def test_it_tells_what_the_app_runs_with(app: AppTest, tmp_path: Path) -> None:
    found = told(go(app, "settings"))
    assert not app.exception
    assert found["lake"] == str(tmp_path / "lake")
    assert found["paths on the server"] == "not offered"
    assert found["sign-in"].startswith("off")
    assert found["python"] == platform.python_version()
    assert found["duckdb"] == version("duckdb")


def test_it_tells_the_folder_that_the_server_offers(app: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBMLEDGER_SERVER_ROOT", str(tmp_path))
    assert told(go(app, "settings"))["paths on the server"] == str(tmp_path)


def test_without_a_lake_it_is_a_page_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = go(app_on(tmp_path / "none", monkeypatch).run(), "settings")
    assert not app.exception
    assert told(app)["lake"] == str(tmp_path / "none")


def test_exact_bytes_stand_on_every_page_after_one_choice(app: AppTest) -> None:
    go(app, "overview")
    assert app.dataframe[0].value["peak allocated, GiB"][0] == 24
    go(app, "settings").toggle(key="exact").set_value(True).run()
    go(app, "overview")
    assert not app.exception
    assert app.dataframe[0].value["peak allocated, bytes"][0] == 24 * GIB
    assert not any("GiB" in name for table in app.dataframe for name in table.value.columns)
    go(app, "steps")
    assert not app.exception
    assert not any("GiB" in name for table in app.dataframe for name in table.value.columns)


def test_one_device_memory_counts_on_all_pages_and_stays_in_the_address(app: AppTest) -> None:
    go(app, "settings").text_input(key="capacity").set_value("40GiB").run()
    assert f"{40 * GIB:,} bytes" in said(app)
    go(app, "overview")
    assert {one.label: one.value for one in app.metric}["Least soft headroom"] == "7.00 GiB"
    assert app.query_params["capacity"] == "40GiB"
    assert "7.00 GiB least headroom" in said(go(app, "theory"))


def test_a_device_memory_that_is_none_is_told(app: AppTest) -> None:
    go(app, "settings").text_input(key="capacity").set_value("much").run()
    assert not app.exception
    assert "much" in app.error[0].value


@pytest.mark.parametrize("page", ["overview", "findings", "plan"])
def test_a_page_that_cannot_count_with_it_still_says_where_one_is(app: AppTest, page: str) -> None:
    go(app, page, capacity="much")
    assert not app.exception
    assert "much" in app.error[0].value
    assert app.header[0].value
