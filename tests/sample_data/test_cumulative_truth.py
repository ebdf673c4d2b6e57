"""The planted truth of the two samples whose maxima are never reset: `report` says no more than they tell, and that is never wrong."""

from __future__ import annotations

import pytest

RUNS = ("dense_7b5_pp2", "oom_run")


@pytest.fixture(params=RUNS)
def told(request, report_of, truth_of):
    """The truth of a run, and its report from a lake."""
    return truth_of(request.param), report_of(request.param)


def test_classes_are_the_planted_ones_or_left_open(told):
    truth, report = told
    found = {one["rank"]: one["class"] for one in report["near_limit"]}
    planted = {int(rank): one for rank, one in truth["classes"].items()}
    assert found.keys() == planted.keys()
    assert all(found[rank] in (planted[rank], "insufficient", "undetermined") for rank in planted)
    assert report["coverage"]["world_size"] - len(report["coverage"]["measured"]) == truth["ranks_not_seen"]


def test_a_clear_maximum_clears_every_step(report_of, truth_of):
    found = {one["rank"]: (one["class"], one["steps"]) for one in report_of("dense_7b5_pp2")["near_limit"]}
    truth = truth_of("dense_7b5_pp2")
    assert found == {int(rank): (one, truth["iterations"]) for rank, one in truth["classes"].items()}


def test_risers_and_their_kind_are_the_planted_ones(told):
    truth, report = told
    assert [{"rank": one["rank"], "step": one["iteration"], "kind": one["kind"]} for one in report["staircase"]] == truth["risers"]


def test_the_error_and_the_verdict_are_the_planted_ones(told):
    truth, report = told
    assert [{"case": one["case"], "rank": one["rank"], "iteration": one["iteration"]} for one in report["oom"]] == truth["oom"]
    assert report["run"]["verdict"]["level"] == ("oom" if truth["oom"] else "clear")
