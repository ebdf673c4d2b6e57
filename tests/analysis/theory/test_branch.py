"""The branch card: what text alone decides, what arithmetic proves, what contradicts, and what was left out."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.theory.branch import branch_card
from analysis.theory.generations import BY_NAME
from analysis.theory.megatron import report_args
from analysis.theory.shapes import catalogue
from ingest.errors import LedgerError
from tests.analysis.theory.conftest import LLAMA_LIKE
from tests.conftest import ROOT

SLURM_70B = {
    "add_bias_linear": "False", "context_parallel_size": "1", "data_parallel_size": "1", "expert_model_parallel_size": "1",
    "expert_tensor_parallel_size": "1", "ffn_hidden_size": "28672", "group_query_attention": "True", "hidden_size": "8192", "kv_channels": "128",
    "micro_batch_size": "1", "moe_layer_freq": "1", "mtp_num_layers": "None", "normalization": "RMSNorm", "num_attention_heads": "64",
    "num_experts": "None", "num_layers": "80", "num_query_groups": "8", "padded_vocab_size": "32256", "pipeline_model_parallel_layout": "None",
    "pipeline_model_parallel_size": "8", "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": "1",
    "seq_length": "4096", "sequence_parallel": "True", "swiglu": "True", "tensor_model_parallel_size": "4",
    "untie_embeddings_and_output_weights": "True", "use_distributed_optimizer": "True", "virtual_pipeline_model_parallel_size": "None",
    "vocab_size": "None", "world_size": "32", "global_batch_size": "512",
}
SLURM_TEXT = """Number of parameters in transformer block in billions:  68.45
Number of parameters in embedding layers in billions: 0.53
Total number of parameters in billions: 68.98
Number of parameters in most loaded shard in billions: 2.2052
Number of parameters in other shards in billions: 2.1391
compute_activation_memory_without_sp
Activation memory footprint per transformer layer (precise, without SP): 512.0 MB
Number of in-flight microbatches: 8
Theoretical memory footprints: weight and optimizer=37854.71 MB, activation=43277.06 MB, total=81131.77 MB

"""
RESTART = {
    "add_bias_linear": "False", "context_parallel_size": "1", "data_parallel_size": "8", "ffn_hidden_size": "11008", "group_query_attention": "False",
    "hidden_size": "4096", "kv_channels": "128", "micro_batch_size": "2", "mtp_num_layers": "None", "normalization": "RMSNorm",
    "num_attention_heads": "32", "num_experts": "None", "num_layers": "32", "num_query_groups": "1", "padded_vocab_size": "32000",
    "pipeline_model_parallel_size": "1", "recompute_granularity": "None", "seq_length": "4096", "sequence_parallel": "False", "swiglu": "True",
    "tensor_model_parallel_size": "1", "untie_embeddings_and_output_weights": "True", "use_distributed_optimizer": "True",
    "virtual_pipeline_model_parallel_size": "None", "world_size": "8",
}
RESTART_TEXT = """Number of parameters in transformer block in billions:  6.48
Number of parameters in embedding layers in billions: 0.26
Total number of parameters in billions: 6.74
Number of parameters in most loaded shard in billions: 6.7387
Theoretical memory footprints: weight and optimizer=48198.81 MB
"""
RESTARTED = {**RESTART, "data_parallel_size": "4", "micro_batch_size": "1", "recompute_granularity": "selective", "sequence_parallel": "True",
             "tensor_model_parallel_size": "2"}
RESTARTED_TEXT = """Number of parameters in transformer block in billions:  6.48
Number of parameters in embedding layers in billions: 0.26
Total number of parameters in billions: 6.74
Number of parameters in most loaded shard in billions: 3.3693
Activation memory footprint per transformer layer: 230.0 MB
Theoretical memory footprints: weight and optimizer=28919.29 MB, activation=7650.02 MB, total=36569.30 MB

