"""The next N steps: bounds that cover, refusals with their reason, and the tail of a known law."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from analysis.database import from_rows
from analysis.overview import overview
from analysis.report.keys import as_json
from analysis.report.text import as_text
from analysis.steps.chances import drifts, starts
from analysis.steps.outlook import outlook
from analysis.steps.tail import tail
from tests.analysis.made import GIB


def run(peaks, scope="interval", held=None, ranks=1, **more):
    """Ranks of 80 GiB whose peaks (GiB) are those of each step, 4 GiB outside torch: 73.6 GiB and more is near."""
    rows = [{"rank": rank, "iteration": step + 1, "scope": scope, "valid": True, "line": step + 1, "phase": "train", "allocated_bytes": 10 * GIB,
             "max_allocated_bytes": int(peak * GIB), "max_reserved_bytes": int((held or 74) * GIB), "reserved_bytes": int((held or 74) * GIB),
             "device_total_bytes": 80 * GIB, "device_used_bytes": int(((held or 74) + 4) * GIB)}
            for rank in range(ranks) for step, peak in enumerate(peaks)]
    return overview(from_rows({"rank_memory": rows, **more}, run="made"), "made")


def alternating(count, seed=1, share=0.2):
    chance = random.Random(seed)
    return [75 if chance.random() < share else 50 + chance.random() for _ in range(count)]


def test_the_bounds_of_n_steps_follow_those_of_one():
    found = run(alternating(60))
    (near,) = found.near_limit
    (one,) = outlook(found, 10).ranks
    assert near.near == "occasional"
    assert one.near_low == pytest.approx(1 - (1 - near.low) ** 10)
    assert one.near_high == pytest.approx(1 - (1 - near.high) ** 10)
    assert one.higher_peak == pytest.approx(10 / 70)
    assert one.refused is None
    assert outlook(found).steps == 60


def test_nothing_seen_in_n_steps_still_bounds_the_next():
    (one,) = outlook(run([50 + step % 3 for step in range(300)], held=56), 3).ranks
    assert one.near_low == 0
    assert 0.02 < one.near_high < 0.04  # 1 - 0.05^(3/300)
    assert one.die_high == one.near_high


@pytest.mark.parametrize(("found", "reason"), [
    (lambda: run([50] * 3), "fewer than 5"),
    (lambda: run([50] * 9, "cumulative", held=56), "maxima since the start only"),
    (lambda: run([50 + step / 4 for step in range(60)], held=70), "drifts"),
    (lambda: run([50, 51] * 30, iterations=[{"iteration": step + 1, "train_iterations": 5000, "line": 1} for step in range(60)]), "first 5%"),
])
def test_no_number_where_the_steps_seen_do_not_stand_for_the_next(found, reason):
    seen = found()
    ahead = outlook(seen)
    assert all(reason in (one.refused or "") and one.near_high is None for one in ahead.ranks)
    assert ahead.ranks
    assert as_json(seen)["outlook"]["refused"] is not None


def test_a_staircase_that_climbs_forbids_a_number_and_an_early_one_does_not():
    def climbing(at):
        rows = [{"rank": 0, "iteration": step + 1, "scope": "interval", "valid": True, "line": step + 1, "phase": "train", "allocated_bytes": GIB,
                 "max_allocated_bytes": (50 + step % 2) * GIB, "reserved_bytes": (56 + 3 * (step >= at)) * GIB,
                 "max_reserved_bytes": (56 + 3 * (step >= at)) * GIB, "device_total_bytes": 80 * GIB, "device_used_bytes": 62 * GIB}
                for step in range(40)]
        iterations = [{"iteration": step + 1, "line": 1} for step in range(40)]
        seen = overview(from_rows({"rank_memory": rows, "iterations": iterations}, run="made"), "made")
        return outlook(seen).ranks[0].refused
    assert "still climbs: last at iteration 31" in climbing(30)
    assert climbing(4) is None


def test_no_further_than_ten_times_what_was_seen():
    found = run(alternating(20))
    assert outlook(found, 200).ranks[0].refused is None
    assert "more than 10 times" in outlook(found, 201).ranks[0].refused


def test_the_bounds_cover_the_true_chance_at_their_rate():
    """400 ranks of known chance a step: what happens in the next 5 steps must lie within the bounds for 95 % of them."""
    chance, held = random.Random(11), 0
    shares = [chance.choice((0.02, 0.1, 0.4, 0.8)) for _ in range(400)]
    rows = [{"rank": rank, "iteration": step + 1, "scope": "interval", "valid": True, "line": 1, "allocated_bytes": GIB,
             "device_total_bytes": 80 * GIB, "max_allocated_bytes": (75 if chance.random() < share else 40) * GIB,
             "max_reserved_bytes": 40 * GIB, "reserved_bytes": 40 * GIB, "device_used_bytes": 44 * GIB}
            for rank, share in enumerate(shares) for step in range(50)]
    ahead = outlook(overview(from_rows({"rank_memory": rows}, run="made"), "made"), 5)
    told = [one for one in ahead.ranks if one.refused is None]
    held = sum(one.near_low <= 1 - (1 - shares[one.rank]) ** 5 <= one.near_high for one in told)
    assert len(told) > 380
    assert held / len(told) >= 0.93


def test_starts_of_another_configuration_give_no_chance():
    assert starts([True, False, False]).high < 1
    one = starts([True, False, False], changed=("seq_length",))
    assert (one.died, one.low, one.high) == (1, None, None)
    rows = {"runs": [{"run_index": start, "line": 1} for start in range(3)], "oom_events": [{"run_index": 0, "line": 9}],
            "run_args": [{"run_index": start, "name": "seq_length", "value": str(4096 * (1 + start // 2)), "line": 2} for start in range(3)]}
    found = overview(from_rows(rows, run="made"), "made", 2)
    assert found.starts.changed == ("seq_length",)
    assert "differ in seq_length" in next(one.sentence for one in found.findings if one.id == "starts_die")


def test_a_drift_is_more_than_chance_and_no_trifle():
    assert drifts(100, 0.9, GIB)
    assert not drifts(100, 0.9, 1000)
    assert not drifts(100, 0.1, GIB)
    assert not drifts(100, None, None)
    assert drifts(100, 1.0, -GIB)


def test_the_tail_of_a_known_law_is_found():
    """Exponential above 40 GiB with mean 1 GiB: a peak passes 48 GiB with chance exp(-8)."""
    draw = np.random.default_rng(3)
    peaks, steps = 40 * GIB + draw.exponential(GIB, 40_000), np.repeat(np.arange(5_000), 8)
    one = tail(peaks, steps, 48 * GIB)
    assert one.low <= np.exp(-8) <= one.high
    assert one.chance == pytest.approx(np.exp(-8), rel=0.6)


def test_the_tail_is_refused_where_too_little_was_seen_or_the_limit_is_too_far():
    draw = np.random.default_rng(3)
    peaks = 40 * GIB + draw.exponential(GIB, 4_000)
    assert "wants 500" in tail(peaks, np.repeat(np.arange(400), 10), 45 * GIB).refused
    assert "wants 50" in tail(np.full(600, 40.0 * GIB), np.arange(600), 45 * GIB).refused
    assert "beyond the data" in tail(peaks, np.arange(4_000), 90 * GIB).refused
    assert tail(np.array([]), np.array([], np.int64), GIB).refused


def test_every_face_tells_it():
    found = run(alternating(60))
    assert as_json(found, 7)["outlook"]["steps"] == 7
    text = " ".join(as_text(found).split())
    assert "The next 60 steps, if they are like those seen" in text
    assert "(95 %)" in text
    quiet = replace(found, near_limit=())
    assert "The next" not in as_text(quiet)
