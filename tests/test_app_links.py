"""Addresses: what is chosen stands in them, a new session that opens one shows the same, and a wrong value is told and does no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.analysis.made import dense_run
from tests.app_page import app_on, go, said
from tests.conftest import ROOT
from tests.test_app import lake_with


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """A session on a lake with a log to look into, whose runs are of two names."""
    log = tmp_path / "logs" / "train.log"
    log.parent.mkdir()
    log.write_text("".join(f"line {number}\n" for number in range(1, 301)))
    monkeypatch.chdir(tmp_path)
    lake_with(tmp_path / "lake", dense_run(), run="a_run")
    return app_on(tmp_path / "lake", monkeypatch).run()


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of two samples."""
    root = tmp_path_factory.mktemp("links") / "lake"
    ingest([ROOT / "sample_data" / run for run in ("moe_16ranks", "dense_7b5_pp2")], Lake(root))
    return str(root)


def tick(app: AppTest, table: str, row: int | None, run: str = "a_run") -> AppTest:
    """Tick a row of a table, or none."""
    app.session_state[f"{table} {run} 0"] = {"selection": {"rows": [] if row is None else [row]}}
    return app.run()


def test_the_address_names_run_and_attempt_though_nobody_chose_them(small: AppTest) -> None:
    assert go(small, "theory").query_params == {"run": "a_run", "attempt": "0"}


def test_a_ticked_rank_is_in_the_address_and_shows_its_line(small: AppTest) -> None:
    go(small, "overview")
    assert "Tick a row" in said(small)
    tick(small, "ranks", 2)
    assert not small.exception
    assert small.query_params["rank"] == "4"
    assert ">     104  line 104" in said(small)
    tick(small, "ranks", None)
    assert "rank" not in small.query_params


