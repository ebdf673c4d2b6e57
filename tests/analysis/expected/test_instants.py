"""The walk over the schedule, a run's first step, intervals from a fleet's history, and what an unpriced option says."""

from __future__ import annotations

import random
from unittest import mock

import pytest

from analysis.expected import expect, expect_stages, instants
from analysis.expected.calibration import History
from analysis.expected.instants import ChunkBytes, fullest
from analysis.theory.inflight import schedule
from ingest.errors import LedgerError

ARGS = {"hidden_size": 512, "num_layers": 12, "num_attention_heads": 8, "seq_length": 1024, "micro_batch_size": 2, "padded_vocab_size": 50304,
        "bf16": True, "world_size": 4, "attention_backend": "fused"}


@pytest.mark.parametrize(("pp", "chunks", "group", "microbatches", "units"), [
    (4, 1, None, 8, [4, 3, 2, 1]), (4, 1, None, 2, [2, 2, 2, 1]), (4, 2, 4, 8, [11, 9, 7, 5]), (4, 4, 4, 16, [19, 17, 15, 13]),
    (4, 2, 6, 12, [13, 11, 9, 7]), (4, 2, 4, 4, [8, 8, 7, 5]), (1, 1, None, 8, [1])])
def test_micro_batches_in_flight(pp, chunks, group, microbatches, units):
    plan = schedule(pp, chunks, microbatches, group)
    assert [fullest(plan, stage, [ChunkBytes(1, 0)] * chunks).forward[0] for stage in range(pp)] == units


def test_a_long_schedule_peaks_where_its_beginning_does():
    chance = random.Random(5)
    for _ in range(100):
        pp, chunks = chance.choice([2, 3, 4, 8]), chance.choice([1, 2, 3])
        plan = schedule(pp, chunks, pp * chance.randint(5, 12), pp)
        sizes = [ChunkBytes(chance.randint(1, 99), chance.randint(0, 50), chance.choice([0, 30])) for _ in range(chunks)]
        for stage in range(pp):
            short = fullest(plan, stage, sizes)
            with mock.patch.object(instants, "_enough", lambda whole: whole.microbatches):
                assert fullest(plan, stage, sizes) == short


def test_the_loss_and_a_recompute_window_are_never_added():
    found = fullest(schedule(1, 1, 4), 0, [ChunkBytes(100, 30, 50)])
    assert (found.forward, found.loss, found.backward) == ((100, 0), (100, 50), (100, 30))


def test_a_first_step_has_no_moments_while_it_computes():
    later = expect_stages(ARGS, microbatches=4)[0]
    first = expect_stages(ARGS, microbatches=4, steps=1)[0]
    assert later.peak_allocated_bytes - first.peak_allocated_bytes == pytest.approx(8 * first.parameters, rel=0.02)
    assert later.steady_allocated_bytes == first.steady_allocated_bytes


def test_the_gradient_copy_lives_after_the_step_and_not_at_the_loss():
    half = expect_stages(ARGS | {"bf16": False, "fp16": True}, microbatches=4)[0]
    assert half.classes["gradient_copy"] == pytest.approx(4 * half.parameters, rel=0.01)
    assert half.peak_instant == "loss"
    assert half.peak_classes["gradient_copy"] == 0


def test_a_fleets_own_history_bounds_its_runs():
    steady, peak = [1.0 + step / 1000 for step in range(20)], [0.9 + step / 100 for step in range(20)]
    row = expect(ARGS, microbatches=4, gpu="H100", ranks=[0], history=History(steady, peak))[0]
    assert row.steady_high_bytes == pytest.approx(row.steady_allocated_bytes * 1.019, rel=0.001)
    assert row.peak_low_bytes == pytest.approx(row.peak_allocated_bytes * 0.9, rel=0.001)
    assert "calibrated on 20 runs of yours" in row.assumptions[-1]
    few = expect(ARGS, microbatches=4, gpu="H100", ranks=[0], history=History(steady[:3], peak[:3]))[0]
    assert not any("yours" in said for said in few.assumptions)


def test_an_option_without_a_price_is_named_and_widens_the_interval():
    plain = expect(ARGS, microbatches=4, gpu="H100", ranks=[0])[0]
    odd = expect(ARGS | {"cpu_offloading": True, "never_heard_of": 7}, microbatches=4, gpu="H100", ranks=[0])[0]
    assert odd.peak_allocated_bytes == plain.peak_allocated_bytes
    assert odd.peak_high_bytes > plain.peak_high_bytes
    assert [said for said in odd.assumptions if said.startswith("cpu_offloading")]


@pytest.mark.parametrize("broken", [{"hidden_dropout": "high"}, {"moe_expert_capacity_factor": "much", "num_experts": 4},
                                    {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 3}])
def test_values_that_are_no_shares_are_refused(broken):
    with pytest.raises(LedgerError, match=next(reversed([name for name in broken if name != "num_experts"]))):
        expect(ARGS | broken, microbatches=4)


def test_gradients_that_exist_from_the_second_backward_on_meet_one_micro_batch_less():
    plan = schedule(4, 1, 4)
    found = [fullest(plan, stage, [ChunkBytes(10, 1)], later_backwards=True).backward for stage in range(4)]
    assert found == [(30, 1), (30, 1), (20, 1), (10, 1)]
    assert fullest(schedule(1, 1, 1), 0, [ChunkBytes(10, 1)], later_backwards=True).backward == (10, 1)


def test_communication_inside_the_allocator_is_a_class_of_its_own():
    with_pool = expect(ARGS, microbatches=4, gpu="H100", ranks=[0], communication=lambda run, stage: 1000 + stage)[0]
    plain = expect(ARGS, microbatches=4, gpu="H100", ranks=[0])[0]
    assert with_pool.classes["communication"] == with_pool.steady_allocated_bytes - plain.steady_allocated_bytes == 1000
    assert with_pool.peak_allocated_bytes - plain.peak_allocated_bytes == 1000
    by_stage = expect_stages(ARGS, microbatches=4, gpu="H100", communication=lambda run, stage: 1000 + stage)
    assert [row.classes["communication"] for row in by_stage] == [1000 + row.pp for row in by_stage]


def test_switches_of_a_launch_command_say_no():
    shorter = {"no_position_embedding": True, "no_create_attention_mask_in_dataloader": True}
    plain, off = (expect(ARGS | more, microbatches=4, gpu="H100", ranks=[0])[0] for more in ({}, shorter))
    assert plain.parameters - off.parameters == 1024 * 512
    assert plain.peak_classes["batch"] - off.peak_classes["batch"] == 2 * 1024 * 1024
