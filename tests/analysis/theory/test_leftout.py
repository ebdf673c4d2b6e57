"""What the formula left out: one number worked out by hand for each effect, and their order."""

from __future__ import annotations

import pytest

from analysis.theory.formula_arguments import formula_arguments
from analysis.theory.generations import BY_NAME
from analysis.theory.leftout import left_out, said_for
from analysis.theory.megatron import report

TOKENS, SHARD = 8192, 2_007_631_872


def effects(args, generation="G15", m=8):
    known, _ = formula_arguments(args)
    one = BY_NAME[generation]
    return {entry.name: entry for entry in left_out(said_for(one, report(one, known, m), known, args, m))}


def test_logits_gate_and_order(llama_like):
    found = effects(llama_like)
    assert set(found) == {"logits_and_loss", "ffn_width"}
    assert found["logits_and_loss"].bytes == pytest.approx(6 * TOKENS * 128256 / 2 + 4 * TOKENS * 4096 / 2 + 2 * 4096 * TOKENS, rel=1e-4)
    assert found["logits_and_loss"].stage == "last"
    assert found["ffn_width"].bytes == 2 * 14336 * TOKENS // 2 * 32
    sizes = [abs(entry.bytes) for entry in found.values()]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(("change", "name", "bytes_"), [
    ({"context_parallel_size": 2, "world_size": 512}, "context_parallel_activation", -17_213_489_152 // 2),
    ({"context_parallel_size": 2, "world_size": 512}, "context_parallel_optimizer", -SHARD * 12 / 64 / 2),
    ({"grad_reduce_in_bf16": True}, "gradient_dtype", -2 * SHARD),
    ({"optimizer_cpu_offload": True, "optimizer_offload_fraction": 0.5}, "optimizer_offload", -SHARD * 12 / 64 / 2),
    ({"use_precision_aware_optimizer": True}, "optimizer_dtypes", -2 * SHARD / 64),
    ({"use_precision_aware_optimizer": True, "exp_avg_dtype": "torch.bfloat16", "exp_avg_sq_dtype": "fp8"}, "optimizer_dtypes", -7 * SHARD / 64),
    ({"num_distributed_optimizer_instances": 2}, "optimizer_instances", SHARD * 12 / 64),
    ({"fp8": "hybrid"}, "fp8", 2 * (SHARD - 262_668_288)),
    ({"decoder_first_pipeline_num_layers": 18}, "uneven_stages_activation", 1_073_741_824 // 2 * 4),
])
def test_one_effect_worked_out(llama_like, change, name, bytes_):
    assert effects({**llama_like, **change})[name].bytes == pytest.approx(bytes_, abs=1, rel=2e-4)


def test_full_recompute_sequence_parallelism_and_five_percent(llama_like):
    full = effects({**llama_like, "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1})
    layers = TOKENS * 4096 * 22 * 32
    assert full["full_recompute"].bytes == 2 * 4096 * TOKENS // 2 * 32 - layers
    assert "sequence_parallel_ignored" not in full
    assert full["five_percent"].bytes == pytest.approx(-0.05 * (layers + 8 * TOKENS * 2 + TOKENS * 4096 * 2), abs=1)
    none = effects({**llama_like, "recompute_granularity": None})
    assert none["sequence_parallel_ignored"].bytes == -TOKENS * 4096 * 10 * 32 // 2
    assert none["ffn_width"].bytes == (6 * 14336 - 16 * 4096) * TOKENS // 2 * 32


def test_short_line_has_no_activation(llama_like):
    found = effects({**llama_like, "sequence_parallel": False}, "G06")
    assert found["activation"].bytes == 17_213_489_152
    assert "five_percent" not in found


def test_experts_before_and_after_g14(llama_like):
    moe = {**llama_like, "num_experts": 8, "moe_ffn_hidden_size": 1024, "expert_model_parallel_size": 8, "moe_router_topk": 2}
    assert "expert_parallel" not in effects(moe, "G14")
    assert effects(moe, "G13")["expert_parallel"].bytes < -1e9
    routed = 2 * TOKENS // 2 * 2 * (2 * 4096 + 6 * 1024 // 2)
    assert effects(moe)["moe_activation"].bytes == (routed - 4 * 14336 * TOKENS // 2) * 32
    kept_none = effects({**moe, "recompute_modules": ["moe"]})["moe_activation"].bytes
    assert kept_none == -4 * 14336 * TOKENS // 2 * 32


def test_mtp_stands_on_the_last_stage(llama_like):
    found = effects({**llama_like, "mtp_num_layers": 1})
    per_layer = 218_103_808 / 2 + 8192
    assert found["mtp_placement"].bytes == pytest.approx(-per_layer * (6 + 12 / 64), rel=1e-9)


def test_a_split_that_cannot_be_leaves_the_other_effects(llama_like):
    assert "logits_and_loss" in effects({**llama_like, "num_layers": 33})


def test_nothing_printed_ranks_nothing(llama_like):
    assert effects({**llama_like, "sequence_parallel": False}, "G05") == {}


def test_experts_have_a_data_parallel_size_of_their_own(llama_like):
    moe = {**llama_like, "num_experts": 8, "moe_ffn_hidden_size": 1024, "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1,
           "optimizer_cpu_offload": True}
    experts = 3 * 4096 * 1024 * 8 * 32 // 2 // 8
    dense = 2 * 4096 * 5120 * 32 // 2 // 2 + 4096 * 128256 // 2 + (32 * (8192 + 8 * 4096 + 8) + 4096) // 2
    assert effects(moe)["optimizer_offload"].bytes == pytest.approx(-12 * (experts / 16 + dense / 64), rel=1e-9)


def test_uneven_chunks_are_walked_through_the_schedule(llama_like):
    layout = {"pipeline_model_parallel_layout": "Et*20|t*4|t*4|t*4,L", "virtual_pipeline_model_parallel_size": 2}
    found = effects({**llama_like, **layout})["uneven_stages_activation"]
    assert found.sentence.startswith("84 layers of activation are alive on the fullest stage, the formula counts 40")
    assert found.bytes == (84 - 40) * 1_073_741_824 // 2


def test_expert_parallelism_before_g14_to_the_byte(llama_like):
    moe = {**llama_like, "num_experts": 8, "moe_ffn_hidden_size": 1024, "expert_model_parallel_size": 8}
    experts, per_parameter = 32 * 3 * 4096 * 1024 * 8, 6 + 12 / 64
    routed = experts // (2 * 8 * 2) * (6 + 12 / 8) - experts // 4 * per_parameter
    norms = (32 * 8192 + 4096) // 4 * per_parameter
    router = 32 * (4096 * 8 + 8) // 2 * per_parameter
    assert effects(moe, "G13")["expert_parallel"].bytes == pytest.approx(routed + norms + router, abs=1)


def test_uneven_stages_weights_to_the_byte(llama_like):
    found = effects({**llama_like, "decoder_first_pipeline_num_layers": 18})["uneven_stages_weights"]
    shard = 32 * 218_103_808 / 4 + (32 * 8192 + 4096) / 2
    assert found.bytes == round(2 * shard / 16 * (6 + 12 / 64))
    assert found.sentence == "a stage holds 18 layers, the formula counts 16"


def test_logits_without_pipeline_are_counted_in_half_precision(llama_like):
    found = effects({**llama_like, "pipeline_model_parallel_size": 1, "sequence_parallel": False})
    assert found["fp32_logits"].bytes == 2 * TOKENS * 128256 // 2
    assert "logits_and_loss" not in found
    assert "fp32_logits" not in effects({**llama_like, "pipeline_model_parallel_size": 1})


@pytest.mark.parametrize(("change", "names"), [
    ({"context_parallel_size": 2, "world_size": 512}, {"context_parallel_activation", "context_parallel_optimizer"}),
    ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 8}, {"full_recompute", "five_percent"}),
    ({"num_experts": 8, "expert_model_parallel_size": 2, "moe_ffn_hidden_size": 1024}, {"moe_activation"}),
    ({"mtp_num_layers": 2}, {"mtp_placement"}),
    ({"fp8": "e4m3", "fp8_param_gather": True}, set()),
])
def test_which_effects_a_run_has(llama_like, change, names):
    usual = {"logits_and_loss", "ffn_width"}
    found = set(effects({**llama_like, **change}))
    assert names <= found
    assert found - names <= usual
