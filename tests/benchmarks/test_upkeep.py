"""The benchmark of upkeep makes a real lake, and thousands of commits compact within a bound of memory."""

import pytest

from benchmarks.upkeep import measured


@pytest.mark.parametrize(("commits", "files"), [(60, 1), pytest.param(50_000, 1, marks=pytest.mark.long)])
def test_small_commits_become_one_file_within_two_gigabytes(commits: int, files: int) -> None:
    found = measured(commits)
    assert (found["same"], found["files"], found["records"]) == (True, files, commits * 8)
    assert found["commits"] >= max(1, commits // 1000)
    assert found["peak_bytes"] < 2 * 1024**3
