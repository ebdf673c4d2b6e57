"""What a user does wrong, or finds broken, ends in one sentence: never in a traceback, never in an answer that looks right."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from cli import main
from ingest.lake import Lake
from ingest.pipeline import ingest

LINE = "[Rank 2] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 4.0 | max reserved: 4.0\n"
ARGS = ('{"hidden_size": 8, "num_layers": 2, "num_attention_heads": 2, "seq_length": 8, "micro_batch_size": 1, '
        '"padded_vocab_size": 8, "world_size": 1}')


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(LINE)
    return path


def sentence(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert main([str(one) for one in argv]) == 2
    told = capsys.readouterr().err
    assert told.startswith("hbmledger: ")
    assert told.count("\n") == 1
    return told


@pytest.mark.parametrize("name", ["lake [x]", "lake%20a"])
def test_a_lake_path_that_the_table_format_cannot_address_is_refused(capsys, tmp_path, log, name):
    assert "cannot address" in sentence(capsys, "ingest", log, "--lake", tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_damaged_file_of_a_lake_is_told(capsys, tmp_path, log):
    lake = tmp_path / "lake"
    ingest([log], Lake(lake), run="train")
    (file,) = [Path(one) for one in Lake(lake).uris("rank_memory")]
    for damage in (lambda: file.write_bytes(os.urandom(500)), file.unlink):
        damage()
        for verb in (["report", "train"], ["runs"], ["sql", "SELECT count(*) FROM rank_memory"]):
            assert "rank_memory is lost or damaged" in sentence(capsys, *verb, "--lake", lake)


def test_a_run_whose_name_looks_like_an_attempt_is_found(capsys, tmp_path, log):
    ingest([log], Lake(tmp_path / "lake"), run="night#1")
    assert main(["report", "night#1", "--lake", str(tmp_path / "lake")]) == 0
    assert "rank" in capsys.readouterr().out.lower()


def test_an_archive_is_no_log_to_parse(capsys, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("train.log", LINE)
    assert "archives" in sentence(capsys, "parse", tmp_path / "a.zip")


def test_what_is_no_regular_file_is_refused(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe.log")
    assert "no regular file" in sentence(capsys, "parse", tmp_path / "pipe.log")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_output_is_told(log):
    import subprocess
    import sys

    code = "import sys; from cli import main; sys.exit(main(sys.argv[1:]))"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code, "report", str(log)], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr


def test_an_input_without_a_record_is_no_run_to_report(tmp_path, log):
    (tmp_path / "notes.log").write_text("nothing here\n")
    assert ingest([tmp_path], Lake(tmp_path / "lake")).runs in (("train",), (f"{tmp_path.name}/train",))


def test_a_rank_beyond_the_world_size_and_figures_that_cannot_be_true_are_told(capsys, tmp_path):
    path = tmp_path / "odd.log"
    zeros = LINE.replace("Rank 2", "Rank 3").replace("1.5", "0.0").replace("2.5", "0.0").replace("4.0", "0.0")
    path.write_text("using world size: 8, data-parallel-size: 1, tensor-model-parallel size: 8, pipeline-model-parallel size: 1 \n"
                    + LINE + LINE.replace("Rank 2", "Rank 9") + zeros)
    assert main(["report", str(path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "rank 9 contradicts the world size of 8" in told
    assert "1 memory record left out: the figures cannot be true" in told


@pytest.mark.parametrize("verb", ["theory", "expected"])
def test_arguments_nested_too_deeply_are_told(capsys, tmp_path, verb):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert "nested too deeply" in sentence(capsys, verb, "--args", tmp_path / "deep.json")


@pytest.mark.parametrize("command", [["theory", "--args"], ["expected", "--args"], ["branch", "--text"]])
def test_input_without_end_is_refused(capsys, monkeypatch, command):
    monkeypatch.setattr("cli.given.MOST_JSON_BYTES", 1 << 20)
    monkeypatch.setattr("cli.given.MOST_TEXT_BYTES", 1 << 20)
    assert "longer than 1 MiB" in sentence(capsys, *command, "/dev/zero")


def test_arguments_with_a_byte_order_mark_are_read(capsys, tmp_path):
    (tmp_path / "args.json").write_bytes(b'\xef\xbb\xbf{"hidden_size": 8}')
    assert "num_layers is missing" in sentence(capsys, "theory", "--args", tmp_path / "args.json")


@pytest.mark.parametrize("verb", ["theory", "expected", "branch"])
def test_every_line_of_a_batch_is_answered(capsys, monkeypatch, tmp_path, verb):
    monkeypatch.setattr("cli.given.MOST_LINE_BYTES", 1000)
    lines = [b"{}", b"\xff\xfe", b"[" * 900, b"nonsense", b"[1]", b'{"text": 3, "args": [1]}', b"x" * 5000, b'{"args": {"hidden_size": NaN}}', b"{}"]
    (tmp_path / "batch.jsonl").write_bytes(b"\n".join(lines))
    assert main([verb, "--batch", str(tmp_path / "batch.jsonl")]) == 2
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == len(lines)
    assert all(answer["error"] for answer in answers)
    assert "line 7 is longer" in answers[6]["error"]


@pytest.mark.parametrize("steps", [0, -1])
def test_a_number_of_steps_below_one_is_refused(capsys, tmp_path, steps):
    assert "--steps" in sentence(capsys, "expected", "--args", tmp_path / "none.json", "--steps", steps)


@pytest.mark.parametrize("microbatches", [0, 10**16])
def test_a_number_of_micro_batches_that_no_step_has_is_refused(capsys, tmp_path, microbatches):
    (tmp_path / "args.json").write_text(ARGS)
    assert "num_microbatches" in sentence(capsys, "expected", "--args", tmp_path / "args.json", "--microbatches", microbatches)


def test_an_empty_generation_is_none(capsys, tmp_path):
    (tmp_path / "args.json").write_text(ARGS)
    assert "generation is ''" in sentence(capsys, "theory", "--args", tmp_path / "args.json", "--generation", "")


@pytest.mark.parametrize("verb", ["report", "check", "plan"])
@pytest.mark.parametrize("what", ["", "/dev/null", "pipe"])
def test_what_is_no_file_is_told(capsys, tmp_path, monkeypatch, verb, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text(LINE)
    os.mkfifo(tmp_path / "pipe")
    assert ("name of a run" if not what else "not a regular file") in sentence(capsys, verb, what)


def test_a_name_that_is_neither_file_nor_run_is_told_without_a_lake(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HBMLEDGER_LAKE", raising=False)
    assert "nightly" in sentence(capsys, "report", "nightly")


def test_ranks_without_end_are_not_listed(capsys, tmp_path):
    (tmp_path / "args.json").write_text(ARGS.replace('"world_size": 1', f'"world_size": {2**40}'))
    assert "--by stage" in sentence(capsys, "expected", "--args", tmp_path / "args.json", "--microbatches", 8)


@pytest.mark.parametrize("option", [["--rows", 0], ["--rows", -1], ["--seconds", "nan"], ["--seconds", 0], ["--seconds", -1], ["--seconds", "inf"]])
def test_limits_of_a_query_that_are_none_are_refused(capsys, option):
    assert option[0] in sentence(capsys, "sql", "SELECT 1", *option)


def test_a_query_answers_in_valid_json(capsys, tmp_path, log):
    ingest([log], Lake(tmp_path / "lake"))
    query = "SELECT 'NaN'::DOUBLE AS a, ['inf'::DOUBLE, 1.5] AS b, {'c': '-inf'::DOUBLE} AS d, map([1], ['nan'::DOUBLE]) AS e"
    assert main(["sql", query, "--lake", str(tmp_path / "lake"), "--format", "json"]) == 0
    assert capsys.readouterr().out.split() == json.dumps([{"a": None, "b": [None, 1.5], "d": {"c": None}, "e": {"1": None}}], indent=1).split()


def test_a_table_whose_log_is_lost_is_told(capsys, monkeypatch, tmp_path, log):
    monkeypatch.chdir(tmp_path)
    ingest([log], Lake(tmp_path / "whole"), run="train")
    log.write_text(LINE + LINE.replace("(after 2", "(after 3"))
    for table in ("artifacts", "rank_memory"):
        lake = shutil.copytree(tmp_path / "whole", tmp_path / f"without {table}")
        shutil.rmtree(lake / table / "_delta_log")
        for verb in (["report", "train"], ["check", "train"], ["runs"], ["sql", "SELECT count(*) FROM rank_memory"], ["ingest", "train.log"]):
            assert f"the log of the table {table}" in sentence(capsys, *verb, "--lake", lake)
