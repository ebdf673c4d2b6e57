"""The lines of an origin add up to their class to the byte, each is what its own numbers say, and a dense stage's are those worked out by hand."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import floor
from pathlib import Path

import pytest

from analysis.database import connect
from analysis.expected.expect import read_run
from analysis.expected.instants import ChunkBytes, fullest
from analysis.expected.origin import class_origin
from analysis.expected.origin.activations import moment
from analysis.expected.origin.formulas import MEANING, elements_of, saved_of, values
from analysis.expected.origin.lines import parts_of
from analysis.expected.origin.of_class import _LINES, lines_of
from analysis.expected.stage import stage_bytes
from analysis.overview import environment_of
from analysis.reconcile import expected_of
from analysis.run_facts import arguments_of, configuration
from analysis.theory.inflight import schedule
from ingest.allocator import BLOCK_BYTES, SMALL_BYTES
from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.analysis.expected.test_anchors import DENSE, HYBRID, V3
from tests.analysis.expected.test_instants import ARGS
from tests.analysis.expected.test_invariants import BASE
from tests.analysis.expected.test_worked_examples import SEVEN_B

ROOT = Path(__file__).resolve().parents[3]
LOGS = sorted(path for name in ("train.log", "rank_0.log") for path in (ROOT / "sample_data").glob(f"*/{name}"))
BLOCKS, CUT = "rounding to the allocator's blocks", "each tensor is cut for itself"
STATES = 3
SHARDED = {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"}
CASES = {
    "seven": SEVEN_B, "plain": SEVEN_B | {"use_distributed_optimizer": False}, "fp16": SEVEN_B | {"bf16": False, "fp16": True},
    "fp32": SEVEN_B | {"bf16": False},
    "reduce in bf16": SEVEN_B | {"grad_reduce_in_bf16": True}, "muon": SEVEN_B | {"optimizer": "muon"}, "sgd": SEVEN_B | {"optimizer": "sgd"},
    "precise": SEVEN_B | {"use_precision_aware_optimizer": True, "exp_avg_dtype": "fp8", "exp_avg_sq_dtype": "bf16"},
    "short": SEVEN_B | {"seq_length": 64, "micro_batch_size": 1, "world_size": 4, "use_precision_aware_optimizer": True, "exp_avg_dtype": "fp8",
                        "exp_avg_sq_dtype": "fp8"},
    "offloaded": SEVEN_B | {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 0.3},
    "sharded": SEVEN_B | SHARDED, "sharded with ends": SEVEN_B | SHARDED | {"overlap_param_gather": True},
    "sharded in double buffers": SEVEN_B | SHARDED | {"fsdp_double_buffer": True},
    "sharded by torch": SEVEN_B | {"use_torch_fsdp2": True, "pipeline_model_parallel_size": 1},
    **{f"sharded in {recipe}": V3 | SHARDED | {
        "overlap_param_gather": True, "fp8": "e4m3", "fp8_recipe": recipe, "fp8_param_gather": True} for recipe in ("tensorwise", "mxfp8")},
    "sharded gradients": SEVEN_B | {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"},
    "offloaded activations": V3 | {"fine_grained_activation_offloading": True, "activation_offload_fraction": 0.7, "recompute_modules": ["moe_act"],
                                   "recompute_granularity": "selective", "offload_modules": ["core_attn", "attn_proj", "expert_fc1", "moe_act"]},
    "offloaded norms": SEVEN_B | {"fine_grained_activation_offloading": True, "offload_modules": "[attn_norm mlp_norm qkv_linear]"},
    "full": SEVEN_B | {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 4},
    "block": SEVEN_B | {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 3},
    "virtual": SEVEN_B | {"virtual_pipeline_model_parallel_size": 4}, "dropout": SEVEN_B | {"hidden_dropout": 0.1, "attention_dropout": 0.1},
    "scores": SEVEN_B | {"attention_backend": "unfused", "recompute_granularity": None, "sequence_parallel": False},
    "deferred": SEVEN_B | {"defer_embedding_wgrad_compute": True, "wgrad_deferral_limit": 3}, "te loss": SEVEN_B | {
        "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"},
    "not fused": SEVEN_B | {"gradient_accumulation_fusion": False}, "local": SEVEN_B | {"transformer_impl": "local"},
    "legacy": SEVEN_B | {"DDP_impl": "local", "use_distributed_optimizer": False}, "fp8": V3 | {"fp8": "hybrid"},
    "mxfp8": V3 | {"fp8": "e4m3", "fp8_recipe": "mxfp8", "fp8_param_gather": True}, "v3": V3,
    "dense": DENSE, "base": BASE | {"world_size": 8}, "args": ARGS,
    "hybrid": HYBRID | {"num_layers": 8, "hybrid_layer_pattern": "M-M*|M-M-/*-/*-", "pipeline_model_parallel_size": 2}, "allgather": V3 | {
        "moe_token_dispatcher_type": "allgather", "recompute_granularity": "selective", "recompute_modules": ["moe_act", "mla_up_proj"]},
    "zero 0": SEVEN_B | {"deepspeed": True, "zero_stage": 0, "use_distributed_optimizer": False, "bf16": False, "fp16": True},
    "zero 3": SEVEN_B | {"deepspeed": True, "zero_stage": 3, "use_distributed_optimizer": False, "bf16": False, "fp16": True},
    **{f"invariant {tp} {pp} {changes}": BASE | {"tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp, "world_size": tp * pp * 2,
                                               **changes}
       for (tp, pp), changes in product(((1, 1), (2, 4)), (
           {"use_distributed_optimizer": True}, {"num_experts": 8, "expert_model_parallel_size": 2}, {"recompute_granularity": "full"},
           {"multi_latent_attention": True, "q_lora_rank": 64}, {"fp8": "hybrid"}))},
}


@cache
def worth(numbers: str) -> int:
    """What a line's numbers come to, rounded down, worked out here."""
    plain = re.sub(r" of chunk \d+", "", numbers).replace(",", "").replace("·", "*")
    assert re.fullmatch(r"[\d.+*/() -]+", plain), numbers
    return floor(eval(re.sub(r"\d+(\.\d+)?", r"Fraction('\g<0>')", plain), {"Fraction": Fraction}))


