"""Two clusters that gave a run of theirs the same name: asked for apart, listed apart, never put together."""

from __future__ import annotations

import json

import pytest

from cli import main
from ingest.pipeline import ingest
from tests.cli.test_check import CLEAR, DIED


@pytest.fixture
def lake(tmp_path):
    for cluster, text in (("east", CLEAR), ("west", CLEAR + "[rank0]: " + DIED)):
        folder = tmp_path / cluster
        folder.mkdir()
        (folder / "train.log").write_text(text)
        ingest([folder], tmp_path / "lake", run="same", cluster=cluster)
    (tmp_path / "other.log").write_text("another run\n" + CLEAR)
    ingest([tmp_path / "other.log"], tmp_path / "lake", run="a/b", cluster="east")
    return str(tmp_path / "lake")


def test_a_name_of_two_clusters_is_not_answered_for_both(lake, capsys):
    assert main(["report", "same", "--lake", lake]) == 2
    assert "2 clusters have a run 'same': east, west" in (told := capsys.readouterr().err)
    assert "name one of them, as east/same" in told


@pytest.mark.parametrize(("name", "errors", "records"), [("east/same", 0, 8), ("west/same", 1, 8)])
def test_each_is_answered_for_by_its_own_records(lake, capsys, name, errors, records):
    assert main(["report", name, "--lake", lake, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run"]["name"], len(found["oom"]), found["ranks"][0]["records"]) == ("same", errors, records)


def test_a_name_with_a_stroke_is_a_name(lake, capsys):
    assert main(["report", "a/b", "--lake", lake, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["name"] == "a/b"


def test_a_cluster_without_that_run_is_told(lake, capsys):
    assert main(["report", "north/same", "--lake", lake]) == 2
    assert "no run 'north/same'" in capsys.readouterr().err


def test_the_list_tells_clusters(lake, capsys):
    assert main(["runs", "--lake", lake, "--format", "json"]) == 0
    assert [(one["cluster"], one["run"], one["out_of_memory"]) for one in json.loads(capsys.readouterr().out)] == [
        ("east", "a/b", 0), ("east", "same", 0), ("west", "same", 1)]
    assert main(["runs", "--lake", lake]) == 0
    assert capsys.readouterr().out.split()[0] == "cluster"


def test_all_are_checked_and_compared(lake, capsys):
    assert main(["check", "--lake", lake, "--capacity", "80GiB"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told if line.split()[1].startswith(("a/b", "east/same", "west/same"))] == ["clear", "clear", "fails"]
    assert [name for line in told for name in line.split() if name.endswith("same#0:")] == ["east/same#0:", "west/same#0:"]
    assert main(["diff", "east/same", "west/same", "--lake", lake]) in (0, 1)
    assert capsys.readouterr().out.splitlines()[0] == "east/same#0 -> west/same#0"
