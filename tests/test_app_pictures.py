"""Every picture of the app is shown in one way, with words for those who do not see it, and its data is to be had as CSV and Parquet."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from analysis.charts.picture import Picture, data
from app_pages import _picture
from ingest.lake import Lake
from ingest.pipeline import ingest

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"overview": ["ranks-by-stage", "stages", "printed-beside-measured"], "ledger": ["expected-by-class", "gap"],
         "plan": ["plan", "single-changes"], "steps": ["fullest", "headroom-by-step", "staircase"],
         "theory": ["formula-terms", "left-out", "last-stage"], "communication": ["communication"],
         "fleet": ["ratios-by-family", "near-by-day"], "compare": ["measured", "expected"]}
"""Each page with pictures that it has on the sample with experts, or on both samples."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("pictures") / "lake"
    ingest([ROOT / "sample_data" / run for run in ("dense_7b5_pp2", "moe_16ranks")], Lake(root))
    return str(root)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_pictures_and_their_data(lake: str, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    shown: dict[str, Picture] = {}
    kept: dict[str, Any] = {}
    show, files = _picture.picture, _picture._files
    monkeypatch.setattr(_picture, "picture", lambda found, name, **more: shown.update({name: found}) or show(found, name, **more))
    monkeypatch.setattr(_picture, "_files", lambda name, rows: kept.update({name: rows}) or files(name, rows))
    monkeypatch.setenv("HBMLEDGER_LAKE", lake)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.run()
    app.switch_page(f"app_pages/{page}.py")
    app.query_params["run"] = "moe_16ranks"
    app.run()
    assert not app.exception
    assert set(PAGES[page]) <= set(shown)
    for name, found in shown.items():
        assert re.fullmatch(r"[A-Z][^\n]{15,}", found.alt), name
        rows = kept[name]()
        assert len(rows) == len(found.rows) > 0
        assert not any("gib" in row for row in rows if "bytes" in row)


def test_no_page_draws_in_another_way() -> None:
    for path in (ROOT / "app_pages").glob("*.py"):
        text = path.read_text()
        assert "import altair" not in text, path.name
        calls = re.findall(r"\w*\.(?:altair|vega_lite|line|bar|area|scatter|plotly)_chart\(.*", text)
        assert [call for call in calls if "empty_timeline" not in call] == [] or path.name == "_picture.py"


def test_files_are_made_when_asked_for_and_hold_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    asked: list[int] = []

    def button(label: str, data: Any, file_name: str, mime: str, **more: Any) -> None:
        made[file_name] = data

    def rows() -> list[dict[str, Any]]:
        asked.append(1)
        return [{"who": "=HYPERLINK()", "bytes": 2**40}, {"who": "rank 1", "bytes": None}]

    monkeypatch.setattr(st, "download_button", button)
    _picture._files("x", rows)
    assert asked == []
    assert made["x.csv"]() == "who,bytes\n'=HYPERLINK(),1099511627776\nrank 1,\n"
    assert pq.read_table(io.BytesIO(made["x.parquet"]())).to_pylist() == [{"who": "=HYPERLINK()", "bytes": 2**40}, {"who": "rank 1", "bytes": None}]
    assert asked == [1, 1]


def test_what_was_thinned_is_said_below_the_picture() -> None:
    def page() -> None:
        from analysis.charts.picture import Picture, data
        from app_pages._picture import picture

        picture(Picture(data([{"x": 1}]).mark_point().encode(x="x:Q"), [{"x": 1}], "A point at one", "Drawn are 3 of 7."), "point")

    app = AppTest.from_function(page).run()
    assert not app.exception
    assert [one.value for one in app.caption] == ["Drawn are 3 of 7."]


def test_a_picture_is_drawn_as_svg_so_that_it_can_be_kept_as_one() -> None:
    chart = data([{"x": 1}]).mark_point().encode(x="x:Q").properties(**_picture._DRAWN)
    assert chart.to_dict()["usermeta"]["embedOptions"] == {"renderer": "svg"}
