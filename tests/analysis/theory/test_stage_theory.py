"""The printed formula placed on stages: worked by hand, and summed up to the model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.theory.formula_arguments import formula_arguments
from analysis.theory.generations import BY_NAME
from analysis.theory.megatron import report_args
from analysis.theory.stage_theory import stage_theory
from ingest.errors import LedgerError
from tests.analysis.theory.conftest import LLAMA_LIKE


def test_the_worked_example_stage_by_stage(llama_like):
    first, last = stage_theory(llama_like, microbatches=8)
    layers, vocabulary, per_parameter = 16 * 218_103_808 // 2, 525_336_576 // 2, 6 + 12 / 64
    assert (first.parameters, last.parameters) == (layers + 131_072 + vocabulary, layers + 135_168 + vocabulary)
    assert first.weight_and_optimizer_bytes == round(first.parameters * per_parameter)
    assert (first.alive_layers, last.alive_layers) == (32, 16)
    assert (first.activation_bytes, last.activation_bytes) == (17_179_869_184, 8_589_934_592)
    assert (first.embedding, first.head, last.embedding, last.head) == (True, False, False, True)


def test_mtp_and_its_embedding_stand_on_the_last_stage(llama_like):
    plain, deep = stage_theory(llama_like, microbatches=8), stage_theory({**llama_like, "mtp_num_layers": 1}, microbatches=8)
    assert deep[0].parameters == plain[0].parameters
    assert deep[1].parameters - plain[1].parameters == 218_103_808 // 2 + 8192 + 525_336_576 // 2
    assert deep[1].mtp_layers == 1


def test_a_layout_string_and_interleaving(llama_like):
    layout = {"pipeline_model_parallel_layout": "Et*20|t*4|t*4|t*4,L", "virtual_pipeline_model_parallel_size": 2}
    found = stage_theory({**llama_like, **layout}, microbatches=8)
    assert [one.layers for one in found] == [24, 8]
    assert found[0].alive_layers == 84


def test_the_branch_without_sequence_parallelism_and_the_one_without_activation(llama_like):
    without = {**llama_like, "recompute_granularity": None}
    layer = 4096 * 2 * 4096 * (10 + 24 / 2) * 1.05
    assert stage_theory(without, microbatches=8)[1].activation_bytes == round(16 * layer)
    assert stage_theory(without, microbatches=8, generation=BY_NAME["G09"])[1].activation_bytes == 8_589_934_592


@pytest.mark.parametrize(("change", "sentence"), [
    ({"num_layers": 33}, "does not divide num_layers 33"), ({"padded_vocab_size": None}, "padded_vocab_size is missing"),
    ({"virtual_pipeline_model_parallel_size": 4, "microbatch_group_size_per_vp_stage": 1}, "microbatch_group_size_per_vp_stage is 1"),
])
def test_what_cannot_be_laid_out_is_one_sentence(llama_like, change, sentence):
    with pytest.raises(LedgerError, match=sentence):
        stage_theory({**llama_like, **change}, microbatches=8)


@given(st.sampled_from([1, 2, 4, 8]), st.booleans(), st.sampled_from([None, 1]))
def test_the_stages_add_up_to_the_model(pp, untied, mtp):
    args = {**LLAMA_LIKE, "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": pp, "untie_embeddings_and_output_weights": untied,
            "mtp_num_layers": mtp}
    total = report_args(args, 8)[0][0].parameters.total
    copies = int(pp > 1 and not untied) + int(bool(mtp) and pp > 1)
    vocabulary = formula_arguments(args)[0].padded_vocab_size * 4096
    assert sum(one.parameters for one in stage_theory(args, microbatches=8)) == total + copies * vocabulary
