"""The formula's terms: their sum is the formula's value for every executed case, and what is shown is what was computed."""

from __future__ import annotations

import math

import pytest

from analysis.theory.formula_arguments import formula_arguments
from analysis.theory.generations import BY_NAME, GENERATIONS
from analysis.theory.megatron import report
from analysis.theory.terms import MEANING, symbols_of, terms, value_of
from analysis.theory.terms_text import term_lines

PARTS = ("weight_and_optimizer", "activation")


def terms_of(args, generation="G15", m=8):
    known, _ = formula_arguments(args)
    said = report(BY_NAME[generation], known, m)
    return said, terms(BY_NAME[generation], known, m, said)


def judged(said, found):
    """The terms of each part add up to the value itself, and no term was bent by more than float rounding to get there."""
    for part in PARTS:
        own = [term for term in found if term.part == part]
        value = getattr(said, f"{part}_bytes")
        assert bool(own) == (value is not None)
        if own:
            assert math.fsum(term.bytes for term in own) == value
            assert float(sum(value_of(term.numbers) for term in own)) == pytest.approx(value, rel=1e-12)


def test_terms_add_up_to_the_value_in_every_executed_case(formula_cases):
    seen = 0
    for case in formula_cases:
        said, found = terms_of(case["args"], case["generation"], case["num_microbatches"])
        judged(said, found)
        for part in PARTS:
            if (value := case[f"{part}_bytes"]) is not None:
                assert math.fsum(term.bytes for term in found if term.part == part) == pytest.approx(value, rel=1e-9)
                seen += 1
    assert len(formula_cases) == 896
    assert seen > 1000


MOE = {"num_experts": 64, "moe_ffn_hidden_size": 1408, "moe_layer_freq": [0] * 2 + [1] * 30, "moe_shared_expert_intermediate_size": 2816,
       "moe_shared_expert_gate": True, "moe_router_topk": 6, "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1}
MLA = {"multi_latent_attention": True, "group_query_attention": False, "q_lora_rank": 1536, "kv_lora_rank": 512}


@pytest.mark.parametrize("change", [
    {}, MOE, {**MOE, "moe_latent_size": 1024, "mtp_num_layers": 2}, {**MOE, **MLA, "mtp_num_layers": 1}, {**MLA, "q_lora_rank": None},
    {"pipeline_model_parallel_size": 1, "untie_embeddings_and_output_weights": True}, {"virtual_pipeline_model_parallel_size": 4},
    {"pipeline_model_parallel_size": 16}, {"sequence_parallel": False}, {"use_distributed_optimizer": False, "swiglu": False},
    {"mtp_num_layers": 1, "normalization": "LayerNorm", "recompute_granularity": None, "pipeline_model_parallel_size": 1},
])
@pytest.mark.parametrize("generation", [one.name for one in GENERATIONS])
def test_terms_add_up_in_every_generation(llama_like, change, generation):
    judged(*terms_of({**llama_like, **change}, generation))


def test_terms_of_the_worked_example(llama_like):
    found = {term.name: term for term in terms_of(llama_like)[1]}
    per_parameter = 6 + 12 / 64
    assert found["attention"].bytes == 41_943_040 * 32 / 4 * per_parameter
    assert found["mlp"].bytes == pytest.approx(176_160_768 * 32 / 4 * per_parameter, abs=1e-3)
    assert found["layer_norms"].bytes == 8_192 * 32 / 2 * per_parameter
    assert found["embedding"].bytes == 525_336_576 / 2 * per_parameter
    assert found["layers"].bytes == pytest.approx(1_073_741_824 * 32 / 2, abs=1e-3)
    assert found["embedding_dropout"].bytes == 4096 * 2 * 4096 * 2 / 2
    assert found["attention"].symbols == "2·h·a·d·(1 + g/a)·L/(p·t)·(6 + 12/DP)"
    assert found["attention"].numbers == "2·4096·32·128·(1 + 8/32)·32/(2·2)·(6 + 12/64)"
    assert found["layers"].numbers == "4096·2·4096·(18 + 4·14336/4096)·32/2"


def test_fewer_micro_batches_and_interleaving_are_in_the_expression(llama_like):
    few = {term.name: term for term in terms_of({**llama_like, "pipeline_model_parallel_size": 4}, m=3)[1]}
    assert few["layers"].symbols.endswith("·L·m/p/t")
    assert few["layers"].bytes == 1_073_741_824 * 32 * 3 / 4 / 2
    chunks = {term.name: term for term in terms_of({**llama_like, "virtual_pipeline_model_parallel_size": 4})[1]}
    assert "(1 + (2 - 1)/(2·4))" in chunks["layers"].numbers


def test_every_symbol_used_has_a_meaning(llama_like):
    found = terms_of({**llama_like, **MOE, **MLA, "mtp_num_layers": 1})[1]
    assert set(symbols_of(found)) <= set(MEANING)
    assert symbols_of(found)["EDP"] == "data-parallel size of the experts"


def test_no_number_no_terms(llama_like):
    assert terms_of({**llama_like, "sequence_parallel": False}, "G05")[1] == ()


@pytest.mark.parametrize("text", ["__import__('os')", "h**2", "h(1)", "'a'"])
def test_nothing_but_the_formula_is_evaluated(text):
    with pytest.raises((ValueError, KeyError)):
        value_of(text)


def test_lines_for_a_terminal_keep_the_sum(llama_like):
    found = terms_of(llama_like)[1]
    lines = list(term_lines(found, "  ", least=0.001))
    assert all(len(line) <= 98 for line in lines)
    shown = [int(line.split(" B ")[0].split()[-1].replace(",", "")) for line in lines if line.startswith("    ") and " GiB" in line]
    assert sum(shown) == pytest.approx(12_422_222_208 + 17_213_489_152, abs=8)
    assert any(line.startswith("    layer norms and final norm") for line in lines)
    assert any("2·4096·32·128·(1 + 8/32)·32/(2·2)·(6 + 12/64)" in line for line in lines)
