"""Anchors of the literature and of the sources: layers, stages and state whose bytes are known from elsewhere."""

from __future__ import annotations

import pytest

from analysis.expected import expect_stages
from analysis.expected.allocator import booked
from analysis.expected.chunk import layer_saved
from analysis.expected.environment import environment
from analysis.expected.expect import read_run
from analysis.expected.low_precision import quantised_weight_bytes
from analysis.expected.options import read_options
from analysis.expected.parameters import Tensor, layer_tensors
from analysis.expected.recompute import kept
from analysis.expected.stage import stage_bytes
from analysis.expected.weights import Buffer
from analysis.expected.workspaces import workspace_bytes
from ingest.allocator import MIB

V3 = {
    "hidden_size": 7168, "num_layers": 61, "num_attention_heads": 128, "seq_length": 4096, "micro_batch_size": 1, "padded_vocab_size": 129280,
    "bf16": True, "multi_latent_attention": True, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64,
    "v_head_dim": 128, "qk_layernorm": True, "swiglu": True, "add_bias_linear": False, "normalization": "RMSNorm",
    "untie_embeddings_and_output_weights": True, "position_embedding_type": "rope", "ffn_hidden_size": 18432, "num_experts": 256,
    "moe_ffn_hidden_size": 2048, "moe_shared_expert_intermediate_size": 2048, "moe_router_topk": 8, "moe_layer_freq": "([0]*3+[1]*58)",
    "moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall", "use_distributed_optimizer": True, "pipeline_model_parallel_size": 4,
    "pipeline_model_parallel_layout": "Et*4|(t*4|)*12(t*3|)*2t*3L", "expert_model_parallel_size": 64, "world_size": 256, "hidden_dropout": 0.0,
    "attention_dropout": 0.0, "attention_backend": "fused",
}
DENSE = {"hidden_size": 4096, "num_layers": 4, "num_attention_heads": 32, "group_query_attention": True, "num_query_groups": 8,
         "ffn_hidden_size": 14336, "swiglu": True, "normalization": "RMSNorm", "add_bias_linear": False, "position_embedding_type": "rope",
         "padded_vocab_size": 128256, "seq_length": 4096, "micro_batch_size": 1, "tensor_model_parallel_size": 2, "sequence_parallel": True,
         "world_size": 2, "bf16": True, "hidden_dropout": 0.0, "attention_dropout": 0.0, "attention_backend": "flash"}


def run_of(args, **changes):
    return read_run(args | changes, 16, None, "H100", None)


def test_a_dense_layer_is_the_sum_of_its_tensors():
    saved = layer_saved(run_of(DENSE), "dense")
    statistics = sum(size for name, size in saved.items() if name.endswith("statistics"))
    assert sum(saved.values()) - statistics == (8 * 4096 + 4 * 4096 + 4 * 8 * 128 + 6 * 14336 + 4 * 32) * 4096 // 2


def test_a_deepseek_layer_by_the_token():
    saved = layer_saved(run_of(V3), "moe")
    a_token = {name: size / 4096 for name, size in saved.items()}
    assert a_token["qkv"] == pytest.approx(131e3, rel=0.01)
    latent = sum(size for name, size in a_token.items() if name in
                 ("attention_input", "attention_norm", "q_latent", "kv_latent", "qkv", "attention_output", "log_sum_exp"))
    assert latent == pytest.approx(201e3, rel=0.02)
    assert sum(a_token.values()) == pytest.approx(458e3, rel=0.01)


def test_a_deepseek_first_stage_with_four_virtual_stages():
    run = run_of(V3)
    forward = next(one for one in stage_bytes(run, 0).instants if one.name == "forward")
    assert forward.classes["activations"] == pytest.approx(131e9, rel=0.05)


def test_expert_state_is_not_sharded_where_the_expert_group_has_one_rank():
    run = run_of(V3)
    layer = layer_tensors(run.model, run.sizes, "moe")
    experts = sum(tensor.total for tensor in layer if tensor.group == "expert")
    assert experts == 4 * 3 * 7168 * 2048
    assert 14.5 * experts * 12 == pytest.approx(30.6e9, rel=0.01)
    attention = [t for t in layer if t.name in ("q_down", "q_up", "kv_down", "kv_up", "linear_proj", "q_norm", "kv_norm")]
    assert sum(tensor.total for tensor in attention) == pytest.approx(187.1e6, rel=0.001)
    stage = expect_stages(V3, microbatches=16)[1]
    dense = stage.parameters - 15 * experts
    assert stage.classes["optimizer"] == pytest.approx(12 * 15 * experts + 12 * dense / 64, rel=0.001)


def test_a_recomputed_module_frees_only_what_it_made():
    run = run_of(DENSE)
    saved = layer_saved(run, "dense")

    def freed(*modules):
        options = read_options(DENSE | {"recompute_granularity": "selective", "recompute_modules": list(modules)})
        return kept(saved, run.model, options, index=0).window

    assert freed("core_attn") == 4 * 32 * 4096 // 2
    assert freed("layernorm") == 0
    assert freed("mlp") == 6 * 14336 * 4096 // 2
    moe = run_of(V3)
    options = read_options(V3 | {"recompute_granularity": "selective", "recompute_modules": "moe_act layernorm mla_up_proj"})
    tokens = 4096
    expected = 2 * 2048 * 8 * tokens + 2 * 2 * 7168 * tokens + 2 * 128 * (2 * 192 + 128) * tokens
    assert kept(layer_saved(moe, "moe"), moe.model, options, index=0).window == expected


