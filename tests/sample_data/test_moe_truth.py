"""The planted truth of the MoE sample: the bytes written bear it out, and ingest and `report --format json` find it again."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from sample_data import moe
from tests.sample_data.test_make import SAMPLES

TRUTH = json.loads((SAMPLES / "truth" / "moe_16ranks.json").read_text())
STEPS = range(1, TRUTH["steps"] + 1)


def of_ranks(told):
    return {int(rank): value for rank, value in told.items()}


@pytest.fixture
def report(report_of):
    return report_of("moe_16ranks")


def test_the_truth_has_what_a_sample_must_show():
    classes, risers = of_ranks(TRUTH["classes"]), TRUTH["risers"]
    assert sorted(classes.values()).count("stable") == 1
    assert sorted(classes.values()).count("occasional") == 2
    assert set(classes) | set(TRUTH["never_seen"]) == set(range(16))
    assert len(set(TRUTH["fullest"].values())) >= 5
    assert {one["kind"] for one in risers} == {"need", "fragmentation"}
    assert min(sum(one["kind"] == kind and one["rank"] == rank for one in risers) for kind, rank in (("need", 3), ("fragmentation", 2))) >= 2


def test_peaks_come_near_the_limit_in_the_planted_steps_only():
    limit, margin = moe.DEVICE_BYTES - moe.OUTSIDE_BYTES, 0.03 * moe.DEVICE_BYTES
    near = {rank: {step for step in STEPS if limit - moe.peak(rank, step) <= margin} for rank in moe.SEEN}
    planted = {rank: set(steps) | set(TRUTH["near_outside_high_load"].get(str(rank), ())) for rank, steps in of_ranks(TRUTH["near_steps"]).items()}
    assert {rank: steps for rank, steps in near.items() if steps} == planted
    assert max(moe.peak(rank, step) for rank in moe.SEEN for step in STEPS) < limit
    retries = {rank: [step for step in STEPS if moe.retries(rank, step) > (moe.retries(rank, step - 1) if step > 1 else 0)] for rank in moe.SEEN}
    assert {rank: steps for rank, steps in retries.items() if steps} == of_ranks(TRUTH["touched_steps"])


def test_the_steps_of_high_load_are_a_tenth_and_stand_out():
    for rank, planted in of_ranks(TRUTH["high_load_steps"]).items():
        loads = {step: moe.load_bytes(rank, step) for step in STEPS}
        middle, mean = sorted(loads.values())[len(loads) // 2], sum(loads.values()) / len(loads)
        if planted:
            assert min(loads[step] for step in planted) >= 1.05 * middle
            assert len(planted) == len(loads) // 10
            assert min(loads[step] for step in planted) > max(load for step, load in loads.items() if step not in planted)
        else:
            assert max(loads.values()) < 1.05 * mean


def test_the_hot_rank_is_the_fullest_of_its_step():
    for step, rank in of_ranks(TRUTH["fullest"]).items():
        assert max(moe.SEEN, key=lambda one, at=step: moe.peak(one, at)) == rank


def test_what_is_held_climbs_in_the_planted_steps_only():
    risen = {(rank, step) for rank in moe.SEEN for step in STEPS[1:] if moe.reserved(rank, step) != moe.reserved(rank, step - 1)}
    assert risen == {(one["rank"], one["step"]) for one in TRUTH["risers"]}
    for one in TRUTH["risers"]:
        before = max(moe.peak(one["rank"], step) for step in range(1, one["step"]))
        assert (moe.peak(one["rank"], one["step"]) > before) == (one["kind"] == "need")


def test_nothing_of_the_rank_that_was_never_seen_is_there():
    texts = [path.name for path in (SAMPLES / "moe_16ranks").rglob("*") if "12" in path.name]
    assert texts == []
    for path in (SAMPLES / "moe_16ranks").glob("rank_*.log"):
        assert "[Rank 12]" not in path.read_text()


def test_the_report_classes_each_rank_as_planted(report):
    assert {one["rank"]: one["class"] for one in report["near_limit"]} == of_ranks(TRUTH["classes"])
    found = {one["rank"]: one for one in report["near_limit"]}
    for rank, steps in of_ranks(TRUTH["near_steps"]).items():
        assert (found[rank]["kind"], found[rank]["near_steps"], found[rank]["steps"]) == ("hard", len(steps), 5)
        assert 0 < found[rank]["low"] < len(steps) / 5 <= found[rank]["high"] <= 1
    assert {one["rank"]: one["touched_steps"] for one in report["near_limit"] if one["touched_steps"]} == {
        rank: len(steps) for rank, steps in of_ranks(TRUTH["touched_steps"]).items()}


def test_the_report_finds_the_steps_of_high_load(report):
    assert {one["rank"]: one["steps"] for one in report["high_load_steps"]} == of_ranks(TRUTH["high_load_steps"])


def test_the_report_finds_each_riser_its_kind_and_what_coincided(report):
    found = [{"rank": one["rank"], "step": one["iteration"], "kind": one["kind"], "coincided": sorted(one["coincided"])}
             for one in report["staircase"]]
    assert found == TRUTH["risers"]


def test_the_report_says_who_was_never_seen(report):
    assert sorted(set(range(report["coverage"]["world_size"])) - set(report["coverage"]["measured"])) == TRUTH["never_seen"]
    assert "15 of 16" in report["coverage"]["sentence"]


def test_the_report_finds_the_fullest_rank_moving(report):
    fullest, moved = of_ranks(TRUTH["fullest"]), report["fullest"]
    judged = sorted({step for steps in TRUTH["high_load_steps"].values() for step in steps})
    assert moved["steps"] == len(judged)
    assert {one["rank"]: one["steps"] for one in moved["ranks"]} == {
        rank: sum(fullest[step] == rank for step in judged) for rank in {fullest[step] for step in judged}}
    assert moved["moves"] == sum(fullest[one] != fullest[other] for one, other in pairwise(judged))
    assert {one["iteration"]: one["rank"] for one in moved["moved"]}.items() <= fullest.items()


def test_the_report_finds_the_readings_of_each_phase(report):
    found = {one["phase"]: (one["iteration"], one["rank"], one["readings"]) for one in report["phase_peaks"]}
    planted = {phase: steps[0] for phase, steps in TRUTH["phases"].items()}
    fullest = of_ranks(TRUTH["fullest"])
    assert found == {phase: (step, fullest[step], len(moe.SEEN)) for phase, step in planted.items()}
