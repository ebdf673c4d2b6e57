"""Published quantities with known answers: what a rank of these models really holds."""

from __future__ import annotations

import pytest

from analysis.expected import expect_stages
from analysis.expected.chunk import layer_saved
from analysis.expected.expect import read_run
from analysis.expected.recompute import kept
from analysis.expected.stage import stage_bytes

SEVEN_B = {
    "hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32, "group_query_attention": True, "num_query_groups": 8, "kv_channels": 128,
    "ffn_hidden_size": 14336, "swiglu": True, "padded_vocab_size": 128256, "seq_length": 4096, "normalization": "RMSNorm", "add_bias_linear": False,
    "position_embedding_type": "rope", "tensor_model_parallel_size": 2, "sequence_parallel": True, "pipeline_model_parallel_size": 2,
    "world_size": 256, "micro_batch_size": 2, "bf16": True, "use_distributed_optimizer": True, "recompute_granularity": "selective",
    "attention_backend": "fused", "hidden_dropout": 0.0, "attention_dropout": 0.0,
}


def stages(**changes):
    return expect_stages(SEVEN_B | changes, microbatches=8, gpu="H100")


def test_real_stages_hold_their_own_norms_and_the_embedding_once_each():
    first, last = stages()
    block = 16 * (41_943_040 + 176_160_768) // 2 + 128_256 * 4096 // 2
    assert first.parameters == block + 131_072
    assert last.parameters == block + 135_168
    whole = expect_stages(SEVEN_B | {"tensor_model_parallel_size": 1, "sequence_parallel": False, "pipeline_model_parallel_size": 1}, microbatches=8)
    assert whole[0].parameters == 7_504_924_672


def test_weights_gradients_and_optimizer_of_a_first_stage():
    first = stages()[0]
    state = [first.classes[name] / 1e9 for name in ("weights", "gradients", "optimizer")]
    assert state == pytest.approx([4.02, 8.03, 0.38], rel=0.01)
    assert sum(state) == pytest.approx(12.42, rel=0.005)


def test_without_the_distributed_optimizer_a_parameter_costs_eighteen_bytes():
    first = stages(use_distributed_optimizer=False)[0]
    assert sum(first.classes[name] for name in ("weights", "gradients", "optimizer")) == pytest.approx(36.14e9, rel=0.002)


def test_the_last_stage_holds_one_micro_batch_and_the_loss():
    run = read_run(SEVEN_B, 8, None, "H100", None)
    loss = next(instant for instant in stage_bytes(run, 1).instants if instant.name == "loss")
    layers = 16 * sum(layer_saved(run, "dense").values())
    logits = 4096 * 2 * 128256 // 2
    assert loss.classes["activations"] == pytest.approx(layers, rel=0.001)
    assert loss.classes["loss"] == pytest.approx(6 * logits, rel=0.05)
    assert 6 * logits == pytest.approx(3.15e9, rel=0.005)


def test_full_recompute_keeps_one_input_a_layer_and_the_window_of_one_layer():
    run = read_run(SEVEN_B | {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}, 8, None, "H100", None)
    forward = next(instant for instant in stage_bytes(run, 0).instants if instant.name == "forward")
    assert forward.classes["activations"] == pytest.approx(1.11e9, rel=0.05)
    assert kept(layer_saved(run, "dense"), run.model, run.options, index=0).window == pytest.approx(0.54e9, rel=0.01)


