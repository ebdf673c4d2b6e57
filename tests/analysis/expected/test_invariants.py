"""What must hold for any expectation: classes add up, stages agree with ranks, the peak is no less than the steady state."""

from __future__ import annotations

from itertools import product

import pytest

from analysis.expected import expect, expect_stages
from ingest.errors import LedgerError

BASE = {"hidden_size": 512, "num_layers": 12, "num_attention_heads": 8, "seq_length": 1024, "micro_batch_size": 2, "padded_vocab_size": 50304,
        "bf16": True}


@pytest.mark.parametrize(("tp", "pp", "changes"), [
    (tp, pp, changes) for tp, pp, changes in product((1, 2), (1, 4), (
        {}, {"use_distributed_optimizer": True}, {"num_experts": 8, "expert_model_parallel_size": 2}, {"recompute_granularity": "full"},
        {"multi_latent_attention": True, "q_lora_rank": 64}, {"fp8": "hybrid"}, {"fp8": "hybrid", "fp8_param_gather": True},
        {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 1.0}))])
def test_classes_add_up_and_stages_agree_with_ranks(tp, pp, changes):
    args = BASE | {"tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp, "world_size": tp * pp * 2} | changes
    stages = expect_stages(args, microbatches=8)
    for row in (*stages, *expect(args, microbatches=8)):
        assert sum(row.classes.values()) == row.steady_allocated_bytes
        assert sum(row.peak_classes.values()) == row.peak_allocated_bytes
        assert min(row.classes.values()) >= 0
        assert row.steady_low_bytes <= row.steady_allocated_bytes <= row.steady_high_bytes
        assert row.peak_low_bytes <= row.peak_allocated_bytes <= row.peak_high_bytes
        assert row.steady_allocated_bytes <= row.peak_allocated_bytes
        assert row.peak_allocated_bytes == stages[row.pp].peak_allocated_bytes


def test_only_the_ranks_asked_for_are_answered():
    rows = expect(BASE | {"world_size": 8}, microbatches=1, ranks=[7, 2])
    assert [row.rank for row in rows] == [7, 2]


@pytest.mark.parametrize("broken", [{"hidden_size": "wide"}, {"padded_vocab_size": None}, {"world_size": 7, "tensor_model_parallel_size": 2},
                                    {"pipeline_model_parallel_size": 5, "world_size": 10}, {"moe_layer_freq": [1, 0], "num_experts": 8}])
def test_what_cannot_be_is_one_sentence(broken):
    with pytest.raises(LedgerError) as refused:
        expect(BASE | {"world_size": 8} | broken, microbatches=1)
    assert "\n" not in str(refused.value)
