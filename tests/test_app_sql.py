"""The SQL page: a link fills the query and waits; answers are offered as files; what a query may name can be looked through."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from analysis.query.export import csv_for_spreadsheets, parquet
from analysis.query.process import answer
from analysis.query.schema_browser import schema_rows
from tests.analysis.made import dense_run
from tests.test_app import ROOT, lake_with, on_page


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("HBMLEDGER_LAKE", str(tmp_path / "lake"))
    monkeypatch.delenv("HBMLEDGER_SERVER_ROOT", raising=False)
    lake_with(tmp_path / "lake", dense_run(), run="a_run")
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)


def test_a_link_fills_the_query_and_runs_nothing(app: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("analysis.query.process.subprocess.Popen", lambda *given, **_: asked.append(given))
    app.run()
    app.switch_page("app_pages/sql.py")
    app.query_params["query"] = "SELECT 42 AS n"
    app.run()
    assert not app.exception
    assert app.text_area[0].value == "SELECT 42 AS n"
    assert any("came with the link" in one.value for one in app.caption)
    assert not asked
    assert "answer" not in app.session_state


def test_asking_puts_the_query_into_the_link_and_a_refused_one_leaves_no_old_answer(app: AppTest) -> None:
    on_page(app, "sql").text_area[0].set_value("SELECT rank FROM rank_latest WHERE rank IS NOT NULL")
    app.button[0].click().run()
    assert not app.exception
    assert app.query_params["query"] == "SELECT rank FROM rank_latest WHERE rank IS NOT NULL"
    assert len(app.dataframe[0].value) == 8
    app.text_area[0].set_value("SELECT * FROM read_text('/etc/hostname')")
    app.button[0].click().run()
    assert not app.exception
    assert "not allowed" in app.error[0].value
    assert "answer" not in app.session_state


def test_numbers_and_moments_that_a_table_has_no_place_for_are_text(app: AppTest) -> None:
    wide = 2**127 - 1
    on_page(app, "sql").text_area[0].set_value(f"SELECT {wide}::HUGEINT AS wide, TIMESTAMP 'infinity' AS late, DATE '-infinity' AS early")
    app.button[0].click().run()
    assert not app.exception
    shown = app.dataframe[0].value
    assert [str(shown[name][0]) for name in ("wide", "late", "early")] == [str(wide), "infinity", "-infinity"]


def test_rows_that_were_cut_are_told(app: AppTest) -> None:
    on_page(app, "sql").text_area[0].set_value("SELECT * FROM range(5000)")
    app.button[0].click().run()
    assert any("Only the first 1,000 rows" in one.value for one in app.caption)


def test_downloads_hold_the_answer_and_no_formula(app: AppTest, tmp_path: Path) -> None:
    found = answer(str(tmp_path / "lake"), "SELECT '=HYPERLINK(\"http://e.example\")' AS a, 3 AS a, CAST(-2 AS BIGINT) AS b, MAP(['k'], [1]) AS m")
    assert csv_for_spreadsheets(found).splitlines()[1].startswith("\"'=HYPERLINK")
    assert csv_for_spreadsheets(found).splitlines()[1].endswith(",3,-2,{'k': 1}")
    table = pq.read_table(io.BytesIO(parquet(found)))
    assert table.column_names == ["a", "a_1", "b", "m"]
    assert table.column("b").to_pylist() == [-2]


def test_the_browser_names_every_table_and_view_with_types_and_meanings() -> None:
    from analysis.query.check import names

    rows = schema_rows()
    assert {row["relation"] for row in rows} == set(names())
    told = {(row["relation"], row["column"]): row for row in rows}
    peak = told["rank_memory", "max_allocated_bytes"]
    assert (peak["type"], peak["unit"], bool(peak["meaning"])) == ("int64", "bytes", True)
    headroom = told["rank_headroom", "hard_headroom_bytes"]
    assert (headroom["type"], headroom["unit"]) == ("bigint", "bytes")
    assert "measured rank" in told["rank_headroom", ""]["meaning"]
    assert all(row["meaning"] for row in rows if not row["column"])