"""
MPI_TEXT = """Number of parameters in transformer layers in billions:  6.44
Number of parameters in embedding layers in billions: 0.21
Total number of parameters in billions: 6.65
Number of parameters in most loaded shard in billions: 6.6490
Theoretical memory footprints: weight and optimizer=47557.56 MB
"""


def printed(generation, m=8, verbose=True, **change):
    return report_args({**LLAMA_LIKE, **change}, m, generation=generation, verbose=verbose)[0][0].printed_text


def test_every_printed_case_with_its_arguments(formula_cases):
    same = defaultdict(set)
    rows = [case for case in formula_cases if case["printed_text"] and not case["raises"]]
    for case in rows:
        same[case["case"], case["printed_text"]].add(case["generation"])
    for case in rows:
        card = branch_card(case["printed_text"], case["args"], case["num_microbatches"])
        assert card.branch == case["branch"], (case["case"], case["generation"])
        assert set(card.generations) == same[case["case"], case["printed_text"]], (case["case"], case["generation"])
        assert card.confidence in ("proven", "solved")


def test_every_printed_case_without_arguments(formula_cases):
    for case in formula_cases:
        if case["printed_text"]:
            card = branch_card(case["printed_text"])
            assert card.branch == case["branch"], (case["case"], case["generation"])
            assert case["generation"] in card.generations
            assert card.confidence == "shape"


def test_text_without_arguments_is_never_wrong_when_lines_are_missing(formula_cases):
    for case in formula_cases[::9]:
        lines = case["printed_text"].splitlines()
        for start in range(len(lines)):
            card = branch_card("\n".join(line for line in lines[start:] if line))
            assert card.branch in (case["branch"], "undecided")


def test_known_answers():
    slurm = branch_card(SLURM_TEXT * 2, SLURM_70B, 512)
    assert (slurm.branch, slurm.generations, slurm.confidence) == ("without_sp", ("G11", "G12"), "proven")
    assert slurm.releases == ("core 0.16.x",)
    assert branch_card(RESTART_TEXT, RESTART, 4).generations == ("G09",)
    assert branch_card(RESTARTED_TEXT, RESTARTED, 16).generations == ("G09",)
    mpi = branch_card(MPI_TEXT)
    assert (mpi.branch, mpi.generations, mpi.confidence) == ("weights_only", ("G06", "G07", "G08"), "shape")


def test_a_whole_log_with_prefixes_and_collapsed_blanks():
    noise = "".join(f"[default0]:{line}\n[default3]: something else\n" for line in SLURM_TEXT.splitlines())
    card = branch_card(noise.replace("billions:  ", "billions: "), SLURM_70B, 512)
    assert card.generations == ("G11", "G12")
    assert card.evidence[0].kind == "marker"
    assert card.evidence[0].line == 11


def test_a_lone_footprint_line_is_undecided_without_arguments_and_proven_with():
    line = SLURM_TEXT.splitlines()[-2]
    assert branch_card(line).branch == "undecided"
    card = branch_card(line, SLURM_70B, 512)
    assert (card.branch, card.generations, card.confidence) == ("without_sp", ("G11", "G12", "G13"), "solved")
    assert branch_card("Number of in-flight microbatches: 8").branch == "undecided"


def test_hybrid_sentence_and_error():
    assert branch_card(printed("G08", is_hybrid_model=True)).branch == "hybrid_unsupported"
    raised = branch_card("Traceback\nValueError: Theoretical memory footprints not yet supported for hybrid Mamba-Transformer models.\n")
    assert (raised.branch, raised.generations) == ("raises", ("G07",))
    with_args = branch_card(printed("G12", hybrid_layer_pattern="M*"), {**LLAMA_LIKE, "hybrid_layer_pattern": "M*"}, 8)
    assert with_args.generations == ("G12", "G13", "G14", "G15")


def test_nothing_printed():
    card = branch_card("training ...\n")
    assert (card.branch, card.generations, card.confidence) == ("undecided", (), "none")
    silent = branch_card("", {**LLAMA_LIKE, "sequence_parallel": False})
    assert (silent.branch, silent.generations) == ("undecided", ("G01", "G02", "G03", "G03x", "G04", "G05"))
    every = branch_card("", LLAMA_LIKE)
    assert every.generations == ()
    assert every.evidence[-1].sentence == "for these arguments every generation prints one"


@pytest.mark.parametrize("text", [
    "> Number of attn parameters in a transformer block in billions:  0.05\nTotal number of parameters in billions: 12.80\n"
    ">>> [FS] Theoretical memory footprints: weight and optimizer=36640.20 MB, activation=8120.55 MB, total=44760.75 MB\n\n",
    "num_bytes_per_parameter=7.5\nTheoretical memory footprints: weight and optimizer=20814.13 MB, activation=14114.38 MB, total=34928.51 MB\n\n",
    "Theoretical memory footprints: dense and embedding model states=18120.42 MB, activation=22016.50 MB, total=80448.92 MB\n\n",
])
def test_another_program_is_not_taken_for_megatron(text):
    card = branch_card(text)
    assert (card.branch, card.generations) == ("undecided", ())
    assert "another program" in card.evidence[0].sentence


@pytest.mark.parametrize("generation", ["G01", "G05", "G09", "G10", "G13", "G15"])
def test_unknowns_are_solved_for(generation):
    text = printed(generation)
    known = branch_card(text, LLAMA_LIKE, 8)
    without = {name: value for name, value in LLAMA_LIKE.items() if name not in ("padded_vocab_size", "world_size")}
    solved = branch_card(text, without)
    assert solved.generations == known.generations
    assert solved.confidence == "solved"
    assert solved.solved == {"padded_vocab_size": 128256, "data_parallel_size": 64}


def test_fewer_micro_batches_than_stages_are_read_off_the_text():
    args = {**LLAMA_LIKE, "pipeline_model_parallel_size": 4}
    text = report_args(args, 3, generation="G15")[0][0].printed_text
    assert set(branch_card(text, args).generations) == {"G14", "G15"}
    quiet = report_args(args, 3, generation="G15", verbose=False)[0][0].printed_text
    assert branch_card(quiet, args).solved == {"num_microbatches": 3}


def kinds(card):
    return {(one.kind, one.argument) for one in card.contradictions}


def test_arguments_that_say_another_branch():
    card = branch_card(printed("G10", sequence_parallel=False), LLAMA_LIKE, 8)
    assert (card.branch, card.confidence) == ("without_sp", "contradicted")
    assert {("argument", "sequence_parallel"), ("branch", "sequence_parallel")} <= kinds(card)
    assert next(one for one in card.contradictions if one.kind == "branch").line == 9


@pytest.mark.parametrize(("change", "m", "argument", "wanted"), [
    ({"padded_vocab_size": 128512}, 8, "padded_vocab_size", "128256"),
    ({"use_distributed_optimizer": False}, 8, "use_distributed_optimizer", "True"),
    ({"swiglu": False}, 8, "swiglu", "True"),
    ({}, 1, "num_microbatches", "2"),
    ({"world_size": 128}, 8, "world_size", "256"),
    ({"world_size": 128, "data_parallel_size": 32}, 8, "data_parallel_size", "64"),
])
def test_an_argument_that_must_be_set_aside_is_named(change, m, argument, wanted):
    card = branch_card(printed("G15"), {**LLAMA_LIKE, **change}, m, argument_lines={argument: 77})
    said = next(one for one in card.contradictions if one.argument == argument)
    assert card.confidence == "contradicted"
    assert wanted in said.sentence
    assert said.argument_line == 77
    assert "G15" in card.generations


def test_mutated_argument_units_sums_and_nearest():
    card = branch_card(RESTART_TEXT, RESTART, 4)
    assert kinds(card) == {("mutated_argument", "num_query_groups")}
    decimal = printed("G15").replace("11846.75 MB, activation=16416.06 MB, total=28262.82", "12422.22 MB, activation=17213.49 MB, total=29635.71")
    assert "units" in {kind for kind, _ in kinds(branch_card(decimal, LLAMA_LIKE, 8))}
    torn = printed("G15").replace("total=28262.82", "total=99999.99")
    assert "sum" in {kind for kind, _ in kinds(branch_card(torn, LLAMA_LIKE, 8))}
    other = branch_card(printed("G15"), {**LLAMA_LIKE, "hidden_size": 2048}, 8)
    assert any("nearest is" in one.sentence for one in other.contradictions)
    assert (other.branch, other.confidence) == ("sp_selective", "contradicted")


def test_arguments_that_contradict_each_other_are_listed():
    args = {**LLAMA_LIKE, "num_layers": 33}
    card = branch_card(report_args(args, 8)[0][0].printed_text, args, 8)
    assert ("arguments", "pipeline_model_parallel_size") in kinds(card)
    with pytest.raises(LedgerError, match="argument hidden_size is missing"):
        branch_card(printed("G15"), {"num_layers": 32}, 8)


def test_the_other_branch():
    assert branch_card(printed("G15"), LLAMA_LIKE, 8).other_branch.activation_bytes == pytest.approx(24.87e9, abs=6e6)
    early = branch_card(printed("G01"), LLAMA_LIKE, 8).other_branch
    assert (early.branch, early.activation_bytes) == ("silent", None)
    assert branch_card(RESTART_TEXT, RESTART, 4).other_branch.branch == "sp_selective"


def test_which_releases_carry_it():
    for name, generation in BY_NAME.items():
        text = printed(name)
        assert set(generation.releases) <= set(branch_card(text, LLAMA_LIKE, 8).releases)


@given(st.text(max_size=300))
def test_any_text_gets_a_card(text):
    assert branch_card(text).branch


@given(st.lists(st.booleans(), min_size=9, max_size=9))
def test_whatever_lines_are_lost_the_branch_is_right_or_undecided(kept):
    lines = [line for line, keep in zip(SLURM_TEXT.splitlines(), kept, strict=False) if keep]
    for args in (None, SLURM_70B):
        assert branch_card("\n".join(lines), args, 512).branch in ("without_sp", "undecided")


def test_the_documented_table_is_what_the_model_prints():
    lines = (ROOT / "docs/methods/branch.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith(("| Number of", "| (quiet)"))]
    want = {(first, marker, last.split(",")[0], branch, group) for first, marker, last, branch, groups in rows
            for group in groups.removesuffix(" with lines of active parameters").split(", or ")}
    got = set()
    for lines, known in catalogue().items():
        if "hybrid" not in lines[0]:
            marker = next((line.removeprefix("compute_activation_memory").lstrip(" _") for line in lines if line.startswith("compute_")), "-")
            first = lines[0].split(":")[0] if lines[0].startswith("Number") else "(quiet)"
            names = " ".join(name for name in BY_NAME if name in {name for name, _ in known})
            got |= {(first, marker, "full" if "total=" in lines[-1] else "short", branch, names) for _, branch in known}
    assert got == want


@pytest.mark.parametrize(("kept", "right", "undecided"), [
    (lambda lines: lines[-1:], 88, 687),
    (lambda lines: [line for line in lines if line.startswith(("Number of param", "Number of act", "Total", "Theoretical"))], 401, 374),
    (lambda lines: [line for line in lines if not line.startswith("compute_")], 753, 22),
])
def test_documented_shares_with_lines_cut_off(formula_cases, kept, right, undecided):
    seen = defaultdict(int)
    for case in formula_cases:
        if case["printed_text"]:
            branch = branch_card("\n".join(kept([line for line in case["printed_text"].splitlines() if line]))).branch
            seen["right" if branch == case["branch"] else branch] += 1
    assert seen == {"right": right, "undecided": undecided}
