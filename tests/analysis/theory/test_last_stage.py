"""The last stage against its neighbour: expected differences worked out by hand, verdicts on made stages, and two real logs."""

from __future__ import annotations

import pytest

from analysis.database import connect
from analysis.overview import overview
from analysis.theory.arguments import native_args
from analysis.theory.formula_arguments import formula_arguments
from analysis.theory.last_stage import Measured, last_stage
from analysis.theory.resident import resident_bytes
from analysis.theory.saved import layer_saved, stage_saved
from analysis.theory.stages import stage_layout
from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.conftest import ROOT

MIB, GIB = 2**20, 2**30
LEGACY = {
    "hidden_size": 1024, "num_layers": 16, "num_attention_heads": 16, "padded_vocab_size": 51200, "seq_length": 512, "micro_batch_size": 2,
    "world_size": 16, "tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 4, "max_position_embeddings": 512, "fp16": True,
    "bf16": False, "checkpoint_activations": True, "checkpoint_num_layers": 1, "accumulate_allreduce_grads_in_fp32": False, "DDP_impl": "local",
}
WEIGHT, LAYER_INPUT, LOGITS = 1024 * 51200 // 4, 2 * 1024 * 1024, 1024 * 51200 // 4
"""Elements of the output weight on a rank, bytes a layer's input takes (2 h a token), elements of the logits."""
V3 = {
    "hidden_size": 7168, "num_layers": 61, "num_attention_heads": 128, "seq_length": 4096, "micro_batch_size": 1, "padded_vocab_size": 129280,
    "world_size": 256, "pipeline_model_parallel_size": 1, "multi_latent_attention": True, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128, "num_experts": 256, "moe_ffn_hidden_size": 2048, "moe_router_topk": 8,
    "swiglu": True, "moe_shared_expert_intermediate_size": 2048, "expert_model_parallel_size": 64, "ffn_hidden_size": 18432, "hidden_dropout": 0.0,
}


def stages(surplus, *, neighbour=2, spread=0):
    """A neighbour at 8 GiB, and a last stage `surplus` bytes above it."""
    base = 8 * 2**30
    return [Measured(neighbour, base - spread, base, base - 2**30, None), Measured(3, base + surplus - spread, base + surplus, base - 2**30, None)]


@pytest.mark.parametrize(("args", "idle", "logged"), [
    ({"bf16": True, "world_size": 8}, 18, 18),
    ({"bf16": True, "use_distributed_optimizer": True, "world_size": 8}, 6 + 12 / 8, 6 + 12 / 8),
    ({"bf16": True, "use_distributed_optimizer": True, "world_size": 8, "grad_reduce_in_bf16": True}, 4 + 12 / 8, 4 + 16 / 8),
    ({"fp16": True, "bf16": False, "accumulate_allreduce_grads_in_fp32": False, "world_size": 8}, 16, 20),
    ({"fp16": True, "world_size": 8}, 16, 20),
    ({"bf16": False, "fp16": False, "world_size": 4, "use_distributed_optimizer": True}, 10, 10),
    ({"bf16": True, "use_distributed_optimizer": True, "world_size": 8, "use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16",
      "exp_avg_sq_dtype": "bf16"}, 6 + 6 / 8, 6 + 6 / 8),
    ({"bf16": True, "use_distributed_optimizer": True, "data_parallel_size": 4, "context_parallel_size": 2}, 6 + 12 / 8, 6 + 12 / 8),
    ({"bf16": True, "use_distributed_optimizer": True, "world_size": 8, "num_distributed_optimizer_instances": 2}, 6 + 12 / 4, 6 + 12 / 4),
    ({"bf16": True, "use_distributed_optimizer": True, "world_size": 8, "optimizer_cpu_offload": True}, 6, 6),
])
def test_bytes_a_parameter(args, idle, logged):
    assert resident_bytes(args) == (idle, logged)


def test_a_dense_layer_worked_out(llama_like):
    a, _ = formula_arguments(llama_like)
    low, high = layer_saved({**native_args(llama_like), "hidden_dropout": 0.0}, a, moe=False)
    tokens = 8192 // 2
    assert low == (8 * 4096 + 4 * 4096 + 4 * 1024 + 6 * 14336) * tokens
    assert high - low == (2 * (4096 + 1024) + 2 * 4096) * tokens
    plain, _ = layer_saved({**native_args(llama_like), "hidden_dropout": 0.0, "recompute_granularity": None}, a, moe=False)
    assert plain - low == 4 * 32 * tokens


