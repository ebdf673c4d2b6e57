"""The verb `watch` and a stop of `ingest`: rounds, what they say, and that a stop loses nothing that was read."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli import main
from cli.stopping import Stop
from ingest.lake import Lake
from tests.conftest import ROOT


def stats(rank: int, steps: int) -> str:
    line = {"rank": rank, "stats": {"allocated_bytes.all.current": 5, "allocated_bytes.all.peak": 10**9}}
    return "".join(json.dumps(line | {"iteration": step}) + "\n" for step in range(steps))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/memory_stats_3.jsonl").write_text(stats(3, 1))
    return tmp_path / "job"


def test_one_round_by_settings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.parent / "my.toml").write_text('lake = "lake"\npaths = ["job"]\nexclude = ["*.tmp"]\ncluster = "east"\nevery = "5m"\n')
    (folder / "x.tmp").write_text("x")
    assert main(["watch", "--config", str(folder.parent / "my.toml"), "--once"]) == 0
    out, err = capsys.readouterr()
    assert "1 file: 1 new, 1 left out by choice; 1 record kept" in out or "1 file: 1 new, 1 left out by choice; 2 records kept" in out
    assert (len(out.splitlines()), err) == (1, "")
    assert [source.cluster for source in Lake(folder.parent / "lake").sources()] == ["east"]


def test_the_first_round_has_to_work_and_a_bad_file_is_the_exit_code_of_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(folder / "absent"), "--lake", str(folder.parent / "lake")]) == 2
    assert main(["watch", str(folder), "--every", "never"]) == 2
    (folder / "bad.zip").write_bytes(b"PK\x03\x04 not really")
    capsys.readouterr()
    assert main(["watch", str(folder), "--lake", str(folder.parent / "lake"), "--once"]) == 3
    assert "bad.zip" in capsys.readouterr().err


def test_later_rounds_go_on_after_an_error_and_tell_a_sentence_once(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    (folder / "bad.zip").write_bytes(b"PK\x03\x04 not really")
    rounds = iter([None, "gone", "back", "stop"])

    def wait(stop: Stop, seconds: float) -> bool:
        what = next(rounds)
        if what == "gone":
            folder.rename(folder.parent / "aside")
        elif what == "back":
            (folder.parent / "aside").rename(folder)
        return what == "stop"

    monkeypatch.setattr(Stop, "wait", wait)
    assert main(["watch", str(folder), "--lake", str(folder.parent / "lake")]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert [("bad.zip" in line, "tried again in the next round" in line) for line in err.splitlines()] == [(True, False), (False, True)]


SLOW = """
import sys
from ingest import units, workers
read = units.read_unit
def slow(jobs, place):
    outcome = read(jobs, place)
    print("read", flush=True)
    sys.stdin.readline()
    return outcome
workers.read_unit, workers._UNIT_FILES = slow, 1
from cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("verb", "number", "code"), [("ingest", signal.SIGINT, 130), ("ingest", signal.SIGTERM, 143), ("watch", signal.SIGTERM, 0)])
def test_a_stop_commits_the_files_under_way(folder: Path, verb: str, number: int, code: int) -> None:
    (folder / "memory_stats_4.jsonl").write_text(stats(4, 1))
    lake = folder.parent / "lake"
    command = [sys.executable, "-c", SLOW, verb, str(folder), "--lake", str(lake), "--workers", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "read\n"
        os.kill(process.pid, number)
        assert process.stderr
        assert "is committed first" in process.stderr.readline()
        out, err = process.communicate("\n\n", timeout=120)
    assert (process.returncode, err) == (code, "")
    assert "stopped: what was read is in the lake, 1 file left for the next time" in out
    assert len(Lake(lake).sources()) == 1