@pytest.mark.parametrize(("method", "number", "entries", "whole"), [
    ("uniform", 1, 4, 0), ("uniform", 2, 2, 0), ("block", 1, 1, 3), ("block", 4, 4, 0)])
def test_full_recomputation_keeps_one_input_a_group(method, number, entries, whole):
    run = run_of(DENSE, recompute_granularity="full", recompute_method=method, recompute_num_layers=number)
    forward = next(one for one in stage_bytes(run, 0).instants if one.name == "forward")
    layer = sum(layer_saved(run, "dense").values())
    assert forward.classes["activations"] == entries * 2 * 4096 * 4096 // 2 + whole * layer


def test_a_tensor_is_booked_with_the_rest_of_its_last_pages():
    assert booked(1) == 512
    assert booked(50304 * 512 * 2) == 50 * MIB
    assert booked(50304 * 512 * 2, expandable=True) == 50304 * 512 * 2
    assert booked(10 * MIB + 512) == 10 * MIB + 512


@pytest.mark.parametrize(("gpu", "config", "mib"), [
    ("A100", ":4096:8", 68), ("A100", None, 20.25), ("H100", ":4096:8", 96), ("H100", None, 96), ("GB200", None, 48.25)])
def test_workspaces_follow_gpu_and_setting(gpu, config, mib):
    run = run_of(DENSE)
    env = environment({"CUBLAS_WORKSPACE_CONFIG": config} if config else {}, gpu, None)
    assert workspace_bytes(run.model, run.options, env) / MIB == mib


@pytest.mark.parametrize(("gpu", "changes", "bytes_a_weight"), [
    ("H100", {"fp8": "hybrid"}, 2), ("B200", {"fp8": "hybrid"}, 1), ("H100", {"fp8": "hybrid", "fp8_param_gather": True}, 2),
    ("B200", {"fp8": "hybrid", "fp8_recipe": "mxfp8"}, 2 + 1 / 16), ("H100", {}, 0)])
def test_quantised_copies_follow_gpu_and_recipe(gpu, changes, bytes_a_weight):
    weights = [Tensor("fc1", 2**20, gemm=True), Tensor("norm", 4096)]
    env = environment(None, gpu, None)
    assert quantised_weight_bytes([Buffer("dense", 2**20 + 4096, 8, tuple(weights))], read_options(DENSE | changes), env) == bytes_a_weight * 2**20


HYBRID = {"hidden_size": 1024, "num_attention_heads": 16, "group_query_attention": True, "num_query_groups": 8, "seq_length": 1024,
          "micro_batch_size": 4, "padded_vocab_size": 50304, "bf16": True, "world_size": 4, "use_distributed_optimizer": True,
          "max_position_embeddings": 1024, "add_bias_linear": False, "normalization": "RMSNorm", "attention_backend": "fused"}


def test_a_mamba_layer_by_its_tensors():
    run = run_of(HYBRID, hybrid_layer_pattern="M-M*")
    assert run.model.layers == 4
    inner, state, heads = 2048, 8 * 128, 32
    mixer = (2 * inner + 2 * state + heads) * 1024 + (inner + 2 * state) * 5 + 3 * heads + inner + inner * 1024 + 1024
    assert sum(tensor.total for tensor in layer_tensors(run.model, run.sizes, "M")) == mixer
    saved = layer_saved(run, "M")
    assert saved["mamba_projected"] == 2 * (2 * inner + 2 * state + heads) * 4096
    assert "scores" not in saved


def test_a_hybrid_pattern_writes_stages_and_prediction_depths():
    args = HYBRID | {"hybrid_layer_pattern": "M-M*|M-M-/*-/*-", "pipeline_model_parallel_size": 2}
    first, last = expect_stages(args, microbatches=8)
    run = read_run(args, 8, None, None, None)
    sizes = {kind: sum(t.total for t in layer_tensors(run.model, run.sizes, kind)) for kind in "M*-"}
    embedding, positions = 50304 * 1024, 1024 * 1024
    assert first.parameters == 2 * sizes["M"] + sizes["-"] + sizes["*"] + embedding + positions
    depth = 3 * 1024 + 2 * 1024 * 1024 + sizes["*"] + sizes["-"]
    body = 2 * sizes["M"] + 2 * sizes["-"] + 1024 + 2 * embedding + positions
    assert last.parameters == body + 2 * depth
    repeated = expect_stages(args | {"mtp_use_repeated_layer": True}, microbatches=8)[1]
    assert repeated.parameters == body + depth
    assert repeated.peak_classes["activations"] == last.peak_classes["activations"]


def test_a_deepseek_stage_is_about_eight_billion_parameters():
    first = expect_stages(V3 | {"grad_reduce_in_bf16": True}, microbatches=16)[0]
    assert 7.9e9 < first.parameters < 9.1e9
    assert first.classes["weights"] + first.classes["gradients"] == pytest.approx(4 * first.parameters, rel=0.001)
    assert 4 * first.parameters <= 36.4e9
