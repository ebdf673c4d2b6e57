"""The page Fleet on the samples, on a planted fleet's filters, and on an empty lake."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis.database import connect, records
from analysis.fleet.answers import Filters, History
from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.analysis.fleet.fleet_made import Fleet
from tests.analysis.made import GIB
from tests.app_page import page_of

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("fleet") / "lake"
    ingest([ROOT / "sample_data" / "dense_7b5_pp2"], Lake(root), cluster="east")
    ingest([ROOT / "sample_data" / "moe_16ranks", ROOT / "sample_data" / "oom_run"], Lake(root), cluster="west")
    return str(root)


def page(lake: str, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    return page_of("fleet", lake, monkeypatch, **query)


def test_every_run_stands_there_worst_first(lake, monkeypatch):
    app = page(lake, monkeypatch)
    assert not app.exception
    assert not app.error
    ranks = records(connect(Lake(lake)), "SELECT COUNT(*) AS n FROM rank_latest WHERE rank IS NOT NULL")[0]["n"]
    assert {one.label: one.value for one in app.metric} == {
        "Attempts": "3", "Ranks measured": str(ranks), "Out of memory": "1", "Near the limit": "1", "Clear": "1"}
    assert list(app.dataframe[0].value["run"]) == ["oom_run", "moe_16ranks", "dense_7b5_pp2"]
    columns = [set(one.value.columns) for one in app.dataframe]
    assert any({"days near", "records near"} <= names for names in columns)
    assert any({"case", "why"} <= names for names in columns)
    assert any({"GPU", "outside torch, median GiB"} <= names for names in columns)


@pytest.mark.parametrize(("query", "runs"), [
    ({"cluster": "east"}, ["dense_7b5_pp2"]), ({"family": "MoE"}, ["moe_16ranks"]), ({"month": "2026-06"}, ["moe_16ranks"]),
    ({"gpu": "NVIDIA H100 80GB HBM3"}, ["oom_run", "dense_7b5_pp2"]), ({"cluster": "west", "family": "dense"}, ["oom_run"])])
def test_filters_come_with_the_link(lake, monkeypatch, query, runs):
    app = page(lake, monkeypatch, **query)
    assert not app.exception
    assert list(app.dataframe[0].value["run"]) == runs


def test_filters_that_fit_no_run_say_so(lake, monkeypatch):
    app = page(lake, monkeypatch, cluster="east", family="MoE")
    assert not app.exception
    assert [one.value for one in app.info] == ["No run fits these filters."]


def test_a_link_with_a_value_that_is_gone_says_so(lake, monkeypatch):
    app = page(lake, monkeypatch, cluster="north")
    assert not app.exception
    assert "north" in app.warning[0].value
    assert {one.label: one.value for one in app.metric}["Attempts"] == "3"


def test_an_empty_lake_offers_to_bring_artifacts(tmp_path, monkeypatch):
    app = page(str(tmp_path / "none"), monkeypatch)
    assert not app.exception
    assert app.info[0].value == "No run in this lake yet."


def planted() -> Fleet:
    """Thirty runs over two months in two clusters: one rank a run, every third near, every tenth with an error."""
    made = Fleet()
    for at in range(30):
        key = made.attempt(f"run{at:02d}", cluster="east" if at % 2 else "west", printed_gib=20)
        for iteration in range(6):
            made.memory(key, 0, peak=20 + at, reserved=77 if at % 3 == 0 else 60, day=at * 2, iteration=iteration)
        if at % 10 == 0:
            made.add("oom_events", key, rank=1, kind="cuda", requested_bytes=GIB, line=7)
    return made


def test_answers_of_a_planted_fleet():
    history = History(planted().connection())
    assert history.options() == {"cluster": ["east", "west"], "family": ["dense"], "gpu": ["80 GiB device"], "month": ["2026-11", "2026-10"]}
    found = history.fleet(Filters())
    assert (found.attempts, found.verdicts) == (30, {"oom": 3, "near": 9, "clear": 18})
    assert [row["verdict"] for row in found.runs[:4]] == ["oom", "oom", "oom", "near"]
    assert sum(row["ranks"] for row in found.days if row["near_class"] == "stable") == 10
    assert len(found.near_ranks) == 10
    assert sum(row["stages"] for row in found.ratios if row["against"] == "over printed") == 30
    assert {row["cluster"]: row["attempts"] for row in found.hardware} == {"east": 15, "west": 15}
    assert [row["peak_change_bytes"] for row in found.drifts] == [2 * GIB] * 28
    assert history.fleet(Filters()) == found


def test_a_month_and_a_cluster_choose_their_runs():
    history = History(planted().connection())
    found = history.fleet(Filters(cluster="east", month="2026-11"))
    assert {row["day"].month for row in found.days} == {11}
    assert {(row["cluster"], row["first_day"].month) for row in found.runs} == {("east", 11)}
    assert found.attempts == len(found.runs) == 7
    assert history.fleet(Filters(gpu="none such")).attempts == 0


def test_the_page_and_sql_agree_on_verdicts(lake):
    connection = connect(Lake(lake))
    assert History(connection.cursor()).fleet(Filters()).verdicts == {
        row["verdict"]: row["n"] for row in records(connection, "SELECT verdict, COUNT(*) AS n FROM fleet_runs GROUP BY verdict")}


def test_no_constant_of_the_script_is_shown():
    """Streamlit writes every bare string of a page's script: only the module's docstring, which it leaves out, may stand alone."""
    body = ast.parse((ROOT / "app_pages" / "fleet.py").read_text(encoding="utf-8")).body[1:]
    assert [one.lineno for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)] == []
