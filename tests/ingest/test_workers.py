"""Worker processes: the same rows as in one process, and a file that kills its worker is told."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ingest import units
from ingest.lake import Lake
from ingest.pipeline import ingest
from ingest.planning import Job
from ingest.units import Outcome, Place
from tests.conftest import ROOT
from tests.ingest.toy import visible

FILES = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    for rank in range(FILES):
        line = {"rank": rank, "iteration": 1, "stats": {"allocated_bytes.all.current": 10**9 + rank, "allocated_bytes.all.peak": 2 * 10**9}}
        (tmp_path / f"job/memory_stats_{rank}.jsonl").write_text(json.dumps(line) + "\n")
    return tmp_path / "job"


def deadly(jobs: Sequence[Job], place: Place) -> Outcome:
    """Stands for a parser that the system kills on one file."""
    if any(job.path.endswith("stats_7.jsonl") and not job.problem for job in jobs):
        os.kill(os.getpid(), signal.SIGKILL)
    return units.read_unit(jobs, place)


def test_two_workers_give_the_rows_of_one(folder: Path, tmp_path: Path) -> None:
    assert ingest([folder], tmp_path / "two", workers=2).files_new == FILES
    ingest([folder], tmp_path / "one", workers=1)
    rows = visible(Lake(tmp_path / "two"))
    assert len(rows) == FILES
    assert rows == visible(Lake(tmp_path / "one"))


def test_a_file_that_kills_its_worker_is_quarantined_and_the_others_are_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.workers.read_unit", deadly)
    monkeypatch.setattr("ingest.workers._UNIT_FILES", 20)
    summary = ingest([folder], tmp_path / "lake", workers=2)
    assert [Path(path).name for path, _ in summary.problems] == ["memory_stats_7.jsonl"]
    assert "ended by the system" in summary.problems[0][1]
    assert (summary.files_new, len(visible(Lake(tmp_path / "lake")))) == (FILES - 1, FILES - 1)


def test_a_script_without_a_guard_may_ingest(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"from ingest.pipeline import ingest\nprint(ingest([{str(folder)!r}], {str(tmp_path / 'lake')!r}, workers=2).files_new)\n")
    done = subprocess.run([sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == (f"{FILES}\n", "")


KILLED = """
import os, signal, sys
from ingest.workers import _pool
pool = _pool(1)
print(pool.submit(os.getpid).result(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_the_process_that_began_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120, check=False)
    worker, deadline = int(done.stdout), time.monotonic() + 60
    assert done.returncode == -signal.SIGKILL
    while _lives(worker):
        assert time.monotonic() < deadline, "the worker goes on without its parent"
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
