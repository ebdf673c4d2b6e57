"""The face `hbmledger branch`: keys, batch, text from a file or a whole log, and one sentence for a mistake."""

from __future__ import annotations

import io
import json

import pytest

from cli import main
from tests.analysis.theory.conftest import LLAMA_LIKE
from tests.analysis.theory.test_branch import MPI_TEXT, SLURM_70B, SLURM_TEXT

KEYS = {"branch", "generations", "releases", "confidence", "evidence", "contradictions", "left_out"}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "block.txt").write_text(SLURM_TEXT)
    (tmp_path / "args.json").write_text(json.dumps(SLURM_70B))
    return tmp_path


def ask(capsys, *argv):
    code = main(["branch", *map(str, argv)])
    return code, capsys.readouterr()


def test_card_with_arguments(capsys, files):
    code, said = ask(capsys, "--text", files / "block.txt", "--args", files / "args.json", "--microbatches", 512, "--format", "json")
    card = json.loads(said.out)
    assert code == 0
    assert set(card) >= KEYS
    assert (card["branch"], card["generations"], card["releases"], card["confidence"]) == ("without_sp", ["G11", "G12"], ["core 0.16.x"], "proven")
    assert card["left_out"][0]["name"] == "full_recompute"
    assert all(isinstance(entry["bytes"], int) for entry in card["left_out"])


def test_text_for_a_reader(capsys, files):
    _, said = ask(capsys, "--text", files / "block.txt", "--args", files / "args.json")
    assert said.out.startswith("branch       without_sp (proven)\ngenerations  G11, G12\n")
    assert "left out" in said.out
    assert "other branch sp_selective" in said.out


def test_card_without_arguments_from_standard_input(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(MPI_TEXT))
    card = json.loads(ask(capsys, "--text", "-", "--format", "json")[1].out)
    assert (card["branch"], card["generations"]) == ("weights_only", ["G06", "G07", "G08"])


def test_whole_logs(capsys, shared):
    for name, branch in (("mpi_7b_fp16_weight_only.log", "weights_only"), ("slurm_70b_tp4_pp8_full_recompute.log", "without_sp")):
        card = json.loads(ask(capsys, "--text", shared / "data/logs/files" / name, "--format", "json")[1].out)
        assert card["branch"] == branch


@pytest.mark.parametrize(("name", "cards"), [
    ("slurm_70b_tp4_pp8_full_recompute", [("without_sp", ["G11", "G12"], "proven")]),
    ("restart_two_runs_one_file", [("weights_only", ["G09"], "proven"), ("sp_selective", ["G09"], "proven")]),
    ("mpi_7b_fp16_weight_only", [("weights_only", ["G06", "G07", "G08"], "shape")]),
])
def test_each_attempt_of_a_log_with_its_own_arguments(capsys, shared, name, cards):
    got = json.loads(ask(capsys, shared / f"data/logs/files/{name}.log", "--format", "json")[1].out)
    got = got if isinstance(got, list) else [got]
    assert [(one["branch"], one["generations"], one["confidence"]) for one in got] == cards
    for one in got:
        assert sum(term["bytes"] for term in one["terms"] if term["part"] == "weight_and_optimizer") == pytest.approx(
            one["weight_and_optimizer_bytes"] or 0, rel=1e-12)


def test_batch_answers_line_by_line_with_errors_inside(capsys, tmp_path):
    lines = [{"text": SLURM_TEXT, "args": SLURM_70B, "num_microbatches": "512"}, {"text": MPI_TEXT}, {"text": SLURM_TEXT, "args": {"num_layers": 4}},
             {"args": {}}, {"text": "nothing"}, {"text": SLURM_TEXT, "args": SLURM_70B, "num_microbatches": 0}, {"text": MPI_TEXT, "args": [1]}]
    path = tmp_path / "batch.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{\n")
    code, said = ask(capsys, "--batch", path, "--format", "json")
    got = [json.loads(line) for line in said.out.splitlines()]
    assert code == 3
    assert got[0]["generations"] == ["G11", "G12"]
    assert got[1]["branch"] == "weights_only"
    assert "argument hidden_size is missing" in got[2]["error"]
    assert got[3]["error"] == "the line has no text"
    assert (got[4]["branch"], got[4]["generations"]) == ("undecided", [])
    assert "num_microbatches is 0" in got[5]["error"]
    assert "no JSON object" in got[6]["error"]
    assert "line 8 is no JSON" in got[7]["error"]


@pytest.mark.parametrize(("change", "sentence"), [
    ({"seq_length": None}, "argument seq_length is missing"),
    ({"num_layers": 81}, "argument pipeline_model_parallel_size is 8 and does not divide num_layers 81"),
    ({"order": "dp"}, "argument order is 'dp' and leaves out tp"),
])
def test_missing_or_contradictory_arguments_are_one_sentence(capsys, files, change, sentence):
    (files / "args.json").write_text(json.dumps({**SLURM_70B, **change}))
    code, said = ask(capsys, "--text", files / "block.txt", "--args", files / "args.json")
    assert code == 2
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not said.out


def test_an_unknown_vocabulary_is_solved_for(capsys, files):
    (files / "args.json").write_text(json.dumps({**SLURM_70B, "padded_vocab_size": "None"}))
    card = json.loads(ask(capsys, "--text", files / "block.txt", "--args", files / "args.json", "--format", "json")[1].out)
    assert (card["generations"], card["solved"]) == (["G11", "G12"], {"padded_vocab_size": 32256})


def test_unreadable_text_and_no_microbatches(capsys, files):
    assert "cannot read the text" in ask(capsys, "--text", files / "none.txt")[1].err
    code, said = ask(capsys, "--text", files / "block.txt", "--microbatches", 0)
    assert code == 2
    assert "num_microbatches is 0; a whole number of at least 1" in said.err


def test_worked_model_is_proven_from_its_own_text(capsys, tmp_path):
    (tmp_path / "args.json").write_text(json.dumps(LLAMA_LIKE))
    main(["theory", "--args", str(tmp_path / "args.json"), "--microbatches", "8", "--generation", "G13", "--format", "json"])
    (tmp_path / "text").write_text(json.loads(capsys.readouterr().out)["printed_text"])
    card = json.loads(ask(capsys, "--text", tmp_path / "text", "--args", tmp_path / "args.json", "--microbatches", 8, "--format", "json")[1].out)
    assert (card["branch"], card["generations"]) == ("sp_selective", ["G13"])
