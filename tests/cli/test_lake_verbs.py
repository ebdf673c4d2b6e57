"""The verbs that read a lake or a path: report, runs, sql, branch, doctor, on the sample runs and on none."""

from __future__ import annotations

import json
import shutil

import pytest

from cli import main
from ingest.pipeline import ingest
from tests.conftest import ROOT

SAMPLES = ROOT / "sample_data"


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    from ingest.lake import Lake

    root = tmp_path_factory.mktemp("lakes") / "a lake"
    ingest([SAMPLES / name for name in ("dense_7b5_pp2", "moe_16ranks", "oom_run")], Lake(root))
    return str(root)


@pytest.fixture
def ask(capsys):
    def answer(*argv, code=0):
        assert main([str(one) for one in argv]) == code
        return capsys.readouterr()

    return answer


def test_runs_lists_every_attempt(ask, lake):
    found = {one["run"]: one for one in json.loads(ask("runs", "--lake", lake, "--format", "json").out)}
    assert set(found) == {"dense_7b5_pp2", "moe_16ranks", "oom_run"}
    assert (found["moe_16ranks"]["world_size"], found["moe_16ranks"]["ranks_seen"]) == (16, 15)
    assert "15 of 16" in ask("runs", "--lake", lake).out


def test_report_of_a_run_and_of_its_folder_agree(ask, lake):
    named = json.loads(ask("report", "moe_16ranks", "--lake", lake, "--format", "json").out)
    straight = json.loads(ask("report", SAMPLES / "moe_16ranks", "--format", "json").out)
    assert [rank["max_reserved_bytes"] for rank in named["ranks"]] == [rank["max_reserved_bytes"] for rank in straight["ranks"]]
    assert (named["run"]["name"], len(named["ranks"]), named["run"]["pp"]) == ("moe_16ranks", 15, 2)
    assert named["run"]["verdict"] == {**straight["run"]["verdict"], "evidence": named["run"]["verdict"]["evidence"]}


def test_report_of_a_file_in_every_form(ask):
    path = SAMPLES / "dense_7b5_pp2" / "train.log"
    text = ask("report", path).out
    assert text.startswith("dense_7b5_pp2/train, attempt 0")
    assert f"> {path}:" in text
    assert ask("report", path, "--format", "markdown").out.startswith("# dense")
    assert json.loads(ask("report", f"{path}#0", "--format", "json").out)["theory"]["total_bytes"] > 0


def test_report_of_an_out_of_memory_run(ask, lake):
    found = json.loads(ask("report", "oom_run", "--lake", lake, "--format", "json").out)
    assert (found["run"]["verdict"]["level"], found["oom"][0]["evidence"][0]["line"]) == ("oom", found["run"]["verdict"]["evidence"][0]["line"])


def test_a_capacity_changes_the_verdict(ask):
    path = SAMPLES / "dense_7b5_pp2" / "train.log"
    found = json.loads(ask("report", path, "--capacity", "H100-80", "--format", "json").out)
    assert found["ranks"][0]["capacity_source"] == "usual for H100-80"
    assert "79.2GiB" in ask("report", path, "--capacity", "large", code=2).err


def test_branch_of_a_run(ask, lake):
    card = json.loads(ask("branch", "dense_7b5_pp2", "--lake", lake, "--format", "json").out)
    assert card["confidence"] == "proven"
    assert (card["run"], card["run_index"]) == ("dense_7b5_pp2", 0)
    straight = json.loads(ask("branch", SAMPLES / "dense_7b5_pp2" / "train.log", "--format", "json").out)
    assert straight["generations"] == card["generations"]


def test_sql_in_every_form_and_cut_rows(ask, lake):
    query = "SELECT run, COUNT(*) AS ranks FROM rank_latest WHERE rank IS NOT NULL GROUP BY run ORDER BY run"
    assert "moe_16ranks" in ask("sql", query, "--lake", lake).out
    assert json.loads(ask("sql", query, "--lake", lake, "--format", "json").out)[1] == {"run": "moe_16ranks", "ranks": 15}
    capped = ask("sql", "SELECT rank FROM rank_memory", "--lake", lake, "--rows", 3, "--format", "csv")
    assert (len(capped.out.splitlines()), capped.err) == (4, "hbmledger: only the first 3 rows are shown; --rows N shows more\n")
    assert capped.out.splitlines()[0] == "rank"


def test_doctor_counts_what_a_lake_holds(ask, lake, tmp_path):
    checks = {one["name"]: one for one in json.loads(ask("doctor", "--lake", lake, "--format", "json").out)}
    assert checks["contents"]["found"].startswith("attempts 3, ")
    assert checks["duckdb"]["fine"]
    assert checks["write access"]["fine"]
    assert f"none at {tmp_path / 'no'}" in ask("doctor", "--lake", tmp_path / "no", code=2).out


@pytest.mark.parametrize("argv", [("report", "moe"), ("report", "moe_16ranks#4"), ("branch", "moe"), ("runs",), ("sql", "SELECT 1")])
def test_what_is_not_there_ends_in_one_sentence(ask, lake, tmp_path, argv):
    where = tmp_path / "no" if argv[0] in ("runs", "sql") else lake
    told = ask(*argv, "--lake", where, code=2)
    assert told.out == ""
    assert told.err.startswith("hbmledger: ")
    assert told.err.count("\n") == 1


def test_paths_that_hold_nothing(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HBMLEDGER_LAKE", raising=False)
    (tmp_path / "empty.log").touch()
    assert "Cannot judge" in ask("report", "empty.log").out
    (tmp_path / "folder").mkdir()
    assert "hbmledger: " in ask("report", "folder", code=2).err
    assert "no such file" in ask("report", "./missing.log", code=2).err
    assert "no lake" in ask("report", "some_run", code=2).err


def test_an_archive_is_read_straight(ask, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "runs"), "zip", SAMPLES, "moe_16ranks")
    found = json.loads(ask("report", archive, "--format", "json").out)
    assert len(found["ranks"]) == 15
