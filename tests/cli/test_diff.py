"""`hbmledger diff`: its exit codes, its JSON, paths and runs, and the user's mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import main
from ingest.lake import Lake
from ingest.pipeline import ingest

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_data"


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    root = tmp_path_factory.mktemp("diff") / "lake"
    ingest([SAMPLES / "dense_7b5_pp2" / "train.log", SAMPLES / "oom_run"], Lake(root))
    return str(root)


def runs(lake):
    from analysis.database import connect

    return [row[0] for row in connect(Lake(lake)).execute("SELECT DISTINCT run FROM run_attempts ORDER BY run").fetchall()]


def test_a_run_against_itself_is_exit_code_0(lake, capsys):
    assert main(["diff", "oom_run", "oom_run", "--lake", lake]) == 0
    assert "Nothing differs." in capsys.readouterr().out


def test_two_runs_differ_by_what_explains_most(lake, capsys):
    dense = next(name for name in runs(lake) if "dense" in name)
    assert main(["diff", dense, "oom_run#0", "--lake", lake, "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["before"], found["after"]) == (f"{dense}#0", "oom_run#0")
    sizes = [abs(one["explains_bytes"] or 0) for one in found["changes"]]
    assert sizes == sorted(sizes, reverse=True)
    assert found["changes"][0]["name"] == "use_distributed_optimizer"


def test_a_path_is_a_side(lake, capsys):
    assert main(["diff", str(SAMPLES / "oom_run"), str(SAMPLES / "oom_run")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("pair", "words"), [(("no_such_run", "oom_run"), "no run 'no_such_run'"), (("oom_run#9", "oom_run"), "no attempt 9"),
                                             (("", "oom_run"), "name of a run is empty")])
def test_mistakes_are_one_sentence(lake, capsys, pair, words):
    assert main(["diff", *pair, "--lake", lake]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


def test_nothing_to_compare_is_exit_code_2(tmp_path, capsys):
    log = tmp_path / "empty.log"
    log.write_text(" iteration       10/     100 | elapsed time per iteration (ms): 100.0 | learning rate: 1.0E-4 |\n")
    assert main(["diff", str(log), str(log)]) == 2
    assert "Not comparable" in capsys.readouterr().out
