"""Several processes that ingest the same files at once: every row once, whoever wins."""

import subprocess
import sys
from pathlib import Path

import pytest

from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.conftest import ROOT
from tests.ingest.toy import Toy, log, visible

SCRIPT = """
import sys
from ingest import units
from ingest.pipeline import ingest
from tests.ingest.toy import Toy
units.PARSERS = (Toy(),)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(3):
    ingest([sys.argv[1]], sys.argv[2], workers=1)
"""


def test_processes_ingesting_one_folder_at_once_stay_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.units.PARSERS", (Toy(),))
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(12):
        (folder / f"rank_{rank}.log").write_bytes(log(rank))
    command = [sys.executable, "-c", SCRIPT, str(folder), str(tmp_path / "lake")]
    racers = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        assert [racer.stdout.readline() for racer in racers if racer.stdout] == ["ready\n"] * 3
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for rank in range(12):  # files grow while all are at it
            with (folder / f"rank_{rank}.log").open("ab") as file:
                file.write(log(rank, 20, 25))
        assert [(racer.communicate(timeout=120)[1], racer.returncode) for racer in racers] == [("", 0)] * 3
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    ingest([folder], tmp_path / "lake", workers=1)
    ingest([folder], tmp_path / "whole", workers=1)
    assert visible(Lake(tmp_path / "lake")) == visible(Lake(tmp_path / "whole"))
    assert len(visible(Lake(tmp_path / "lake"))) == 12 * 27
