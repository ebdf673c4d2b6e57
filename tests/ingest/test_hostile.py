"""Everything hostile at once: one sentence each, exit code 3, the other files read, memory below 1 GB."""

import gzip
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPT = """
import resource, sys
from cli import main
code = main(["ingest", sys.argv[1], "--lake", sys.argv[2], "--format", "json", "--workers", sys.argv[3]])
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(f"code {code} peak {peak * 1024}", file=sys.stderr)
"""
GOOD = json.dumps({"rank": 3, "iteration": 1, "stats": {"allocated_bytes.all.current": 5, "allocated_bytes.all.peak": 10**9}}) + "\n"


def write_long_line(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(b"[Rank 0] (after 1 iterations) memory (MB) | ")
        for _ in range(size // 2**20):
            file.write(b"x" * 2**20)
        file.write(b"\n")


def write_bomb(path: Path, size: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("bomb.log", "w", force_zip64=True) as member:
        for _ in range(size // 2**20):
            member.write(bytes(2**20))


def write_hostile(folder: Path, size: int) -> None:
    (folder / "memory_stats_3.jsonl").write_text(GOOD)
    (folder / "empty.log").touch()
    (folder / "loop").symlink_to(folder)
    (folder / "gone.log").symlink_to(folder / "nowhere")
    write_long_line(folder / "long_line.log", size)
    write_bomb(folder / "bomb.zip", size)
    with gzip.open(folder / "bomb.log.gz", "wb", compresslevel=1) as file:
        for _ in range(size // 2**20):
            file.write(bytes(2**20))
    with tarfile.open(folder / "climbing.tar", "w") as archive:
        archive.add(folder / "memory_stats_3.jsonl", arcname="../../memory_stats_4.jsonl")


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_hostile_inputs_of_a_gigabyte(tmp_path: Path, workers: int) -> None:
    (tmp_path / "job").mkdir()
    write_hostile(tmp_path / "job", 2**30)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "job"), str(tmp_path / "lake"), str(workers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=550, check=True)
    said = json.loads(done.stdout)
    _, code, _, peak = done.stderr.split()
    assert (int(code), said["rows"]["memory_stats"]) == (3, 1)
    assert int(peak) < 10**9
    reasons = {Path(problem["path"]).name: problem["reason"] for problem in said["problems"]}
    assert "bomb" in reasons["bomb.log.gz"]
    assert "bomb" in reasons["bomb.log" if "bomb.log" in reasons else "bomb.zip!bomb.log"]
    assert "climbs out" in next(reason for name, reason in reasons.items() if "memory_stats_4" in name)
    assert "cannot be read" in reasons["gone.log"]
