"""Megatron's printed formula: every executed case, the published example, silence, errors, and what is filled in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.theory.formula_arguments import formula_arguments
from analysis.theory.generations import BY_NAME, GENERATIONS
from analysis.theory.megatron import MIB, report, report_args
from ingest.errors import LedgerError


def one(args, m=8, generation="G15", **more):
    return report_args(args, m, generation=generation, **more)[0][0]


def close(a, b):
    return a == b or (a is not None and b is not None and abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1))


def test_every_executed_case(formula_cases):
    for case in formula_cases:
        got = one(case["args"], case["num_microbatches"], case["generation"], verbose=case["verbose"])
        where = case["case"], case["generation"]
        assert got.branch == case["branch"], where
        assert (got.printed_text or "") == case["printed_text"], where
        assert got.raises == case["raises"], where
        for key in ("weight_and_optimizer_bytes", "activation_bytes", "total_bytes"):
            assert close(getattr(got, key), case[key]), (where, key)


def test_published_example(llama_like):
    bytes_of = {name: one(llama_like, generation=name).weight_and_optimizer_bytes for name in BY_NAME}
    assert {bytes_of[name] for name in ("G05", "G06", "G07", "G08", "G09", "G10", "G14", "G15")} == {12_422_222_208}
    assert {bytes_of[name] for name in ("G11", "G12", "G13")} == {12_421_810_368}
    assert {bytes_of[name] for name in ("G03", "G03x", "G04")} == {9_515_569_536}
    assert {bytes_of[name] for name in ("G01", "G02")} == {10_346_041_728}
    assert one(llama_like).activation_bytes == 17_213_489_152
    assert one(llama_like, generation="G01").activation_bytes == 18_287_230_976


def test_worked_example_parameters(llama_like):
    counted = one(llama_like).parameters
    assert counted.block == 6_979_588_096
    assert counted.embedding == 525_336_576
    assert counted.total == 7_504_924_672
    assert (counted.block - 4096) / 32 == 218_112_000
    assert counted.shard == 1_744_830_464 + 262_668_288 + 133_120
    weights, gradients, optimizer = counted.shard * 2, counted.shard * 4, counted.shard * 12 / 64
    assert [round(part / 1e9, 2) for part in (weights, gradients, optimizer)] == [4.02, 8.03, 0.38]


def test_worked_example_activation(llama_like):
    terms = dict(one(llama_like).activation.terms)
    assert terms["layers"] * 2 == 34_359_738_368
    assert sum(terms.values()) * 2 == 34_426_978_304
    assert one(llama_like).activation.per_layer_bytes * 2 == 1_073_741_824
    alone = one({**llama_like, "pipeline_model_parallel_size": 1, "data_parallel_size": 128}, None)
    assert dict(alone.activation.terms)["output_and_loss"] / 1e9 == pytest.approx(2.17, abs=0.005)


@pytest.mark.parametrize(("change", "resident", "activation", "total"), [
    ({"use_distributed_optimizer": False}, 36.14, 17.21, 53.3),
    ({"sequence_parallel": False}, 12.42, 24.87, 37.3),
    ({"tensor_model_parallel_size": 1, "sequence_parallel": False}, 24.47, 38.4, 62.9),
])
def test_worked_example_what_ifs(llama_like, change, resident, activation, total):
    got = one({**llama_like, **change})
    assert got.weight_and_optimizer_bytes / 1e9 == pytest.approx(resident, abs=0.006)
    assert got.activation_bytes / 1e9 == pytest.approx(activation, abs=0.06)
    assert got.total_bytes / 1e9 == pytest.approx(total, abs=0.06)


def test_terms_add_up_in_every_generation_and_branch(formula_cases):
    for case in formula_cases[::7]:
        activation = one(case["args"], case["num_microbatches"], case["generation"]).activation
        if activation:
            assert sum(value for _, value in activation.terms) == pytest.approx(activation.total_bytes, rel=1e-12)


def test_latent_experts_count_on_the_latent_width_from_g15(llama_like):
    moe = {**llama_like, "num_experts": 8, "moe_ffn_hidden_size": 1024, "moe_latent_size": 512, "moe_layer_freq": 1}
    g14, g15 = (one(moe, generation=name).parameters.block for name in ("G14", "G15"))
    per_layer = 3 * 4096 * 1024 * 8 - 3 * 512 * 1024 * 8 - 2 * 4096 * 512
    assert g14 - g15 == 32 * per_layer


def test_what_megatron_dies_of(llama_like):
    both = {**llama_like, "multi_latent_attention": True}
    assert one(both, generation="G08").raises is None
    assert one(both, generation="G09").raises == "AssertionError: "
    short = {**llama_like, "num_experts": 8, "moe_layer_freq": [0, 1]}
    assert one(short).raises.startswith("AssertionError: Invalid length of moe_layer_pattern: 2, expected 32")
    wide = {**llama_like, "num_experts": 512, "expert_model_parallel_size": 512}
    assert one(wide, generation="G13").raises is None
    died = one(wide, generation="G14")
    assert (died.branch, died.raises) == ("raises", "ZeroDivisionError: division by zero")
    assert died.printed_text.splitlines()[-1].startswith("Number of parameters in other shards")


def test_hybrid_models_by_generation(llama_like):
    flagged, patterned = {**llama_like, "is_hybrid_model": True}, {**llama_like, "hybrid_layer_pattern": "M*"}
    want = {"G06": "sp_selective", "G07": "raises", "G08": "hybrid_unsupported", "G12": "sp_selective"}
    assert {name: one(flagged, generation=name).branch for name in want} == want
    assert [one(patterned, generation=name).branch for name in ("G11", "G12")] == ["sp_selective", "hybrid_unsupported"]


def test_values_as_the_dump_prints_them_are_the_same(formula_cases):
    for case in formula_cases[::13]:
        dumped = {name: str(value) for name, value in case["args"].items()}
        native, printed = (one(args, case["num_microbatches"], case["generation"]) for args in (case["args"], dumped))
        assert native == printed


def test_filled_defaults_are_listed(llama_like):
    filled = report_args(llama_like, 8)[0][1]
    assert filled["add_bias_linear"] is True
    assert filled["expert_tensor_parallel_size"] == 2
    assert filled["data_parallel_size"] == 64
    assert "hidden_size" not in filled
    assert "kv_channels" not in filled
    bare = {name: llama_like[name] for name in ("hidden_size", "num_layers", "num_attention_heads", "seq_length", "micro_batch_size", "world_size")}
    _, filled = report_args({**bare, "vocab_size": 128000, "tensor_model_parallel_size": 2, "swiglu": True}, 8)[0]
    assert (filled["padded_vocab_size"], filled["ffn_hidden_size"], filled["kv_channels"]) == (128000, 10880, 128)


@pytest.mark.parametrize("given", [
    {"num_layers_per_virtual_pipeline_stage": 8}, {"num_virtual_stages_per_pipeline_rank": 2},
    {"pipeline_model_parallel_layout": "Et*8|t*8|t*8|t*8,L"}])
def test_virtual_stages_are_derived_and_listed(llama_like, given):
    (got, filled), (want, _) = (report_args({**llama_like, **more}, 8)[0] for more in (given, {"virtual_pipeline_model_parallel_size": 2}))
    assert got == want
    assert filled["virtual_pipeline_model_parallel_size"] == 2


@pytest.mark.parametrize("name", [
    "hidden_size", "num_layers", "num_attention_heads", "seq_length", "micro_batch_size", "padded_vocab_size", "world_size"])
def test_a_missing_argument_is_one_sentence(llama_like, name):
    del llama_like[name]
    with pytest.raises(LedgerError, match=f"argument {name} is missing; .* would fit"):
        one(llama_like)


@pytest.mark.parametrize(("name", "value"), [
    ("hidden_size", "wide"), ("num_layers", 0), ("kv_channels", -1), ("swiglu", "maybe"), ("moe_layer_freq", ["x"]),
    ("virtual_pipeline_model_parallel_size", 0), ("num_experts", True)])
def test_a_value_that_is_none_is_one_sentence(llama_like, name, value):
    with pytest.raises(LedgerError, match=f"argument {name} is .* would fit"):
        one({**llama_like, name: value})


def test_no_microbatches_is_one_sentence(llama_like):
    with pytest.raises(LedgerError, match=r"num_microbatches is 0; .* at least 1"):
        one(llama_like, 0)
    with pytest.raises(LedgerError, match="generation is 'G16'"):
        one(llama_like, generation="G16")


@given(tp=st.sampled_from([1, 2, 4, 8]), pp=st.sampled_from([1, 2, 4]), dp=st.integers(1, 64), m=st.integers(1, 16))
def test_totals_are_sums_and_the_distributed_optimizer_never_costs(tp, pp, dp, m):
    base = {"hidden_size": 1024, "num_layers": 8, "num_attention_heads": 16, "seq_length": 512, "micro_batch_size": 1, "padded_vocab_size": 1024,
            "tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp, "data_parallel_size": dp, "sequence_parallel": True,
            "recompute_granularity": "selective"}
    for generation in GENERATIONS:
        whole = report(generation, formula_arguments(base)[0], m)
        shard = report(generation, formula_arguments({**base, "use_distributed_optimizer": True})[0], m)
        assert whole.total_bytes == pytest.approx(whole.weight_and_optimizer_bytes + whole.activation_bytes, abs=1 / MIB, rel=1e-12)
        assert shard.weight_and_optimizer_bytes <= whole.weight_and_optimizer_bytes
