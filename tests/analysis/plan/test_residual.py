"""What a run measured above its expectation stays; what it measured below shrinks with the bytes that it can belong to, and no peak is unphysical."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.expected import RankExpectation
from analysis.plan.change import Before, before_of, plan
from analysis.plan.residual import Residual, kept, residual_of
from cli import main
from ingest.errors import LedgerError
from tests.analysis.test_plan import expected

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = str(ROOT / "sample_data/dense_7b5_pp2")


def row(steady, above):
    peak = steady + above
    return RankExpectation(None, 0, None, None, None, None, 0, {}, {}, steady, steady, steady, peak, peak, peak, "loss", ())


@pytest.mark.parametrize(("peak", "steady", "found"), [
    (300, 100, Residual(100, 200)), (-30, -10, Residual(-10, -20)), (50, None, Residual(0, 50)), (-30, None, Residual(0, -30)),
    (-90, None, Residual(-30, -60)), (-10, 40, Residual(40, -50)), (10, 100, Residual(70, -60)), (0, 0, Residual(0, 0)),
])
def test_the_two_parts_of_a_residual(peak, steady, found):
    """Of 100 after a step and 60 above: what lies further below than the 60 can be missing belongs to what stands."""
    assert residual_of(row(100, 60), peak, steady) == found
    assert found.peak == peak


@pytest.mark.parametrize(("found", "now", "stays"), [
    (Residual(10, 20), row(10, 6), Residual(10, 20)), (Residual(-10, -20), row(50, 30), Residual(-5, -10)),
    (Residual(-10, -20), row(200, 600), Residual(-10, -20)), (Residual(10, -20), row(50, 0), Residual(10, 0)),
    (Residual(-10, 20), row(0, 0), Residual(0, 20)),
])
def test_only_what_was_missing_shrinks(found, now, stays):
    assert kept(found, row(100, 60), now) == stays


sizes = st.integers(0, 10**12)


@given(sizes, sizes, sizes, sizes, sizes, st.one_of(st.none(), sizes))
def test_a_planned_peak_is_never_below_its_steady_state_nor_that_below_nothing(steady, above, then, more, measured, resident):
    was, now = row(steady, above), row(then, more)
    found = residual_of(was, measured - steady - above, None if resident is None else resident - steady)
    assert found.peak == measured - steady - above
    assert kept(found, was, was) == found
    stays = kept(found, was, now)
    assert 0 <= then + stays.steady <= then + more + stays.peak


@pytest.mark.parametrize("changes", [
    {"tensor_model_parallel_size": "32"}, {"tensor_model_parallel_size": "16"}, {"seq_length": "128", "micro_batch_size": "1"},
    {"recompute_granularity": "full", "recompute_method": "uniform"}, {"use_distributed_optimizer": "false"}, {"pipeline_model_parallel_size": "8"},
])
def test_the_sample_with_a_negative_residual_stays_physical(capsys, changes):
    assert main(["plan", SAMPLE, "--format", "json", "--set", *(f"{name}={value}" for name, value in changes.items())]) == 0
    found = json.loads(capsys.readouterr().out)
    for stage in found["stages"]:
        assert 0 < stage["steady_bytes"] <= stage["peak_bytes"]
        assert 0 < stage["low_bytes"] <= stage["peak_bytes"] <= stage["high_bytes"]
        assert sum(stage["classes"].values()) + stage["residual_bytes"] == stage["peak_bytes"]
    assert found["fullest_bytes"] == max(stage["peak_bytes"] for stage in found["stages"])


def test_without_a_change_peak_and_steady_state_are_those_measured(capsys):
    assert main(["plan", SAMPLE, "--format", "json", "--set", "micro_batch_size=2"]) == 0
    planned = json.loads(capsys.readouterr().out)["stages"]
    assert main(["report", SAMPLE, "--format", "json"]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    for stage in planned:
        fullest = max((rank for rank in ranks if rank["stage"] == stage["stage"]), key=lambda rank: rank["max_allocated_bytes"])
        assert (stage["peak_bytes"], stage["steady_bytes"]) == (fullest["max_allocated_bytes"], fullest["allocated_bytes"])


@pytest.mark.parametrize(("changes", "said"), [
    ({"optimizer": "foo"}, "argument optimizer is 'foo'; adam or sgd or"),
    ({"position_embedding_type": "weird"}, "argument position_embedding_type is 'weird'; learned_absolute or rope or"),
    ({"normalization": "zzz"}, "argument normalization is 'zzz'; LayerNorm or RMSNorm would fit"),
    ({"fp16": True}, "argument fp16 is True beside bf16 True; one of them alone would fit"),
    ({"tensor_model_parallel_size": 64, "world_size": 256}, "does not divide num_attention_heads 32; 32 would fit"),
    ({"num_experts": 12, "expert_model_parallel_size": 8, "world_size": 64}, "does not divide num_experts 12; a divisor of 12 would fit"),
    ({"num_experts": 8, "moe_router_topk": 9}, "argument moe_router_topk is 9; at most num_experts 8 would fit"),
    ({"group_query_attention": True, "num_query_groups": 3}, "num_query_groups is 3; a multiple or a divisor of tensor_model_parallel_size 2"),
    ({"num_attention_heads": 30}, "argument hidden_size is 4096; a multiple of num_attention_heads 30, or kv_channels beside it, would fit"),
])
def test_what_megatron_refuses_is_refused_in_one_sentence(changes, said):
    known = expected(kv_channels=128, global_batch_size=64)
    with pytest.raises(LedgerError) as refused:
        plan(known, Before({}, None, None), changes)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_width_of_heads_that_was_given_is_kept():
    known = expected(kv_channels=100)
    assert plan(known, before_of(known, ()), {"num_attention_heads": 30}).stages
