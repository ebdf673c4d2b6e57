"""The bars on runs of others: parameters to the byte, every rank of real logs, and the measured runs with their intervals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.expected import expect, expect_stages
from benchmarks.accuracy import coverage, document, quantile, read, residuals_module
from benchmarks.accuracy import logs as judged_logs
from benchmarks.expected_constants import CONSTANTS, backward_errors, errors, rows
from cli.arguments_of_log import surroundings_of_log


@pytest.fixture(scope="module")
def logs(shared):
    folder = shared / "data/logs/real"
    spec = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    found = [(surroundings_of_log(str(folder / name)), one) for name, one in spec.items() if len(one["rank_memory"]) >= 16]
    assert found
    return found


def test_parameters_are_exact_on_every_shard(logs):
    for said, spec in logs:
        stages = expect_stages(said.args, microbatches=said.microbatches)
        assert {(tp, pp): stages[pp].parameters for tp, pp, _ in spec["parameter_counts"]} == {(tp, pp): n for tp, pp, n in spec["parameter_counts"]}


def test_every_rank_of_real_logs_is_near(logs):
    for said, spec in logs:
        rows = expect(said.args, microbatches=said.microbatches, env=said.environment, gpu=said.gpu, steps=said.steps)
        have = {one["rank"]: one for one in spec["rank_memory"]}
        for row in rows:
            assert row.steady_allocated_bytes == pytest.approx(have[row.rank]["allocated_bytes"], rel=0.01)
            assert row.peak_allocated_bytes == pytest.approx(have[row.rank]["max_allocated_bytes"], rel=0.01)


def test_first_and_last_stage_stand_out_as_they_did(logs):
    for said, spec in logs:
        rows = expect(said.args, microbatches=said.microbatches)
        have = [one["allocated_bytes"] for one in sorted(spec["rank_memory"], key=lambda one: one["rank"])]
        middle = len(rows) // 2
        for edge in (0, -1):
            surplus = rows[edge].steady_allocated_bytes - rows[middle].steady_allocated_bytes
            assert surplus == pytest.approx(have[edge] - have[middle], rel=0.02)


@pytest.fixture(scope="module")
def judged(shared):
    return read(shared / "data/measured/megatron_ci.jsonl.gz")


def test_measured_runs_meet_the_bars(judged):
    steady = [abs(row.steady / row.measured_steady - 1) for row in judged]
    peak = [abs(row.peak / row.measured_peak - 1) for row in judged]
    assert quantile(steady, 0.5) <= 0.005
    assert quantile(steady, 0.9) <= 0.02
    assert quantile(peak, 0.5) <= 0.015
    assert quantile(peak, 0.9) <= 0.05


@pytest.mark.parametrize("which", [0, 1])
def test_intervals_cover_what_they_say(judged, which):
    assert 0.85 <= coverage(judged, which) <= 0.95


def test_what_is_generated_is_up_to_date(judged, shared):
    root = Path(__file__).resolve().parents[3]
    assert (root / "analysis/expected/residuals.py").read_text(encoding="utf-8") == residuals_module(judged)
    assert (root / "docs/accuracy.md").read_text(encoding="utf-8") == document(judged, judged_logs(shared))


@pytest.mark.long
@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda one: one.name)
def test_a_measured_constant_is_better_than_its_neighbours(shared, constant):
    found = errors(constant, rows())
    assert min(found, key=lambda value: found[value]) == getattr(constant.module, constant.name)


def test_gradients_along_the_residual_stream_are_two(shared):
    found = backward_errors()
    assert min(found, key=lambda value: found[value]) == 2