def test_the_moe_layer_of_a_published_model():
    a, _ = formula_arguments(V3)
    low, high = layer_saved(native_args(V3), a, moe=True)
    assert low / 4096 == pytest.approx(458e3, rel=0.02)
    assert high / 4096 == pytest.approx(475e3, rel=0.03)


def test_what_full_recomputation_keeps_of_a_stage():
    a, _ = formula_arguments(LEGACY)
    layout = stage_layout(LEGACY)
    assert stage_saved(LEGACY, a, layout, 2, 8) == (2 * 4 * LAYER_INPUT, 2 * 5 * LAYER_INPUT)
    assert stage_saved(LEGACY, a, layout, 0, 3)[0] == 3 * 4 * LAYER_INPUT
    uniform = {**LEGACY, "checkpoint_num_layers": 4}
    assert stage_saved(uniform, a, layout, 3, 8)[0] == LAYER_INPUT
    block = {**LEGACY, "checkpoint_activations": None, "recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 3}
    assert stage_saved(block, a, layout, 3, 8)[0] == 3 * LAYER_INPUT + layer_saved(block, a, moe=False)[0]


def test_output_weight_and_logits_explain_a_surplus():
    weights, in_flight = 20 * WEIGHT, 4 * LAYER_INPUT
    logits = 6 * LOGITS + 9 * 1024 + 2 * LAYER_INPUT
    found = last_stage(LEGACY, stages(weights + logits - in_flight), microbatches=8)
    parts = {part.name: (part.low_bytes, part.high_bytes) for part in found.parts}
    assert parts["output_weight"] == (16 * WEIGHT, 20 * WEIGHT)
    assert parts["in_flight_activations"] == (-5 * LAYER_INPUT, -4 * LAYER_INPUT)
    assert "output_weight_gradient" not in parts
    assert (found.predicted_peak_low_bytes, found.predicted_peak_high_bytes) == (logits, logits)
    assert (found.surplus_low_bytes, found.surplus_high_bytes) == (weights + logits, weights + logits + LAYER_INPUT)
    assert (found.verdict, found.stage, found.neighbour_stage) == ("explained", 3, 2)
    assert "output weight with its optimizer state is 0.20 to 0.24 GiB, logits and loss 0.08 GiB" in found.reason


@pytest.mark.parametrize(("surplus", "verdict", "word"), [
    (450 * MIB, "partly", "above"), (160 * MIB, "partly", "short of"), (900 * MIB, "not_explained", "above"),
    (-50 * MIB, "not_explained", "short of"),
])
def test_what_the_head_does_not_explain(surplus, verdict, word):
    found = last_stage(LEGACY, stages(surplus), microbatches=8)
    assert (found.verdict, found.difference_bytes) == (verdict, surplus)
    assert f"GiB {word} the predicted range" in found.reason


def test_the_gradient_of_the_output_weight_stands_alone_without_fusion():
    args = {**LEGACY, "micro_batch_size": 1, "seq_length": 256, "max_position_embeddings": 256}
    parts = {part.name: part.high_bytes for part in last_stage(args, stages(0), microbatches=8).parts}
    logits = 256 * 51200 // 4
    assert parts["output_weight_gradient"] == 2 * logits + 2 * WEIGHT - 6 * logits
    fused = last_stage({**args, "gradient_accumulation_fusion": True}, stages(0), microbatches=8)
    assert "output_weight_gradient" not in {part.name for part in fused.parts}


def test_parameters_of_the_log_come_before_the_formula():
    two = [Measured(2, 2**33, 2**33, 2**32, 5_000_000), Measured(3, 2**33, 2**33, 2**32 + 20 * WEIGHT, 5_000_000 + WEIGHT + 1024)]
    found = last_stage(LEGACY, two, microbatches=8)
    parts = {part.name: (part.low_bytes, part.high_bytes) for part in found.parts}
    assert parts["other_weights"] == (16 * 1024, 20 * 1024)
    assert (found.steady_difference_bytes, found.steady_low_bytes, found.steady_high_bytes) == (20 * WEIGHT, *[20 * (WEIGHT + 1024)] * 2)
    assert "parameters of both stages as the log prints them" in found.assumptions


def test_uneven_stages_and_the_first_stage_as_neighbour(llama_like):
    uneven = {**LEGACY, "decoder_last_pipeline_num_layers": 1, "num_layers": 13}
    parts = {part.name: part for part in last_stage(uneven, stages(0), microbatches=8).parts}
    per_layer = 12 * 1024 * 1024 // 4 + 4 * 1024
    assert parts["other_weights"].low_bytes == -3 * per_layer * 20
    assert parts["in_flight_activations"].high_bytes == LAYER_INPUT - 2 * 4 * LAYER_INPUT
    two = [Measured(0, 2**34, 2**34), Measured(1, 2**34, 2**34)]
    first = {part.name: part for part in last_stage(llama_like, two, microbatches=8).parts}
    assert first["other_weights"].low_bytes == round(-(4096 * 128256 // 2) * (6 + 12 / 64))


@pytest.mark.parametrize(("change", "measured", "reason"), [
    ({"pipeline_model_parallel_size": 1}, stages(0), "PP is 1"),
    ({}, [], "the last stage (3)'s peak and the neighbouring stage's peak not in the artifacts"),
    ({}, stages(0)[:1], "the last stage (3)'s peak not in the artifacts"),
    ({"hidden_size": None}, stages(0), "argument hidden_size is missing"),
    ({"padded_vocab_size": "None"}, stages(0), "argument padded_vocab_size is missing"),
    ({"pipeline_model_parallel_size": "many"}, stages(0), "argument pipeline_model_parallel_size is 'many'"),
    ({"num_layers": 17}, stages(0), "does not divide num_layers 17"),
])
def test_not_measurable_says_why(change, measured, reason):
    found = last_stage({**LEGACY, **change}, measured, microbatches=8)
    assert found.verdict == "not_measurable"
    assert reason in found.reason


def test_the_measured_difference_is_told_although_the_head_cannot_be_sized():
    found = last_stage({"pipeline_model_parallel_size": "4"}, stages(GIB))
    assert (found.verdict, found.stage, found.neighbour_stage, found.difference_bytes) == ("not_measurable", 3, 2, GIB)
    assert "hidden_size is missing" in found.reason
    assert "the last stage's peak is +1.00 GiB over stage 2's" in found.reason
    assert last_stage({}, stages(GIB)).stage is None
    assert last_stage({"pipeline_model_parallel_size": 5}, stages(GIB)).difference_bytes is None


def test_stages_that_differ_by_more_than_can_be_counted_are_not_judged(llama_like):
    found = last_stage({**llama_like, "micro_batch_size": 16, "recompute_granularity": None}, [Measured(0, 2**36, 2**38), Measured(1, 2**36, 2**38)])
    assert found.verdict == "not_measurable"
    assert "not known that closely" in found.reason


def test_another_stage_stands_for_a_neighbour_that_was_not_measured():
    found = last_stage(LEGACY, stages(0, neighbour=1), microbatches=8)
    assert found.neighbour_stage == 1
    assert "stage 2 was not measured; stage 1 stands for it" in found.assumptions


@pytest.mark.parametrize(("name", "stage", "weight_gib", "steady_gib"), [("dense_tp4_pp8", 7, 1.69, 1.69), ("dense_tp4_pp32", 31, 2.90, 2.90)])
def test_real_logs_whose_last_stage_stands_out(shared, tmp_path, name, stage, weight_gib, steady_gib):
    lake = Lake(tmp_path / "lake")
    ingest([shared / f"data/logs/real/{name}.out.gz"], lake, run=name)
    found = overview(connect(lake), name).logits
    assert (found.verdict, found.stage, found.neighbour_stage) == ("explained", stage, stage - 1)
    parts = {part.name: part for part in found.parts}
    assert parts["output_weight"].high_bytes / 2**30 == pytest.approx(weight_gib, abs=0.005)
    assert found.steady_difference_bytes / 2**30 == pytest.approx(steady_gib, abs=0.005)
    assert found.steady_low_bytes == pytest.approx(found.steady_difference_bytes, rel=0.001)
    assert found.predicted_peak_high_bytes < 0.15 * found.surplus_high_bytes
    page = (ROOT / "docs/methods/logits.md").read_text()
    shown = [f"{found.measured_last_bytes / GIB:.2f}", f"{found.difference_bytes / GIB:.2f}",
             span(found.surplus_low_bytes, found.surplus_high_bytes), span(parts["output_weight"].low_bytes, parts["output_weight"].high_bytes),
             span(found.predicted_peak_low_bytes, found.predicted_peak_high_bytes), f"{found.steady_difference_bytes / GIB:.2f}",
             f"{found.steady_high_bytes / GIB:.2f}", found.verdict]
    assert f"PP {stage + 1} | {' | '.join(shown)} |" in page


def span(low, high):
    return f"{low / GIB:.2f} to {high / GIB:.2f}"
