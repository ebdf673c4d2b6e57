"""The face `hbmledger theory`: JSON keys, batch, all generations, and one sentence for a mistake."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from analysis.theory.generations import BY_NAME
from cli import main
from tests.analysis.theory.conftest import LLAMA_LIKE

KEYS = {"generation", "branch", "raises", "weight_and_optimizer_bytes", "activation_bytes", "total_bytes", "printed_text", "filled_defaults"}


@pytest.fixture
def args_file(tmp_path):
    def write(**change):
        path = tmp_path / "args.json"
        path.write_text(json.dumps({**LLAMA_LIKE, **change}))
        return str(path)

    return write


def answer(capsys, *argv):
    code = main(["theory", *argv])
    return code, capsys.readouterr()


def test_default_is_the_newest_generation(capsys, args_file):
    code, said = answer(capsys, "--args", args_file(), "--microbatches", "8", "--format", "json")
    got = json.loads(said.out)
    assert code == 0
    assert set(got) >= KEYS
    assert (got["generation"], got["branch"], got["weight_and_optimizer_bytes"]) == ("G15", "sp_selective", 12_422_222_208)
    assert got["filled_defaults"]["data_parallel_size"] == 64


def test_all_generations_and_text(capsys, args_file):
    _, said = answer(capsys, "--args", args_file(), "--generation", "all", "--format", "json")
    assert [one["generation"] for one in json.loads(said.out)] == list(BY_NAME)
    _, said = answer(capsys, "--args", args_file(sequence_parallel=False), "--generation", "G05")
    assert said.out.startswith("G05 silent\n(prints nothing)\n")
    assert "filled defaults: " in said.out


def test_quiet_keeps_marker_and_footprint(capsys, args_file):
    _, said = answer(capsys, "--args", args_file(), "--microbatches", "8", "--quiet", "--format", "json")
    assert [line.split(":")[0] for line in json.loads(said.out)["printed_text"].split("\n")] == [
        "compute_activation_memory with SP", "Theoretical memory footprints", "", ""]


def test_batch_answers_line_by_line_with_errors_inside(capsys, tmp_path):
    lines = [{"args": LLAMA_LIKE, "num_microbatches": 8, "generation": "G01"}, {"args": {}}, [], {"args": LLAMA_LIKE, "num_microbatches": 0},
             {"args": {**LLAMA_LIKE, "num_layers": 31}, "num_microbatches": 8}]
    path = tmp_path / "batch.jsonl"
    path.write_text("\n".join([*map(json.dumps, lines), "{broken"]) + "\n")
    code, said = answer(capsys, "--batch", str(path), "--format", "json")
    got = [json.loads(line) for line in said.out.splitlines()]
    assert code == 3
    assert got[0]["weight_and_optimizer_bytes"] == 10_346_041_728
    assert "argument hidden_size is missing" in got[1]["error"]
    assert got[2]["error"] == "line 3 is no JSON object"
    assert "num_microbatches is 0" in got[3]["error"]
    assert got[4]["contradictions"][0].startswith("argument pipeline_model_parallel_size is 2 and does not divide num_layers 31")
    assert got[4]["total_bytes"] is not None
    assert "line 6 is no JSON" in got[5]["error"]


@pytest.mark.parametrize(("verbose", "lines"), [(True, 11), (False, 2), ("False", 2), ("True", 11), (0, 2), (None, 11), ("None", 11)])
def test_verbose_as_json_or_as_a_dump_prints_it(capsys, tmp_path, verbose, lines):
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps({"args": LLAMA_LIKE, "num_microbatches": "8", "verbose": verbose}) + "\n")
    text = json.loads(answer(capsys, "--batch", str(path), "--format", "json")[1].out)["printed_text"]
    assert len([line for line in text.splitlines() if line]) == lines


def test_a_verbose_that_is_no_switch_is_one_sentence(capsys, tmp_path):
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps({"args": LLAMA_LIKE, "verbose": "loud"}) + "\n")
    assert json.loads(answer(capsys, "--batch", str(path), "--format", "json")[1].out)["error"] == "verbose is 'loud'; true or false would fit"


def test_terms_are_part_of_the_answer(capsys, args_file):
    got = json.loads(answer(capsys, "--args", args_file(), "--microbatches", "8", "--format", "json")[1].out)
    assert sum(term["bytes"] for term in got["terms"] if term["part"] == "activation") == got["activation_bytes"]
    shown = answer(capsys, "--args", args_file(), "--microbatches", "8")[1].out
    assert "h·V/t·(6 + 12/DP) = 4096·128256/2·(6 + 12/64)" in shown


@pytest.mark.parametrize(("change", "sentence"), [
    ({"padded_vocab_size": None}, "argument padded_vocab_size is missing"),
    ({"tensor_model_parallel_size": 3, "world_size": 252}, "tensor_model_parallel_size is 3 and does not divide num_attention_heads 32; 2, 4"),
    ({"num_layers": 33}, "argument pipeline_model_parallel_size is 2 and does not divide num_layers 33; 1, 3"),
    ({"num_experts": 8, "expert_model_parallel_size": 16}, "argument expert_model_parallel_size is 16 and does not divide num_experts 8"),
    ({"order": "tp-zp"}, "argument order is 'tp-zp'; tp, cp, ep, dp, pp"),
    ({"world_size": 250}, "argument world_size is 250; a multiple of TP x PP x CP = 4"),
])
def test_what_contradicts_itself_is_one_sentence(capsys, args_file, change, sentence):
    code, said = answer(capsys, "--args", args_file(**change), "--microbatches", "8")
    assert code == 2
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not said.out


def test_no_microbatches_unreadable_and_no_json(capsys, args_file, tmp_path):
    for argv, sentence in ((["--args", args_file(), "--microbatches", "0"], "num_microbatches is 0"),
                           (["--args", str(tmp_path / "none.json")], "cannot read the arguments"),
                           (["--batch", str(tmp_path / "none.jsonl")], "cannot read the batch"),
                           (["--args", args_file(), "--generation", "G99"], "generation is 'G99'")):
        code, said = answer(capsys, *argv)
        assert code == 2
        assert sentence in said.err
        assert "Traceback" not in said.err
    (tmp_path / "list.json").write_text("[1]")
    assert "no JSON object" in answer(capsys, "--args", str(tmp_path / "list.json"))[1].err


def test_no_engine_is_loaded(args_file):
    script = ("import sys\nfrom cli import main\n"
              f"main(['theory', '--args', {args_file()!r}, '--generation', 'all', '--format', 'json'])\n"
              "print(sorted({'duckdb', 'pyarrow', 'pandas', 'numpy', 'streamlit', 'deltalake'} & set(sys.modules)), file=sys.stderr)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert len(json.loads(done.stdout)) == len(BY_NAME)
