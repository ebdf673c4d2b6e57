"""Files that do not simply grow: cut off, begun anew, replaced, rotated, written whole again; each told in a sentence, nothing twice."""

import gzip
import os
import pickle
from pathlib import Path

import pytest

from ingest.choice import Choice
from ingest.globs import pattern
from ingest.lake import Lake
from ingest.pipeline import Summary, ingest
from ingest.settings import settings_of
from tests.ingest.toy import log, toy, visible

__all__ = ["toy"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def notes(summary: Summary) -> list[str]:
    return [sentence for _, sentence in summary.notes]


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("size", [100, 700, 5000])
def test_a_log_cut_off_keeps_its_rows_and_is_told(folder: Path, lake: Lake, size: int) -> None:
    data = log(0, 0, 400)
    (folder / "train.log").write_bytes(data)
    ingest([folder], lake, workers=1)
    rows = visible(lake)
    (folder / "train.log").write_bytes(data[:size])
    summary = ingest([folder], lake, workers=1)
    assert (summary.files_unchanged, summary.files_new, summary.exit_code) == (1, 0, 0)
    assert "is shorter" in notes(summary)[0]
    assert visible(lake) == rows
    (folder / "train.log").write_bytes(data + log(0, 400, 410))
    assert ingest([folder], lake, workers=1).files_grown == 1
    assert len(visible(lake)) == len(rows) + 10


@pytest.mark.usefixtures("toy")
def test_a_log_begun_anew_is_read_once_it_differs(folder: Path, lake: Lake) -> None:
    banner = b"the same lines at each start\n" * 10
    (folder / "train.log").write_bytes(banner + log(0, 0, 400))
    ingest([folder], lake, workers=1)
    (folder / "train.log").write_bytes(banner[:200])
    assert ingest([folder], lake, workers=1).files_new == 0
    (folder / "train.log").write_bytes(banner + log(5, 0, 30))
    summary = ingest([folder], lake, workers=1)
    assert (summary.files_new, summary.runs) == (1, ("job@2",))
    assert "replaced, taken for another job, run job@2" in notes(summary)[0]
    assert ingest([folder], lake, workers=1).notes == ()


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("rotated", ["train.log.1", "train.log.1.gz", "train.log-20260701", "train.log.2026-07-01.gz"])
def test_rotation_goes_on_with_the_run(folder: Path, lake: Lake, rotated: str) -> None:
    (folder / "train.log").write_bytes(log(0, 0, 40))
    ingest([folder], lake, workers=1)
    data = log(0, 0, 50)
    os.remove(folder / "train.log")
    (folder / rotated).write_bytes(gzip.compress(data) if rotated.endswith("gz") else data)
    (folder / "train.log").write_bytes(log(0, 50, 60))
    summary = ingest([folder], lake, workers=1)
    assert (summary.files_new, summary.files_grown, summary.files_moved, summary.notes, summary.runs) == (1, 1, 1, (), ("job",))
    assert len(visible(lake)) == 62


@pytest.mark.usefixtures("toy")
def test_a_copy_is_told_from_a_file_that_differs_in_its_middle(folder: Path, lake: Lake) -> None:
    data = bytearray(b"mem 1 1 1\n" * 9000)
    (folder / "a.log").write_bytes(data)
    (folder / "b.log").write_bytes(data)
    data[70_000:70_010] = b"mem 1 1 2\n"
    (folder / "c.log").write_bytes(data)
    summary = ingest([folder], lake, workers=1)
    assert (summary.files_new, summary.files_unchanged) == (2, 1)


def snapshot(megabytes: float, value: int) -> bytes:
    """A snapshot whose differing number stands behind its first 64 KiB and before its last 4 KiB."""
    count = int(megabytes * 500_000)
    block = {"size": 2 << 20, "requested_size": value, "address": 1 << 30, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "address": 1 << 30, "total_size": 2 << 20, "allocated_size": value, "active_size": value, "requested_size": value,
               "stream": 0, "segment_type": "large", "blocks": [block]}
    return pickle.dumps({"device_traces": [[]], "segment_type": "", "a": "x" * count, "segments": [segment], "z": "y" * count}, protocol=4)


def test_a_snapshot_written_anew_in_its_middle_is_read_again(folder: Path, lake: Lake) -> None:
    file = folder / "memory_snapshot_rank3.pickle"
    first, second = snapshot(0.2, 1_000_000), snapshot(0.2, 1_000_001)
    assert len(first) == len(second)
    assert (first[:65536], first[-4096:]) == (second[:65536], second[-4096:])
    file.write_bytes(first)
    assert ingest([folder], lake, workers=1).files_new == 1
    os.utime(file, ns=(10**18, 10**18))
    assert ingest([folder], lake, workers=1).files_unchanged == 1
    file.write_bytes(second)
    summary = ingest([folder], lake, workers=1)
    assert (summary.files_new, summary.runs) == (1, ("job",))
    assert "was written anew since it was read" in notes(summary)[0]
    assert ingest([folder], lake, workers=1).files_unchanged == 1


def test_the_rank_of_records_that_name_none(folder: Path, lake: Lake) -> None:
    (folder / "snapshot.pickle").write_bytes(snapshot(0.01, 7))
    ingest([folder], lake, workers=1, rank=12)
    from analysis.database import connect

    assert connect(lake).execute("SELECT DISTINCT rank FROM snapshots").fetchall() == [(12,)]


@pytest.mark.usefixtures("toy")
def test_files_by_pattern_and_age(folder: Path, lake: Lake) -> None:
    from datetime import UTC, datetime

    for name in ("a/rank_0.log", "a/rank_1.log.1", "a/notes.txt", "checkpoints/x/rank_2.log", "old/rank_3.log"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(log(int(name[-5]) if name.endswith(".log") else 1))
    os.utime(folder / "old/rank_3.log", (10**9, 10**9))
    choice = Choice((pattern("*.log"),), (pattern("checkpoints/**"),), datetime(2020, 1, 1, tzinfo=UTC))
    summary = ingest([folder], lake, workers=1, choice=choice)
    assert (summary.files_new, summary.files_left_out) == (2, 2)
    assert summary.runs == ("a",)


@pytest.mark.usefixtures("toy")
def test_runs_and_clusters_are_named_by_patterns(folder: Path, lake: Lake) -> None:
    for name in ("east/ann/night/rank_0.log", "west/bob/day/rank_0.log", "other.log"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(log(len(name)))
    settings = settings_of(b'cluster = "rest"\n[[names]]\npath = "job/{cluster}/{user}/{run}/**"\nrun = "{user}-{run}"\n', "x.toml")
    ingest([folder], lake, workers=1, choice=Choice(naming=settings))
    assert {(source.run, source.cluster) for source in lake.sources()} == {("ann-night", "east"), ("bob-day", "west"), ("job", "rest")}
    ingest([folder], lake, workers=1, run="mine", cluster="c", choice=Choice(naming=settings))
    assert len(lake.sources()) == 3


@pytest.mark.usefixtures("toy")
def test_a_stop_commits_what_was_read(folder: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.workers._UNIT_FILES", 2)
    for rank in range(6):
        (folder / f"rank_{rank}.log").write_bytes(log(rank))
    stopped = []

    def progress(stage: str, done: int, total: int, path: str) -> None:
        stopped.extend([1] if stage == "read" else [])

    summary = ingest([folder], lake, workers=1, progress=progress, cancelled=lambda: bool(stopped))
    assert (summary.cancelled, summary.files_new, summary.files_waiting) == (True, 2, 4)
    assert len(visible(lake)) == 44
    assert ingest([folder], lake, workers=1).files_new == 4
