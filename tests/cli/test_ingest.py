"""The verb `ingest`: what it says and how it ends."""

import json
from pathlib import Path

import pytest

from cli import main

LINE = json.dumps({"rank": 3, "iteration": 1, "stats": {"allocated_bytes.all.current": 5, "allocated_bytes.all.peak": 10**9}}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/memory_stats_3.jsonl").write_text(LINE)
    return tmp_path / "job"


def test_a_folder_and_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(folder.parent / "lake")
    assert main(["ingest", str(folder), "--lake", lake, "--format", "text"]) == 0
    out, err = capsys.readouterr()
    assert "1 file seen: 1 new." in out
    assert "Run: job. Next: hbmledger report job" in out
    assert err == ""
    assert main(["ingest", str(folder), "--lake", lake]) == 0
    assert capsys.readouterr().out == "1 file: 1 already known\n"


def test_json_says_all_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(folder), "--lake", str(folder.parent / "lake"), "--run", "mine", "--cluster", "c1", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["files_new"], said["runs"], said["rows"], said["problems"], said["exit_code"]) == (
        1, ["mine"], {"memory_stats": 1, "rank_memory": 1}, [], 0
    )


def test_bad_input_ends_in_three_and_the_others_are_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.zip").write_bytes(b"PK\x03\x04 not really")
    assert main(["ingest", str(folder), "--lake", str(folder.parent / "lake")]) == 3
    out, err = capsys.readouterr()
    assert "1 new, 1 quarantined" in out
    assert len(err.splitlines()) == 1
    assert "bad.zip: the archive is damaged" in err


@pytest.mark.parametrize(("arguments", "sentence"), [
    ([], "nothing to read is named"), ([".", "--rank", "-1"], "a rank is a number"), ([".", "--since", "soon"], "--since is 'soon'"),
    ([".", "--include", "{x"], "a brace"), ([".", "--config", "absent.toml"], "the settings cannot be read"), (["absent"], "no such file or folder"),
    ([".", "--run", ""], "a run's name"), ([".", "--cluster", "a/b"], "a cluster's name"),
    ([".", "--workers", "0"], "at least one process"),
])
def test_mistakes_are_one_sentence(arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", *arguments, "--lake", str(tmp_path / "lake")]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_many_problems_are_told_briefly(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(60):
        (folder / f"bad{number}.zip").write_bytes(b"PK\x03\x04 not really")
    assert main(["ingest", str(folder), "--lake", str(folder.parent / "lake")]) == 3
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 51
    assert "and 10 more" in err[-1]