def test_a_new_session_opens_on_the_rank_of_the_address(small: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = go(app_on(tmp_path / "lake", monkeypatch).run(), "overview", run="a_run", attempt="0", rank="12")
    assert not other.exception
    assert ">     112  line 112" in said(other)
    assert other.query_params["rank"] == "12"
    assert not other.warning or "which is not there" not in other.warning[0].value


def test_another_page_of_the_run_keeps_the_rank(small: AppTest) -> None:
    tick(go(small, "overview"), "ranks", 2)
    go(small, "steps")
    assert small.query_params["rank"] == "4"
    assert ">     104  line 104" in said(small)


def test_a_rank_of_high_load_opens_the_lines_of_its_fullest_steps(samples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.loads(line) for line in (ROOT / "sample_data/moe_16ranks/tokens_per_expert/rank3.jsonl").read_text().splitlines()]
    high = json.loads((ROOT / "sample_data/truth/moe_16ranks.json").read_text())["high_load_steps"]["3"]
    tokens = {step: sum(sum(map(sum, line["tpe"])) for line in lines if line["iter"] == step) for step in high}
    app = go(app_on(samples, monkeypatch).run(), "steps", run="moe_16ranks", load="3")
    assert not app.exception
    for step in sorted(tokens, key=lambda step: (-tokens[step], step))[:3]:
        fullest = max((at for at, line in enumerate(lines) if line["iter"] == step), key=lambda at: max(map(sum, lines[at]["tpe"])))
        assert f"> {fullest + 1:>7}  {json.dumps(lines[fullest])}" in said(app)
    assert app.query_params["load"] == "3"


def test_another_run_forgets_what_was_ticked(samples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = go(app_on(samples, monkeypatch).run(), "overview", run="moe_16ranks", rank="3")
    assert app.query_params["rank"] == "3"
    app.sidebar.selectbox[0].set_value("dense_7b5_pp2").run()
    assert not app.exception
    assert app.query_params == {"run": "dense_7b5_pp2", "attempt": "0"}
    assert not [one for one in app.warning if "which is not there" in one.value]


WRONG: tuple[tuple[str, dict[str, str]], ...] = (
    ("overview", {"run": "dense_7b5_pp2", "rank": "99", "table": "Chairs"}), ("overview", {"run": "dense_7b5_pp2", "attempt": "7"}),
    ("overview", {"run": "dense_7b5_pp2", "device": "x.1"}),
    ("findings", {"run": "moe_16ranks", "severity": "terrible", "finding": "none_such"}),
    ("steps", {"run": "moe_16ranks", "rank": "<b>", "step": "1.1", "ahead": "9" * 30}),
    ("ledger", {"run": "moe_16ranks", "rank": "x", "class": "0.nothing"}),
    ("plan", {"run": "moe_16ranks", "tensor_model_parallel_size": "0", "global_batch_size": "many", "recompute": "all", "stage": "9"}),
    ("communication", {"run": "moe_16ranks", "rank": "[x](http://e.example)", "communicator": "x.1"}),
    ("fleet", {"cluster": "north"}), ("compare", {"before": "gone#0"}), ("compare", {"changed": "x"}),
    ("snapshot", {"run": "dense_7b5_pp2", "event": "99999999999", "snapshot_part": "Chairs"}),
    ("snapshot", {"run": "dense_7b5_pp2", "snapshot": "x"}),
)


@pytest.mark.parametrize(("page", "given"), WRONG)
def test_wrong_values_are_told_and_others_shown(samples: str, monkeypatch: pytest.MonkeyPatch, page: str, given: dict[str, str]) -> None:
    app = go(app_on(samples, monkeypatch).run(), page, **given)
    assert not app.exception
    wrong = {name: value for name, value in given.items() if name != "run"}
    told = [one.value for one in app.warning if "The link names" in one.value]
    assert len(told) == len(wrong), told
    assert not any("](http" in text or "<b>" in text for text in told)
    assert not any(app.query_params.get(name) == value for name, value in wrong.items())


def test_a_link_opens_one_finding_with_its_lines(samples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = go(app_on(samples, monkeypatch).run(), "findings", run="moe_16ranks")
    every = [one.value for one in app.markdown if "**" in one.value]
    app = go(app, "findings", run="moe_16ranks", finding="near_limit_stable")
    assert not app.exception
    shown = [one.value for one in app.markdown if "**" in one.value]
    assert len(shown) == 1
    assert shown[0] in every
    assert any("Read at" in one.value for one in app.caption)
    next(one for one in app.button if one.label.startswith("All ")).click().run()
    assert "finding" not in app.query_params
    assert [one.value for one in app.markdown if "**" in one.value] == every


def test_the_overview_leads_to_its_worst_findings(samples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = go(app_on(samples, monkeypatch).run(), "overview", run="moe_16ranks")
    links = [one.proto.query_string for one in app.get("page_link") if one.proto.label == "Open finding"]
    assert links[0] == "run=moe_16ranks&attempt=0&finding=near_limit_stable"
    assert len(links) == 3


def test_a_plan_comes_with_the_link(samples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = go(app_on(samples, monkeypatch).run(), "plan", run="dense_7b5_pp2", micro_batch_size="1", recompute="full")
    assert not app.exception
    changed: dict[str, Any] = {one.label: one.value for one in (*app.number_input, *app.selectbox)}
    assert (changed["micro batch size"], changed["recompute"]) == (1, "full")
    assert {one.label: one.value for one in app.metric}["Micro-batches"] == "16"
    assert app.query_params["micro_batch_size"] == "1"


def test_a_stage_of_the_plan_is_a_sum_to_the_byte(samples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = go(app_on(samples, monkeypatch).run(), "plan", run="dense_7b5_pp2", stage="0")
    assert not app.exception
    *parts, total = [int(line.split(" B ")[0].replace(",", "")) for line in app.code[-1].value.splitlines()]
    assert len(parts) > 3
    assert sum(parts) == total


def test_a_class_of_the_ledger_and_a_gap_are_sums_to_the_byte(samples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = go(app_on(samples, monkeypatch).run(), "ledger", **{"run": "dense_7b5_pp2", "rank": "1", "class": "1.weights"})
    assert not app.exception
    sums = [one.value for one in app.code if "  = " in one.value]
    assert [text.splitlines()[-1].partition("  = ")[2].split(",")[0] for text in sums] == [
        "gap of rank 1 over the printed 29", "stage 1 after a step", "stage 1 at its peak", "weights of stage 1 after a step and at its peak"]
    for text in sums:
        *parts, total = [int(line.split(" B ")[0].replace(",", "")) for line in text.splitlines()]
        assert sum(parts) == total


def test_a_class_of_the_ledger_is_told_by_its_formulas_with_their_numbers(samples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = go(app_on(samples, monkeypatch).run(), "ledger", **{"run": "moe_16ranks", "class": "0.activations"})
    assert not app.exception
    stage, found = next(one.value for one in app.code if "stage 0 at its peak" in one.value), app.code[-1].value
    assert found.splitlines()[-1].endswith(" B  = activations of stage 0 at its peak, backward")
    assert found.splitlines()[-1].split(" B ")[0].strip() in stage
    assert f"{2 * 12 * 2 * 2048 * 32_768:+17,} B  MoE layer, experts input: alive · layers · w · h · C = 2 · 12 · 2 · 2,048 · 32,768" in found
    assert "alive: micro-batches alive of a chunk; " in said(app)
    assert "C: tokens of the rank's experts" in said(app)


def test_an_instant_of_a_snapshot_comes_with_the_link(samples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = go(app_on(samples, monkeypatch).run(), "snapshot", run="dense_7b5_pp2", event="40")
    assert not app.exception
    assert "After event 40 (chosen)" in said(app)
    assert app.query_params["event"] == "40"


def test_older_attempts_than_the_newest_twelve_stand_in_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(14):
        (tmp_path / f"run_{number:02}").mkdir()
        (tmp_path / f"run_{number:02}" / "train.log").write_text(
            f"[Rank {number}] (after 1 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 | reserved: 3.0 | max reserved: 3.0\n")
    ingest(sorted(tmp_path.iterdir()), Lake(tmp_path / "lake"))
    app = app_on(tmp_path / "lake", monkeypatch).run()
    assert len([one for one in app.get("page_link") if one.proto.label.startswith("run")]) == 12
    assert sorted(app.dataframe[0].value["run"]) == [f"run_{number:02}" for number in range(14)]