def add_up(expected):
    """Every class of every stage after a step, at the peak, and at each instant that might have been the peak."""
    seen = set()
    for stage, row in expected.stages.items():
        parts = parts_of(expected, stage)
        tensors = STATES * sum(tensor.count for each in parts.tensors for tensor in each)
        for name in {*row.classes, *row.peak_classes}:
            found = class_origin(expected, stage, name)
            assert found.instant == row.peak_instant
            adds_up(found.after_step, row.classes.get(name, 0), tensors, parts.run)
            adds_up(found.at_peak, row.peak_classes.get(name, 0), tensors, parts.run)
        for instant in stage_bytes(parts.run, stage).instants:
            for name, size in instant.classes.items():
                if size:
                    adds_up(lines_of(replace(parts, instant=instant.name), name), size, tensors, parts.run)
                    seen.add((instant.name, name))
    return seen


def adds_up(lines, size, tensors, run):
    assert sum(line.bytes for line in lines) == size, lines
    for line in lines:
        holds(line, tensors, BLOCK_BYTES if run.env.expandable else SMALL_BYTES)


def holds(line, tensors, most):
    """A line is the product it shows; rounding alone has none, and is less than what one tensor may have, for each."""
    if line.what == BLOCKS:
        assert 0 < line.bytes < tensors * most, line
    elif line.what == CUT:
        assert -tensors < line.bytes < tensors, line
    else:
        assert line.symbols, line
        assert worth(line.numbers) in (line.bytes, line.bytes - 1, line.bytes + 1), line


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    lake = Lake(tmp_path_factory.mktemp("origin") / "lake")
    ingest(LOGS, lake)
    connection = connect(lake)
    return [expected_of(arguments_of(connection, run, index), configuration(connection, run, index).num_microbatches,
                        environment_of(connection, run, index), configuration(connection, run, index).gpu_name)
            for run, index in connection.execute("SELECT run, run_index FROM run_attempts ORDER BY ALL").fetchall()]


def test_every_class_of_every_sample_adds_up(samples):
    assert len(samples) == len(LOGS)
    for expected in samples:
        seen = {name for _, name in add_up(expected)}
        assert {"weights", "gradients", "activations", "running_layer", "loss", "batch", "workspaces"} <= seen


@pytest.mark.parametrize(("case", "expandable"), [
    *((case, False) for case in CASES), *((case, True) for case in ("seven", "plain", "virtual", "v3"))])
def test_every_class_of_a_case_adds_up(case, expandable):
    expected = expected_of(CASES[case], 16, {"PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable}"}, "H100")
    assert expected.stages, expected.reason
    add_up(expected)


def test_the_cases_together_have_every_class():
    found = [expected_of(args, 16, {}, "H100") for args in CASES.values()]
    names = {name for one in found for row in one.stages.values() for name, size in (*row.classes.items(), *row.peak_classes.items()) if size}
    assert names == {*_LINES}


