"""Argument values as sources print them, list expressions without evaluation, contradictions, and no traceback for any value."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.theory.arguments import native, native_args, padded_vocabulary
from analysis.theory.branch import branch_card
from analysis.theory.consistency import contradictions
from analysis.theory.formula_arguments import FormulaArguments
from analysis.theory.last_stage import Measured, last_stage
from analysis.theory.megatron import report_args
from analysis.theory.stage_theory import stage_theory
from ingest.errors import LedgerError
from tests.analysis.theory.conftest import LLAMA_LIKE
from tests.analysis.theory.test_branch import SLURM_TEXT


@pytest.mark.parametrize(("printed", "value"), [
    ("None", None), ("True", True), ("False", False), ("8", 8), ("-1", -1), ("1e-08", 1e-08), ("0.0003", 0.0003),
    ("torch.bfloat16", "torch.bfloat16"), ("AttnBackend.flash", "AttnBackend.flash"), ("[0, 1, 1]", [0, 1, 1]), ("['0.3', '/a']", ["0.3", "/a"]),
    ("[]", []), ("([0]*3+[1]*4)", [0, 0, 0, 1, 1, 1, 1]),
    ("[1]*2+[0]", [1, 1, 0]), ("(1, 2)", [1, 2]), ("RMSNorm", "RMSNorm"), ("", ""), ("[", "["), ("[-1]", [-1]), (7, 7), (None, None),
    ("[__import__('os')]", "[__import__('os')]"), ("[0]*10**9", "[0]*10**9"),
    ("[0]*999999999", "[0]*999999999"), ("(((", "((("), ("2024-01", "2024-01"),
])
def test_one_value(printed, value):
    assert native(printed) == value


def test_names_of_other_spellings():
    assert native_args({"--num-layers": "4", "disable_bias_linear": "True", "decoder-first-pipeline-num-layers": 3}) == {
        "num_layers": 4, "add_bias_linear": False, "decoder_first_pipeline_num_layers": 3}
    assert native_args({"--sequence-parallel": "", "--recompute-activations": ""}) == {
        "sequence_parallel": True, "recompute_activations": True, "recompute_granularity": "selective"}
    assert native_args({"recompute_activations": True, "recompute_granularity": "full"})["recompute_granularity"] == "full"
    assert native_args({"disable_bias_linear": False})["disable_bias_linear"] is False


def test_vocabulary_is_padded_as_megatron_does():
    assert padded_vocabulary({"vocab_size": 50257, "tensor_model_parallel_size": 4}) == 50688
    assert padded_vocabulary({"vocab_size": 32000, "make_vocab_size_divisible_by": 1}) == 32000
    assert padded_vocabulary({"vocab_size": 50257, "padded_vocab_size": 51200}) == 51200
    assert padded_vocabulary({}) is None


@pytest.mark.parametrize(("change", "argument", "fits"), [
    ({"tensor_model_parallel_size": 3}, "tensor_model_parallel_size", "2, 4 would fit"),
    ({"num_layers": 31}, "pipeline_model_parallel_size", "1, 31"),
    ({"num_experts": 8, "expert_model_parallel_size": 16}, "expert_model_parallel_size", "a divisor of 8 would fit"),
    ({"expert_model_parallel_size": 2}, "expert_model_parallel_size", "1 would fit without experts"),
    ({"num_experts": 12, "expert_model_parallel_size": 8}, "expert_model_parallel_size", "a divisor of 12 would fit"),
    ({"num_experts": 4, "moe_router_topk": 5}, "moe_router_topk", "at most num_experts 4 would fit"),
    ({"tensor_model_parallel_size": 64}, "tensor_model_parallel_size", "32 would fit"),
    ({"tensor_model_parallel_size": 4, "num_query_groups": 6}, "num_query_groups", "a divisor of tensor_model_parallel_size 4 would fit"),
    ({"kv_channels": None, "hidden_size": 4100}, "hidden_size", "a multiple of num_attention_heads 32, or kv_channels beside it, would fit"),
    ({"fp16": True, "bf16": True}, "fp16", "one of them alone would fit"),
    ({"order": "pp-xx"}, "order", "such as tp-cp-ep-dp-pp"),
    ({"world_size": 255}, "world_size", "a multiple of TP x PP x CP = 4"),
    ({"multi_latent_attention": True}, "group_query_attention", "False would fit"),
    ({"num_experts": 8, "moe_layer_freq": [1, 0]}, "moe_layer_freq", "one entry for each of num_layers 32"),
    ({"pipeline_model_parallel_layout": "Ett|ttL"}, "pipeline_model_parallel_layout", "num_layers 32 would fit"),
])
def test_contradictions_name_argument_value_and_what_fits(change, argument, fits):
    found = [one for one in contradictions({**LLAMA_LIKE, **change}) if one.argument == argument]
    assert found
    assert fits in found[0].sentence
    assert argument in found[0].sentence


def test_a_consistent_set_has_none():
    assert contradictions(LLAMA_LIKE) == []
    assert contradictions({}) == []


@pytest.mark.parametrize("change", [
    {"tensor_model_parallel_size": 16, "num_query_groups": 8}, {"tensor_model_parallel_size": 2, "num_query_groups": 8},
    {"group_query_attention": False, "num_query_groups": 5}, {"num_experts": 8, "moe_router_topk": 8}, {"num_experts": 1},
    {"kv_channels": 100, "hidden_size": 4100}, {"fp16": False, "bf16": True}, {"num_experts": 0, "moe_router_topk": 2},
])
def test_what_a_release_takes_is_no_contradiction(change):
    assert contradictions({**LLAMA_LIKE, **change}) == []


anything = st.one_of(st.none(), st.booleans(), st.integers(-3, 10**6), st.integers(10**14, 10**320), st.floats(),
                     st.text(max_size=8), st.lists(st.integers(0, 1), max_size=4),
                     st.dictionaries(st.text(max_size=2), st.none(), max_size=1), st.sampled_from(["[0]*4", "None", "8", "E|tL", "tp-dp"]))
NAMES = [*FormulaArguments.__slots__, "order", "pipeline_model_parallel_layout", "recompute_modules", "recompute_num_layers", "fp8", "exp_avg_dtype",
         "optimizer_offload_fraction", "optimizer_cpu_offload", "num_distributed_optimizer_instances",
         "decoder_first_pipeline_num_layers", "vocab_size",
         "make_vocab_size_divisible_by", "microbatch_group_size_per_vp_stage", "use_precision_aware_optimizer",
         "num_layers_per_virtual_pipeline_stage",
         "account_for_loss_in_pipeline_split", "cross_entropy_loss_fusion", "wgrad_deferral_limit", "defer_embedding_wgrad_compute"]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), anything, max_size=5))
def test_whatever_a_value_is_the_answer_is_a_report_or_a_sentence(change):
    args = {**LLAMA_LIKE, **change}
    contradictions(args)
    for ask in (lambda: report_args(args, 8, generation="all"), lambda: branch_card(SLURM_TEXT, args, 8),
                lambda: branch_card(report_args(args, 8)[0][0].printed_text or "", args, 8)):
        with contextlib.suppress(LedgerError):
            assert ask()


MORE = [*NAMES, "hidden_dropout", "checkpoint_activations", "checkpoint_num_layers", "recompute_method", "transformer_impl", "bf16", "fp16",
        "optimizer", "accumulate_allreduce_grads_in_fp32", "max_position_embeddings", "position_embedding_type", "distribute_saved_activations",
        "gradient_accumulation_fusion", "exp_avg_sq_dtype", "overlap_moe_expert_parallel_comm"]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(MORE), anything, max_size=5), st.one_of(st.none(), st.integers(1, 64)))
def test_whatever_a_value_is_the_stages_are_placed_or_a_sentence_says_why_not(change, microbatches):
    args = {**LLAMA_LIKE, **change}
    stages = [Measured(0, 2**34, 2**34), Measured(1, 2**33, 2**33)]
    found = last_stage(args, stages, microbatches=microbatches, te_version="2.18")
    assert found.reason
    assert found.verdict in ("explained", "partly", "not_explained", "not_measurable")
    with contextlib.suppress(LedgerError):
        assert stage_theory(args, microbatches=microbatches)


def test_a_pattern_of_the_wrong_length_is_a_sentence_not_an_error_of_another_kind():
    args = {**LLAMA_LIKE, "num_experts": 8, "moe_layer_freq": [1, 0]}
    found = last_stage(args, [Measured(0, 2**34, 2**34), Measured(1, 2**33, 2**33)], microbatches=8)
    assert (found.verdict, "moe_layer_freq is a list of 2" in found.reason) == ("not_measurable", True)
    with pytest.raises(LedgerError, match="moe_layer_freq is a list of 2"):
        stage_theory(args, microbatches=8)
