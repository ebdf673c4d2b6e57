"""Twelve questions of an engineer, each answered in at most three clicks from the start page; what the answer is, others than the pages say.

A click names what it is made on by the words a person sees: a link, a button, an option, a field (with what is typed or chosen from the keyboard
there) or the row of a table. Typing is no click.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cli import main
from tests.browser.driving import NEEDS_BROWSER
from tests.browser.expected import LOGS, PRINTED, RUNS, Facts, peak, report, truth
from tests.browser.visiting import Visitor, gib_cell, number_cell, size
from tests.conftest import ROOT

pytestmark = NEEDS_BROWSER

MOST_CLICKS = 3
DENSE, MOE, OOM = "dense_7b5_pp2", "moe_16ranks", "oom_run"


class Click(NamedTuple):
    """A click on what has these words, and what is typed there."""

    words: str
    typed: str = ""


class Question(NamedTuple):
    """What is asked, the way from the start page to the answer, and the answer."""

    asked: str
    clicks: tuple[Click, ...]
    answer: Callable[[Path], Facts]


def said(lake: Path, *verb: str) -> Any:
    """What the command line says about the same, as JSON."""
    told = io.StringIO()
    with redirect_stdout(told):
        assert main([*verb, "--lake", str(lake), "--format", "json"]) in (0, 1)  # 1: two runs differ
    return json.loads(told.getvalue())


def _dies_next(lake: Path) -> Facts:
    stable = [rank for rank, near in truth(MOE)["classes"].items() if near == "stable"]
    assert stable == ["3"]
    found = next(one for one in report(lake, MOE)["findings"] if one["id"] == "near_limit_stable")
    return Facts((found["sentence"], f"Rank {stable[0]}:", "live bytes"))


def _left_out(lake: Path) -> Facts:
    left_out = report(lake, MOE)["branch"]["left_out"]
    assert left_out
    return Facts(("What the formula left out for this run",), tuple(gib_cell(one["bytes"]) for one in left_out))


def _fragmentation(lake: Path) -> Facts:
    planted = truth(OOM)["risers"]
    assert {one["kind"] for one in planted} == {"fragmentation"}
    rises = [one["rise_bytes"] for one in report(lake, OOM)["staircase"]]
    return Facts(("Reserved staircase",), ("fragmentation", gib_cell(max(rises))))


def _tensor_parallel_4(lake: Path) -> Facts:
    plan = said(lake, "plan", OOM, "--set", "tensor_model_parallel_size=4")
    return Facts((f"Fullest stage {plan['fullest_stage']} {size(plan['fullest_bytes'])}", f"Verdict {plan['fits']}", "TP 4, PP 2"))


def _changed(lake: Path) -> Facts:
    before, after = peak(report(lake, DENSE)), peak(report(lake, OOM))
    sentences = [one.replace("->", "→") for one in said(lake, "diff", DENSE, OOM)["sentences"][:2]]
    return Facts((f"peaked {size(after - before)} above that of {DENSE}#0", *sentences),
                 ("micro_batch_size", gib_cell(after - before)))


def _heaviest(lake: Path) -> Facts:
    told = report(lake, MOE)
    heaviest = max(told["stages"], key=lambda one: one["max_allocated_bytes"])
    stage = next(one for one in told["gap"]["expected_stages"] if one["pp"] == heaviest["stage"])
    most = max(stage["peak_classes"], key=stage["peak_classes"].__getitem__)
    assert (heaviest["stage"], most) == (0, "activations")
    difference = told["gap"]["differences"][0]
    return Facts((f"Stage 1 should peak {size(difference['expected_bytes'])} above stage 0", f"activations {size(difference['classes'][most])}"),
                 (gib_cell(heaviest["max_allocated_bytes"]),))


def _branch(lake: Path) -> Facts:
    branch = report(lake, DENSE)["branch"]
    printed = PRINTED.findall((ROOT / "sample_data" / LOGS[DENSE]).read_text())[-1]
    return Facts((f"Branch applied {branch['branch']}", f"Confidence {branch['confidence']}", *(f"= {figure} MB as printed" for figure in printed)),
                 tuple(number_cell(one["bytes"]) for one in branch["terms"][:3]))


def _outside(lake: Path) -> Facts:
    rank = report(lake, MOE)["communication"]["ranks"][3]
    return Facts((), tuple(gib_cell(rank[name]) for name in ("estimate_bytes", "outside_bytes", "unexplained_bytes")))


def _phase(lake: Path) -> Facts:
    peaks = report(lake, MOE)["phase_peaks"]
    assert {one["phase"] for one in peaks} == set(truth(MOE)["phases"])
    return Facts(("Peaks by phase",), tuple(cell for one in peaks for cell in (one["phase"], gib_cell(one["peak_bytes"]))))


def _lived(lake: Path) -> Facts:
    planted = truth("snapshot_0")
    top, largest = planted["peaks"]["requested"], sorted(planted["requested_by_class"].values())[-3:]
    return Facts((f"Peak requested {size(top['bytes'])}", f"After event {top['event']:,} (the peak)"), tuple(number_cell(one) for one in largest))


def _near_in_the_month(lake: Path) -> Facts:
    near = [rank for rank, level in truth(MOE)["classes"].items() if level in ("stable", "occasional")]
    most = max(rank["peak_bytes"] for rank in report(lake, MOE)["ranks"])  # of active memory, which limits, a little above allocated
    return Facts(("Near the limit 1",), (MOE, *near, gib_cell(most)))


def _try_first(lake: Path) -> Facts:
    first = report(lake, MOE)["findings"][0]["actions"][0]
    assert first["order"] == 1
    return Facts(("What to try first",), (first["sentence"], size(first["saved_bytes"])))


QUESTIONS = (
    Question("Which rank dies next, and why?", (Click(MOE), Click("Findings")), _dies_next),
    Question("What did the printed theory leave out?", (Click(MOE), Click("Theory")), _left_out),
    Question("Is it fragmentation, or need?", (Click(OOM), Click("Steps")), _fragmentation),
    Question("Would tensor parallelism of 4 fit?", (Click(OOM), Click("Plan"), Click("tensor model parallel size", "4")), _tensor_parallel_4),
    Question("What changed since last week's run?", (Click(OOM), Click("Compare"), Click("Before", DENSE)), _changed),
    Question("Which stage is the heaviest, and why?", (Click(MOE), Click("Ledger")), _heaviest),
    Question("Which branch of the formula made the number?", (Click(DENSE), Click("Theory")), _branch),
    Question("How much lies outside torch, and how much of it is NCCL's?", (Click(MOE), Click("Communication")), _outside),
    Question("Which phase peaked?", (Click(MOE), Click("Steps")), _phase),
    Question("What lived at the peak of the snapshot?", (Click(DENSE), Click("Snapshot")), _lived),
    Question("Which runs of the fleet came near their limit in June?", (Click("Fleet"), Click("Month"), Click("2026-06")), _near_in_the_month),
    Question("What should I try first?", (Click(MOE), Click("Findings")), _try_first),
)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.asked)
def test_a_question_is_answered_in_three_clicks(visitor: Visitor, samples: Path, question: Question) -> None:
    assert len(question.clicks) <= MOST_CLICKS
    wanted = question.answer(samples)
    visitor.open("start")
    for click in question.clicks:
        visitor.pick(click.words, click.typed)
        if click.words in RUNS:
            visitor.arrive("overview")
    visitor.shows(*wanted.words, cells=wanted.cells)
    visitor.in_order()