def test_a_dense_first_stage_as_worked_out_by_hand():
    expected = expected_of(SEVEN_B, 8, {}, "H100")
    weights = {line.what: line.bytes for line in class_origin(expected, 0, "weights").after_step}
    assert weights == {"embedding": 2 * 64_128 * 4096, "input norm": 2 * 16 * 4096, "pre mlp norm": 2 * 16 * 4096,
                       "linear qkv": 2 * 16 * (16 + 2 * 4) * 128 * 4096, "linear proj": 2 * 16 * 16 * 128 * 4096,
                       "mlp fc1": 2 * 16 * 2 * 7168 * 4096, "mlp fc2": 2 * 16 * 7168 * 4096, BLOCKS: 786_432}
    parameters = 2_007_629_824
    assert [line.bytes for line in class_origin(expected, 0, "gradients").at_peak] == [4 * parameters]
    assert {line.what: line.bytes for line in class_origin(expected, 0, "optimizer").after_step} == dict.fromkeys(
        ("master weights of the parameters", "first moments of the parameters", "second moments of the parameters"), 4 * parameters // 64)
    stream = 2 * 16 * (2 * 4096 * 4096)
    sums = 2 * 16 * 4 * 16 * 8192
    kept = {"attention input": stream, "attention norm": stream, "attention norm statistics": 2 * 16 * 4 * 4096, "qkv": 2 * 16 * 2 * 24 * 128 * 8192,
            "log sum exp": sums, "attention output": 2 * 16 * 2 * 16 * 128 * 8192, "mlp input": stream, "mlp norm": stream,
            "mlp norm statistics": 2 * 16 * 4 * 4096, "mlp fc1": 2 * 16 * 2 * 2 * 7168 * 8192, "mlp act": 2 * 16 * 2 * 7168 * 8192,
            "recomputed (core_attn)": -sums}
    shown = class_origin(expected, 0, "activations")
    assert shown.instant == "backward"
    assert not shown.after_step
    assert {line.what: line.bytes for line in shown.at_peak} == {f"dense layer, {name}": size for name, size in kept.items()}
    assert next(line.numbers for line in shown.at_peak if line.what.endswith("qkv")) == "2 · 16 · 2 · (32 · 128 / 2 + 2 · 8 / 2 · 128) · 8,192"


def test_the_loss_of_a_dense_last_stage_as_worked_out_by_hand():
    found = class_origin(expected_of(SEVEN_B, 8, {}, "H100"), 1, "loss")
    assert [line.bytes for line in found.at_peak] == [2 * 2 * 4096 * 4096, (8 + 1) * 8192, 4 * 8192 * 64_128, 2 * 8192 * 64_128]


def test_the_chunks_alive_are_named_where_there_are_several():
    expected = expected_of(CASES["virtual"], 8, {}, "H100")
    line = next(one for one in class_origin(expected, 0, "activations").at_peak if one.what == "dense layer, qkv")
    alive = [int(count) for count in re.findall(r"(\d+) · 4 of chunk \d", line.numbers)]
    assert sum(alive) == 2 * (2 - 1) + (4 - 1) * 2 + 1
    assert line.numbers.startswith("(")
    assert line.bytes == sum(alive) * 4 * 50_331_648


@pytest.mark.parametrize("case", ["seven", "v3", "hybrid", "scores", "dropout", "base", "fp8", "full", "legacy"])
def test_every_tensor_has_its_formula(case):
    expected = expected_of(CASES[case], 16, {}, "H100")
    lines = [line for stage in expected.stages for name in ("weights", "activations")
             for one in [class_origin(expected, stage, name)] for line in (*one.after_step, *one.at_peak)]
    made = [line for line in lines if "recomputed (" not in line.what and "padding" not in line.what and line.symbols]
    assert not {line.what for line in made if {"elements", "bytes"} & set(line.symbols.split(" · "))}
    used = {name for line in made for name in re.findall(r"[A-Za-z]+\d?", line.symbols)}
    assert "h" in used
    assert used <= {"layers", *MEANING}


def test_a_formula_that_does_not_come_to_the_size_is_not_shown():
    known = values(read_run(SEVEN_B, 8, {}, "H100", None))
    assert elements_of("mlp_fc1", 2 * 7168 * 4096, known) == ("G · f / t · h", "2 · 14,336 / 2 · 4,096")
    assert elements_of("mlp_fc1", 2 * 7168 * 4096 + 1, known) == ("elements", "58,720,257")
    assert saved_of("qkv", 17, known) == ("bytes", "17")


def test_latent_attention_is_not_told_by_head_widths_it_does_not_have():
    line = next(one for one in class_origin(expected_of(V3, 16, {}, "H100"), 1, "activations").at_peak if one.what == "MoE layer, attention output")
    assert "a / t · dv · S" in line.symbols


def test_the_mix_alive_is_found_in_any_schedule():
    """The walk comes by the fullest moment that the ledger took, whatever the chunks keep."""
    chance, known = random.Random(7), parts_of(expected_of(SEVEN_B, 8, {}, "H100"), 0)
    for _ in range(100):
        pp, chunks = chance.choice([2, 3, 4]), chance.choice([1, 2, 3])
        plan = schedule(pp, chunks, pp * chance.randint(1, 12), pp)
        sizes = tuple(ChunkBytes(chance.randint(0, 99), chance.randint(0, 50), chance.choice([0, 30])) for _ in range(chunks))
        for stage, instant in product(range(pp), ("forward", "backward")):
            moments = fullest(plan, stage, sizes)
            parts = replace(known, run=replace(known.run, plan=plan), cells=known.cells * chunks, alive=sizes, moments=moments,
                            stage=stage, instant=instant)
            counts, chunk = moment(parts)
            alive, besides = getattr(moments, instant)
            assert sum(count * size.saved for count, size in zip(counts, sizes, strict=True)) == alive
            assert instant == "forward" or sizes[chunk].window == besides


def test_what_this_ledger_did_not_count_has_no_lines():
    found = class_origin(expected_of(SEVEN_B, 8, {}, "H100"), 0, "communication")
    assert not found.after_step
    assert not found.at_peak