@pytest.mark.parametrize(("changes", "bytes_a_parameter"), [
    ({"use_distributed_optimizer": False}, 18),
    ({}, 6 + 12 / 64),
    ({"grad_reduce_in_bf16": True, "use_distributed_optimizer": False}, 20),
    ({"grad_reduce_in_bf16": True}, 4 + 16 / 64),
    ({"bf16": False, "fp16": True, "use_distributed_optimizer": False}, 20),
    ({"bf16": False}, 8 + 8 / 64),
    ({"use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}, 6 + 6 / 64),
])
def test_bytes_a_parameter(changes, bytes_a_parameter):
    first = stages(**changes)[0]
    held = sum(first.classes[name] for name in ("weights", "gradients", "optimizer", "gradient_copy"))
    assert held / first.parameters == pytest.approx(bytes_a_parameter, rel=0.002)


def test_flash_attention_turns_scores_into_outputs_and_sums():
    shape = {"hidden_size": 4096, "num_attention_heads": 32, "num_layers": 1, "seq_length": 8192, "micro_batch_size": 4, "padded_vocab_size": 1024,
             "world_size": 1, "bf16": True, "hidden_dropout": 0.0, "attention_dropout": 0.1}
    flash = layer_saved(read_run(shape | {"attention_backend": "flash"}, 1, None, None, None), "dense")
    unfused = layer_saved(read_run(shape | {"attention_backend": "unfused"}, 1, None, None, None), "dense")
    assert flash["attention_output"] == 2 * 4 * 8192 * 4096
    assert flash["log_sum_exp"] == 4 * 4 * 32 * 8192
    assert unfused["scores"] / 2**30 == pytest.approx(40)


@pytest.mark.parametrize(("moments", "step"), [(("bf16", "bf16"), 0), (("fp32", "fp32"), 0), (("fp16", "fp16"), 8), (("fp8", "bf16"), 8)])
def test_small_moments_are_expanded_for_the_step(moments, step):
    changes = {"use_precision_aware_optimizer": True, "exp_avg_dtype": moments[0], "exp_avg_sq_dtype": moments[1]}
    run = read_run(SEVEN_B | changes, 8, None, "H100", None)
    found = next(instant for instant in stage_bytes(run, 0).instants if instant.name == "optimizer_step")
    assert found.classes["step"] == pytest.approx(step * stages()[0].parameters / 64, rel=0.001)


def test_a_matrix_optimizer_keeps_one_moment_of_matrices():
    adam, muon = stages()[0], stages(optimizer="muon")[0]
    matrices = 16 * (41_943_040 + 176_160_768) // 2
    assert adam.classes["optimizer"] - muon.classes["optimizer"] == pytest.approx(4 * matrices / 64, rel=0.001)


def activations(stage, **changes):
    run = read_run(SEVEN_B | changes, 8, None, "H100", None)
    return next(instant for instant in stage_bytes(run, stage).instants if instant.name == "forward").classes["activations"]


def test_what_if_full_sharding_or_stored_scores():
    sharded = stages(use_megatron_fsdp=True, data_parallel_sharding_strategy="optim_grads_params")[0]
    assert sum(sharded.classes[name] for name in ("weights", "gradients", "optimizer")) == pytest.approx(0.56e9, rel=0.01)
    assert activations(0, attention_backend="unfused", attention_dropout=0.1, recompute_granularity=None) == pytest.approx(103.1e9, rel=0.02)
    assert activations(0, recompute_granularity=None) == pytest.approx(17.21e9, rel=0.07)
    assert activations(1, recompute_granularity=None) == pytest.approx(8.59e9, rel=0.07)


def test_resident_bytes_of_seven_billion_parameters_by_sharding():
    one = SEVEN_B | {"tensor_model_parallel_size": 1, "sequence_parallel": False, "pipeline_model_parallel_size": 1, "world_size": 8,
                     "grad_reduce_in_bf16": True, "use_precision_aware_optimizer": True}
    plain, sharded = (expect_stages(one | {"use_distributed_optimizer": on}, microbatches=1)[0] for on in (False, True))
    held = [sum(row.classes[name] for name in ("weights", "gradients", "optimizer", "gradient_copy")) for row in (plain, sharded)]
    assert held[0] / plain.parameters == pytest.approx(2 + 2 + 2 + 8, rel=0.001)
    assert held[1] / sharded.parameters == pytest.approx(2 + 2 + (2 + 8) / 8, rel=0.001)


@pytest.mark.parametrize(("stage", "after_the_step"), [(0, 2 + 12), (1, 2 + 12 / 64), (2, 2 + 12 / 64), (3, 2 / 64 + 12 / 64)])
def test_deepspeed_shards_by_its_stage_and_keeps_no_gradients(stage, after_the_step):
    first = stages(deepspeed=True, zero_stage=stage, use_distributed_optimizer=False, bf16=False, fp16=True)[0]
    held = sum(first.classes[name] for name in ("weights", "gradients", "optimizer", "gradient_copy"))
    assert held / first.parameters == pytest.approx(after_the_step, rel=0.005)
