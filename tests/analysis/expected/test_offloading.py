"""What fine-grained activation offloading frees: by hand for a dense model, and beside a run of Megatron-LM's own test of it."""

from __future__ import annotations

import pytest

from analysis.expected import expect_stages
from analysis.expected.expect import read_run
from analysis.expected.stage import stage_bytes

TOKENS, HIDDEN, LAYERS = 2 * 2048, 2048, 4
DENSE = {"hidden_size": HIDDEN, "num_layers": LAYERS, "num_attention_heads": 16, "seq_length": 2048, "micro_batch_size": 2,
         "padded_vocab_size": 32000, "position_embedding_type": "rope", "bf16": True, "world_size": 1, "attention_backend": "fused",
         "hidden_dropout": 0.0, "attention_dropout": 0.0}
ATTENTION = {"fine_grained_activation_offloading": True, "offload_modules": ["core_attn", "attn_proj"]}
QKV, OUTPUT = 2 * 3 * HIDDEN * TOKENS, 2 * HIDDEN * TOKENS
# moe/gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_fine_grained_offloading of Megatron-LM
MEASURED = {
    "num_layers": 15, "pipeline_model_parallel_layout": "Et*3|(tt|)*6mL", "moe_layer_freq": [0] * 3 + [1] * 12, "hidden_size": 1024,
    "ffn_hidden_size": 4096, "num_attention_heads": 32, "kv_channels": 128, "swiglu": True, "normalization": "RMSNorm", "add_bias_linear": False,
    "padded_vocab_size": 51712, "untie_embeddings_and_output_weights": True, "multi_latent_attention": True, "mtp_num_layers": 1,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128, "rotary_scaling_factor": 40,
    "qk_layernorm": True, "num_experts": 32, "moe_ffn_hidden_size": 1024, "moe_shared_expert_intermediate_size": 1024, "moe_router_topk": 4,
    "moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall", "moe_permute_fusion": True, "moe_router_dtype": "fp32", "seq_length": 4096,
    "micro_batch_size": 1, "position_embedding_type": "rope", "bf16": True, "world_size": 8, "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 4, "expert_model_parallel_size": 4, "expert_tensor_parallel_size": 1,
    "sequence_parallel": True, "use_distributed_optimizer": True, "attention_backend": "unfused", "attention_dropout": 0.0, "hidden_dropout": 0.0,
    "recompute_granularity": "selective", "recompute_modules": "[layernorm mla_up_proj mlp moe_act]", "overlap_moe_expert_parallel_comm": True,
    "fine_grained_activation_offloading": True, "offload_modules": "[expert_fc1 moe_act attn_norm mlp_norm qkv_linear core_attn attn_proj]"}


def instants(**changes):
    return {one.name: one.classes for one in stage_bytes(read_run(DENSE | changes, 1, None, "H100", None), 0).instants}


def freed(**changes):
    """Bytes of activations that the changes take off the end of a forward."""
    return instants()["forward"]["activations"] - instants(**changes)["forward"]["activations"]


def test_a_module_takes_what_it_saves_from_every_layer():
    assert freed(**ATTENTION) == LAYERS * (QKV + OUTPUT)
    assert freed(**ATTENTION | {"offload_modules": "[attn_norm mlp_norm]"}) == LAYERS * 2 * OUTPUT
    assert freed(offload_modules=["core_attn"]) == 0, "modules are named, and nothing is switched on"


def test_what_is_small_stays_and_a_share_may_stay():
    assert freed(**ATTENTION, min_offloaded_tensor_size=HIDDEN * TOKENS + 1) == LAYERS * QKV
    assert freed(**ATTENTION, activation_offload_fraction=0.5) == LAYERS * (QKV + OUTPUT) // 2


def test_a_backward_brings_a_layer_back_and_the_loss_finds_the_last_one_still_there():
    plain, moved = instants(), instants(**ATTENTION)
    assert moved["backward"]["running_layer"] - plain["backward"]["running_layer"] == QKV + OUTPUT
    assert moved["loss"]["loss"] - plain["loss"]["loss"] == QKV + OUTPUT


def test_what_is_recomputed_is_not_moved():
    recomputed = {"recompute_granularity": "selective", "recompute_modules": ["core_attn"], "attention_backend": "unfused"}
    scores = 2 * 16 * 2048 * TOKENS
    assert instants(attention_backend="unfused")["forward"]["activations"] - instants(**recomputed)["forward"]["activations"] == LAYERS * scores
    assert instants(**recomputed)["forward"]["activations"] - instants(**recomputed, **ATTENTION)["forward"]["activations"] == LAYERS * (QKV + OUTPUT)
    full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    assert instants(**full) == instants(**full, **ATTENTION)


def test_a_measured_run_lies_above_by_copies_on_their_way():
    """Its golden values: 8,217,088,512 bytes in its second step to 8,320,577,024 in its last."""
    env = {"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    row = expect_stages(MEASURED, microbatches=4, env=env, gpu="H100")[-1]
    assert row.steady_allocated_bytes == pytest.approx(5_283_603_968, rel=0.02)
    assert 0.85 * 8_217_088_512 < row.peak_allocated_bytes < 8_217_088_512 < row.peak_high_bytes
    assert any("still on their way" in said for said in row.assumptions)
    kept = expect_stages(MEASURED | {"fine_grained_activation_offloading": False}, microbatches=4, env=env, gpu="H100")[-1]
    assert kept.peak_allocated_bytes > 1.9 * 8_217_088_512
