"""Runs from paths: ranks of one log are one run, two jobs in one folder are two, every machine says the same."""

import pytest

from ingest.naming import base_name, run_names, same_place, split


def names(root: str | None, *paths: str) -> list[str]:
    base = root or "/data"
    named = run_names([(f"{base}/{path}", root) for path in paths])
    return [named[f"{base}/{path}"] for path in paths]


def test_rank_files_of_one_folder_are_one_run() -> None:
    assert names("/d/jobs", "a/rank_0.log", "a/rank-03.log", "a/rank12.log.gz") == ["a"] * 3
    assert names("/d/jobs", "a/train.node0.rank1.log", "a/train.node1.rank9.log") == ["a"] * 2
    assert names("/d/jobs", "node0/train.log", "node1/train.log") == ["jobs"] * 2


def test_torchelastic_layout_is_one_run() -> None:
    assert names("/d/x", "attempt_0/0/stdout.log", "attempt_0/3/stdout.log", "attempt_0/3/stderr.log", "attempt_1/3/stdout.log") == ["x"] * 4
    assert names("/d/x", "0/stdout.log", "1/stdout.log") == ["x"] * 2


def test_two_jobs_in_one_folder_are_two_runs() -> None:
    assert names("/d/jobs", "jobA.log", "jobA.log.1", "jobB.log") == ["jobs/jobA", "jobs/jobA", "jobs/jobB"]


def test_auxiliary_files_belong_to_the_run_of_their_folder() -> None:
    assert names(
        "/d", "r/train.log", "r/memory_stats_3.json", "r/tokens_per_expert.jsonl", "r/snapshots/rank0.pickle", "r/nccl.rank2.log"
    ) == ["r"] * 5
    assert names("/d/m", "memory_stats/rank_0.json", "memory_stats/rank_1.json") == ["m"] * 2
    steps = ("memory_snapshot/iteration_10/rank0_memory_snapshot.pickle", "memory_snapshot/iteration_12_exit/rank3_memory_snapshot.pickle")
    assert names("/d/m", *steps) == ["m"] * 2
    assert names(None, *steps) == ["data"] * 2


def test_scripts_and_notes_beside_a_log_make_no_runs() -> None:
    assert names("/d", "r/train.log", "r/launch.sh", "r/README.md", "r/config.yaml", "r/train.py") == ["r"] * 5


def test_the_given_folder_gives_its_own_name_and_nested_ones_their_path() -> None:
    assert names("/d/jobs", "train.log") == ["jobs"]
    assert names("/d/jobs", "x/a/train.log", "y/a/train.log") == ["x/a", "y/a"]


def test_files_given_by_themselves() -> None:
    assert names(None, "x/train.log", "y/train.log") == ["x/train", "y/train"]
    assert names(None, "x/rank_0.log", "x/rank_1.log") == ["x", "x"]
    assert names(None, "x/train.log", "x/memory_stats_0.json") == ["x/train", "x/train"]


def test_an_archive_is_a_folder_of_its_name() -> None:
    assert names("/d", "logs.tar.gz!rank0.log", "logs.tar.gz!rank1.log") == ["logs", "logs"]
    assert names("/d", "all.zip!a/rank0.log", "all.zip!b/rank0.log") == ["all/a", "all/b"]


@pytest.mark.parametrize(("one", "other", "same"), [
    ("/a/rank0.log", "/b/rank_00.log", True), ("/a/rank0.log", "/a/rank1.log", False), ("/a/rank3.log", "/backup/some.log", True),
    ("/a/attempt_0/0/stdout.log", "/a/attempt_0/1/stdout.log", False), ("/a/memory_stats_0.json", "/a/memory_stats_1.json", False),
    ("/a/n.zip!rank0.log", "/a/rank0.log", True),
])
def test_names_that_prove_different_ranks(one: str, other: str, same: bool) -> None:
    assert same_place(one, other) is same


def test_rotation_keeps_the_base_name() -> None:
    assert {base_name(f"/x/{name}") for name in ("train.log", "train.log.1", "train.log.2.gz", "TRAIN.log.zst")} == {"train"}


def test_a_file_with_no_number_is_its_own_stem() -> None:
    named = split("/d/llama70b_tp4.log")
    assert (named.folder, named.stem, named.tokens) == ("/d", "llama70b_tp4", ())
