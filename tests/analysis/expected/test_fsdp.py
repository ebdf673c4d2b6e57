"""What FSDP gathers and keeps: by hand for a dense model, and by what two functional tests of Megatron-LM rose by when embedding and head stayed."""

from __future__ import annotations

import pytest

from analysis.expected import expect_stages
from analysis.expected.expect import read_run
from analysis.expected.stage import stage_bytes

HIDDEN, LAYERS, VOCABULARY, RANKS = 1024, 6, 32000, 8
LAYER = 12 * HIDDEN**2 + 13 * HIDDEN
ENDS = 2 * VOCABULARY * HIDDEN + 2 * HIDDEN
DENSE = {"hidden_size": HIDDEN, "num_layers": LAYERS, "num_attention_heads": 16, "seq_length": 512, "micro_batch_size": 1,
         "padded_vocab_size": VOCABULARY, "position_embedding_type": "rope", "untie_embeddings_and_output_weights": True, "bf16": True,
         "world_size": RANKS}
SHARDED = DENSE | {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"}
# moe/deepseek_proxy_fsdp_ep2_fsdp2 of Megatron-LM with 2 layers: fp8 parameters, all else fp32
PROXY = {"hidden_size": 512, "num_layers": 2, "num_attention_heads": 8, "kv_channels": 128, "ffn_hidden_size": 2048, "swiglu": True,
         "normalization": "RMSNorm", "add_bias_linear": False, "padded_vocab_size": 50304, "untie_embeddings_and_output_weights": True,
         "seq_length": 1024, "micro_batch_size": 4, "max_position_embeddings": 1024, "position_embedding_type": "rope", "rotary_scaling_factor": 1.0,
         "use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params", "overlap_param_gather": True,
         "multi_latent_attention": True, "q_lora_rank": 256, "kv_lora_rank": 128, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128,
         "qk_layernorm": True, "attention_backend": "unfused", "attention_dropout": 0.0, "hidden_dropout": 0.0, "num_experts": 8,
         "moe_layer_freq": [0, 1], "moe_ffn_hidden_size": 1024, "moe_shared_expert_intermediate_size": 1024, "moe_router_topk": 4,
         "moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall", "expert_model_parallel_size": 2,
         "gradient_accumulation_fusion": False, "fp8_format": "e4m3", "fp8_recipe": "tensorwise", "fp8_param_gather": True}
EXACT = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def row_of(**changes):
    """The only stage, without the rounding of whole segments."""
    return expect_stages(SHARDED | changes, microbatches=4, env=EXACT, gpu="H100")[0]


def gathered(**changes):
    """Gathered bytes by instant."""
    stage = stage_bytes(read_run(SHARDED | changes, 4, None, "H100", None), 0)
    return {one.name: one.classes["gathered"] for one in stage.instants} | {"classes": stage.classes["gathered"]}


def test_a_unit_is_a_whole_layer_and_what_is_in_no_layer_stays_gathered_while_layers_run():
    found = gathered(suggested_communication_unit_size=2)
    assert found == {"forward": 2 * (ENDS + 2 * LAYER), "backward": 2 * (ENDS + 2 * LAYER) + 4 * LAYER, "loss": 2 * ENDS,
                     "evaluation": 2 * (ENDS + 2 * LAYER), "optimizer_step": 0, "after_step": 0, "classes": 0}


@pytest.mark.parametrize(("elements", "layers"), [(None, LAYERS), (2 * LAYER, 2), (2 * (LAYER + 1), 3), (4 * LAYER, 3), (10**10, LAYERS)])
def test_layers_are_gathered_ahead_until_they_hold_half_a_communication_unit(elements, layers):
    assert gathered(suggested_communication_unit_size=elements)["forward"] == 2 * (ENDS + layers * LAYER)


def test_embedding_and_head_stay_between_steps_where_gathers_overlap():
    without, kept = gathered(), gathered(overlap_param_gather=True)
    assert kept == without | dict.fromkeys(("optimizer_step", "after_step", "classes"), 2 * ENDS)
    dump = {"overlap_param_gather": True, "rank": 0}
    assert gathered(**dump) == without, "a dump of all arguments that knows none of core 0.18"
    assert gathered(**dump, mtp_detach_heads=False) == kept


def proxy(ranks, **changes):
    env = EXACT | {"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"}
    return expect_stages(PROXY | {"world_size": ranks} | changes, microbatches=8 // ranks, env=env, gpu="GB200")[0]


def test_what_stays_is_what_a_measured_run_rose_by():
    stays, not_yet = proxy(4), proxy(4, rank=0)
    assert stays.steady_allocated_bytes - not_yet.steady_allocated_bytes == pytest.approx(800_470_016 - 594_416_640, rel=1e-4)
    assert stays.peak_allocated_bytes == not_yet.peak_allocated_bytes


@pytest.mark.parametrize(("ranks", "steady", "peak"), [(4, 800_471_552, 2_508_961_280), (8, 628_050_944, 2_358_100_480)])
def test_measured_runs_with_quantised_shards_lie_near(ranks, steady, peak):
    """Their golden values at 378d81fb and 54e19960: rank 0 of one GB200 node and of two."""
    row = proxy(ranks)
    assert row.steady_allocated_bytes == pytest.approx(steady, rel=0.02)
    assert row.peak_allocated_bytes == pytest.approx(peak, rel=0.05)


def test_double_buffers_are_two_units_that_never_go():
    found = gathered(fsdp_double_buffer=True)
    fixed = 2 * 2 * LAYER + 2 * 4 * LAYER
    assert found == {name: fixed + (2 * ENDS if name in ("forward", "backward", "loss", "evaluation") else 0) for name in found}


@pytest.mark.parametrize("kind", [{"use_torch_fsdp2": True}, {"deepspeed": True, "zero_stage": 3}])
def test_other_kinds_gather_one_unit_ahead_and_the_ends_as_units(kind):
    plain = {"use_megatron_fsdp": False, "suggested_communication_unit_size": 10**9}
    found = gathered(**plain, **kind)
    embedding = VOCABULARY * HIDDEN
    assert found["loss"] == 2 * embedding
    assert found["forward"] == 2 * (embedding + LAYER)
    assert found["backward"] >= found["forward"] + 2 * LAYER
    assert found["classes"] == 0


@pytest.mark.parametrize("strategy", ["no_shard", "optim", "optim_grads"])
def test_whole_weights_are_not_gathered(strategy):
    assert set(gathered(data_parallel_sharding_strategy=strategy).values()) == {0}


@pytest.mark.parametrize(("recipe", "bytes_an_element"), [("tensorwise", 1), ("blockwise", 1), ("mxfp8", 2 + 1 / 16)])
def test_quantised_parameters_are_sharded_like_the_weights_that_they_replace(recipe, bytes_an_element):
    row = row_of(fp8_format="e4m3", fp8_recipe=recipe, fp8_param_gather=True)
    matrices = LAYERS * 12 * HIDDEN**2
    others = LAYERS * 13 * HIDDEN + ENDS
    assert row.parameters == matrices + others
    assert row.classes["weights"] + row.classes["quantised_weights"] == pytest.approx((bytes_an_element * matrices + 2 * others) / RANKS, rel=0.01)


@pytest.mark.parametrize(("changes", "width"), [
    ({}, 4), ({"megatron_fsdp_main_grads_dtype": "fp32"}, 4), ({"megatron_fsdp_main_grads_dtype": "torch.float32"}, 4),
    ({"megatron_fsdp_main_grads_dtype": "auto"}, 2), ({"megatron_fsdp_main_grads_dtype": None}, 2),
    ({"megatron_fsdp_main_grads_dtype": "auto", "bf16": False}, 4)])
def test_gradients_are_as_wide_as_the_argument_of_megatron_fsdp_says(changes, width):
    row = row_of(**changes)
    assert row.classes["gradients"] / row.parameters * RANKS == pytest.approx(width, rel=0.01)


@pytest.mark.parametrize(("changes", "width"), [
    ({}, 12), ({"bf16": False}, 12), ({"megatron_fsdp_main_params_dtype": "fp32"}, 12), ({"megatron_fsdp_main_params_dtype": "auto"}, 8)])
def test_main_weights_are_a_buffer_of_their_own_unless_left_to_the_weights(changes, width):
    row = row_of(**changes)
    assert row.classes["optimizer"] / row.parameters * RANKS == pytest.approx(width, rel=0.01)


def test_everything_is_sharded_where_no_strategy_is_given_and_that_is_said():
    plain, given = row_of(data_parallel_sharding_strategy=None), row_of()
    assert plain.classes == given.classes
    assert any("core 0.18" in said for said in plain.assumptions)
    assert not any("core 0.18" in said for said in given.assumptions)
