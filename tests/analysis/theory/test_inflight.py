"""Micro-batches in flight: the table, the worked factors, and the mix of chunks at the peak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.theory.activation import recomputed_layer_bytes
from analysis.theory.inflight import dual_pipe, heaviest_mix, peak_stages, peak_units, schedule
from ingest.errors import LedgerError


@pytest.mark.parametrize(("p", "v", "group", "m", "units"), [
    (4, 2, 4, 8, {0: 11, 2: 7, 3: 5}),
    (4, 4, 4, 16, {0: 19, 2: 15, 3: 13}),
    (8, 2, 8, 16, {0: 23, 4: 15, 7: 9}),
    (16, 4, 16, 64, {0: 79, 8: 63, 15: 49}),
    (4, 2, 6, 12, {0: 13, 3: 7}),
    (4, 2, 8, 16, {0: 15, 3: 9}),
    (4, 2, 4, 4, {0: 8, 2: 7, 3: 5}),
    (4, 1, 4, 8, {0: 4, 2: 2, 3: 1}),
    (4, 1, 4, 2, {0: 2, 2: 2, 3: 1}),
    (1, 1, 1, 8, {0: 1}),
])
def test_units_at_the_peak(p, v, group, m, units):
    plan = schedule(p, v, m, group)
    for stage, want in units.items():
        assert peak_units(plan, stage) == want
        assert heaviest_mix(plan, stage, [1.0] * v)[0] == want


def test_worked_example_in_stage_units():
    plan = schedule(16, 4, 64)
    assert [peak_stages(plan, stage) for stage in (0, 8, 15)] == [19.75, 15.75, 12.25]
    assert pytest.approx(peak_stages(plan, 0) / 16, abs=0.01) == 1 + 15 / (16 * 4)


def test_worked_example_of_one_forward_one_backward_and_dual_pipe():
    assert [peak_units(schedule(4, 1, 8), stage) for stage in range(4)] == [4, 3, 2, 1]
    assert peak_units(schedule(4, 1, 2), 0) / 4 == 2 / 4
    stages, copies = dual_pipe(16)
    assert (stages / 16, copies) == (1 + 1 / 16, 2)


def test_full_recomputation_keeps_the_input_of_each_layer_whatever_p_is():
    assert 64 * recomputed_layer_bytes(4096, 7168) == 3.5 * 2**30


def test_the_mix_rotates_and_one_chunk_alone_reaches_more():
    plan = schedule(4, 4, 16)
    assert heaviest_mix(plan, 0, [1, 1, 1, 1]) == (19, (7, 4, 4, 4))
    assert heaviest_mix(plan, 0, [1, 0, 0, 0])[0] == 8


def test_expert_overlap_holds_one_more():
    assert peak_units(schedule(4, 2, 8, overlap_experts=True), 0) == 12
    assert peak_units(schedule(1, 1, 8, overlap_experts=True), 0) == 2


@pytest.mark.parametrize(("p", "v", "m", "group", "sentence"), [
    (4, 2, 2, None, "group_size_per_vp_stage is 4; from PP 4 up to num_microbatches 2"),
    (4, 2, 9, 4, "the last group of 1 is smaller than PP 4"),
    (4, 1, 0, None, "num_microbatches is 0; at least 1"),
])
def test_what_cannot_run_is_one_sentence(p, v, m, group, sentence):
    with pytest.raises(LedgerError, match=sentence):
        schedule(p, v, m, group)


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 4), st.data())
def test_walked_schedule_agrees_with_the_closed_form(p, v, times, data):
    stage = data.draw(st.integers(0, p - 1))
    plan = schedule(p, v, p * times)
    units, mix = heaviest_mix(plan, stage, [1.0] * v)
    assert units == sum(mix) == peak_units(plan, stage)
