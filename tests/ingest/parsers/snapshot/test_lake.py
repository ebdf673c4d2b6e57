"""Snapshots as files of a run: into the lake, as rows of `parse`, beside hostile ones, and overwritten again and again."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from analysis.database import connect
from cli import main
from ingest.errors import LedgerError
from ingest.lake import Lake
from ingest.parsers import PARSERS, parse_file
from ingest.parsers.snapshot import SNAPSHOT
from ingest.pipeline import Summary, ingest
from ingest.planning import Job
from ingest.units import Place, read_unit
from tests.ingest.parsers.snapshot import attacks, made

GOOD = json.dumps({"rank": 3, "iteration": 1, "stats": {"allocated_bytes.all.current": 5, "allocated_bytes.all.peak": 10**9}}) + "\n"


def write(path: Path, value: Any, protocol: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def rows(lake: Path, query: str) -> list[tuple[Any, ...]]:
    connection = connect(Lake(lake))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def kind_of(data: bytes, path: str = "x") -> str | None:
    return next((parser.name for parser in PARSERS if parser.matches(data[: 2**16], path)), None)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_snapshots_are_known_by_content(protocol: int) -> None:
    assert kind_of(pickle.dumps(made.snapshot(), protocol), "anything.log") == "snapshot"
    assert kind_of(pickle.dumps(made.snapshot()["segments"], protocol)) == "snapshot"
    assert kind_of(pickle.dumps({"weights": [1, 2]}, protocol), "snapshot.pickle") is None
    assert kind_of(pickle.dumps({"text": "hello", "segments": [{"start": 0.0}]}, protocol)) is None


def test_into_the_lake(tmp_path: Path) -> None:
    value = made.snapshot()
    value["device_traces"][1].append({"action": "annotate"})
    write(tmp_path / "job/snapshot_oom_rank_3.pickle", value)
    done = ingest([tmp_path / "job"], tmp_path / "lake", run="r", workers=1)
    assert (done.rows, done.problems) == ({
        "snapshot_annotations": 1, "snapshot_blocks": 3, "snapshot_devices": 1, "snapshot_events": 10, "snapshot_segments": 1, "snapshot_stacks": 2,
        "snapshots": 1}, ())
    assert rows(tmp_path / "lake", "SELECT run, rank, iteration, trigger, reader IN ('python', 'compiled'), other FROM snapshots") == [
        ("r", 3, None, "oom", True, {"unknown action annotate": "1"})]
    assert rows(tmp_path / "lake", "SELECT rank, device, events, peak_requested_bytes, peak_event, irregularities FROM snapshot_devices") == [
        (3, 1, 10, 1800, 3, {"pending_blocks": 1, "action annotate": 1})]
    assert rows(tmp_path / "lake", """
        SELECT event.event, event.action, event.size_bytes, stack.frames FROM snapshot_events AS event
        JOIN snapshot_stacks AS stack USING (artifact, stack) WHERE event.action = 'oom'""") == [
        (7, "oom", 10**9, ["model.py:7 forward", "autograd.py:11 backward"])]
    assert rows(tmp_path / "lake", "SELECT segment - address, state, requested_bytes, category FROM snapshot_blocks ORDER BY address") == [
        (0, "active_allocated", 1000, None), (-1024, "active_pending_free", 500, None), (-1536, "inactive", 300, None)]
    assert rows(tmp_path / "lake", "SELECT pool, expandable, name, stage FROM snapshot_segments, snapshot_annotations") == [
        ("large", False, "Optimizer.step#Adam.step", "start")]


def test_summary_detail_leaves_out_events_and_blocks(tmp_path: Path) -> None:
    path = write(tmp_path / "snapshot_3.pickle", made.snapshot())
    done = ingest([path], tmp_path / "lake", workers=1, snapshot_detail="summary")
    assert done.rows == {"snapshot_annotations": 1, "snapshot_devices": 1, "snapshot_segments": 1, "snapshots": 1}
    assert main(["ingest", str(path), "--lake", str(tmp_path / "other"), "--snapshot-detail", "summary"]) == 0
    assert rows(tmp_path / "other", "SELECT count(*) FROM snapshot_events") == [(0,)]


@pytest.mark.parametrize("workers", [1, 2])
def test_again_reads_nothing(tmp_path: Path, workers: int) -> None:
    for rank in range(3):
        value = made.snapshot()
        value["device_traces"][1].append(made.event("alloc", 1, rank))
        write(tmp_path / f"job/snapshot_{rank}.pickle", value)
    assert ingest([tmp_path / "job"], tmp_path / "lake", workers=workers).files_new == 3
    assert ingest([tmp_path / "job"], tmp_path / "lake", workers=workers).files_unchanged == 3
    assert rows(tmp_path / "lake", "SELECT rank, trigger FROM snapshots ORDER BY rank") == [(0, "step"), (1, "step"), (2, "step")]


def grown(steps: int) -> Any:
    """A snapshot whose first 64 KiB, its segments, are the same at each step, and whose trace is not."""
    blocks = [made.block(made.BASE + 512 * row, 512, 512, "active_allocated") for row in range(5000)]
    trace = [made.event(action, made.BASE + 2**30, 512, time_us=10**15 + row)
             for row, action in enumerate(("alloc", "free_requested", "free_completed") * steps)]
    return {"segments": [made.segment(made.BASE, blocks)], "device_traces": [trace]}


@pytest.mark.parametrize("order", [(5, 9, 12), (12, 9, 5)], ids=["larger", "smaller"])
def test_overwritten_at_each_log_interval(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Another snapshot of the same run, whether it is larger or smaller: never the rest of a grown file."""
    path = tmp_path / "job/snapshot_0.pickle"
    for steps in order:
        write(path, grown(steps))
        done = ingest([tmp_path / "job"], tmp_path / "lake", workers=1)
        assert (done.problems, done.rejects, done.runs) == ((), 0, ("job",))
        assert done.rows["snapshot_events"] == 3 * steps
    assert rows(tmp_path / "lake", "SELECT DISTINCT run FROM snapshots") == [("job",)]
    assert rows(tmp_path / "lake", "SELECT events FROM snapshot_devices ORDER BY events") == [(15,), (27,), (36,)]


def test_half_written_is_told_and_read_when_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "job/snapshot_0.pickle", grown(5))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    (_, reason), = ingest([tmp_path / "job"], tmp_path / "lake", workers=1).problems
    assert "cut off" in reason or "ends" in reason
    path.write_bytes(whole)
    done = ingest([tmp_path / "job"], tmp_path / "lake", workers=1)
    assert (done.problems, done.rows["snapshot_events"], done.runs) == ((), 15, ("job",))


@pytest.mark.parametrize("cut", [1, 1000, -1])
def test_nothing_is_closed_before_all_is_there(cut: int) -> None:
    whole = pickle.dumps(made.snapshot(), 4)
    assert [(piece.rows, piece.end_bytes) for piece in SNAPSHOT.parse(io.BytesIO(whole[:cut]), "x", final=False)] == [({}, 0)]
    with pytest.raises(LedgerError):
        list(SNAPSHOT.parse(io.BytesIO(whole[:cut]), "x", final=True))
    at = whole.index(b".") + 1  # a dot inside a text: the last byte of every pickle
    assert [(piece.rows, piece.end_bytes) for piece in SNAPSHOT.parse(io.BytesIO(whole[:at]), "x", final=False)] == [({}, 0)]


def test_larger_than_the_window_of_a_unit(tmp_path: Path) -> None:
    path = write(tmp_path / "snapshot_0.pickle", grown(50))
    job = Job(source="s", path=str(path), file=str(path), member=None, run="r", size_bytes=path.stat().st_size, prefix_bytes=0, prefix_hash="",
              last_hash="", window_bytes=1000)
    units = [[job]]
    outcomes = []
    while units:
        outcomes.append(read_unit(units.pop(), Place("2025-01")))
        units += [outcomes[-1].remaining] if outcomes[-1].remaining else []
    assert len(outcomes) > 2
    assert [piece["status"] for outcome in outcomes for piece in outcome.artifacts] == ["closed"]
    assert outcomes[-1].tables["snapshot_events"][0].num_rows == 150


def hostile(folder: Path) -> None:
    """A folder of everything that is refused, and of two files that are fine."""
    write(folder / "snapshot_7.pickle", made.snapshot())
    (folder / "memory_stats_3.jsonl").write_text(GOOD)
    bad = (attacks.CODE["GLOBAL called"], attacks.CODE["BUILD"], attacks.LENGTHS["LONG_BINPUT"], attacks.LENGTHS["BYTEARRAY8"])
    for number, code in enumerate(bad):
        (folder / f"attack_{number}.pickle").write_bytes(attacks.inside(code))
    (folder / "cut.pickle").write_bytes(pickle.dumps(grown(5))[:-50_000])
    (folder / "bomb.pickle.gz").write_bytes(gzip.compress(pickle.dumps(made.snapshot())[:-1] + bytes(150 * 2**20), 1))
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.writestr("run/snapshot_5.pickle", pickle.dumps({**made.snapshot(), "external_annotations": []}))
        archive.writestr("run/attack.pickle", attacks.inside(attacks.CODE["STACK_GLOBAL"]))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_hostile_file_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    hostile(tmp_path / "job")
    monkeypatch.chdir(tmp_path)
    done: Summary = ingest(["job"], "lake", workers=workers)
    reasons = {Path(path).name: reason for path, reason in done.problems}
    assert sorted(reasons) == [
        "attack.pickle", "attack_0.pickle", "attack_1.pickle", "attack_2.pickle", "attack_3.pickle", "bomb.pickle.gz", "cut.pickle"]
    assert all("\n" not in reason and "please report" not in reason for reason in reasons.values())
    assert "nothing was executed" in reasons["attack_0.pickle"]
    assert (done.rows["snapshots"], done.rows["memory_stats"]) == (2, 1)
    assert sorted(os.listdir(tmp_path)) == ["job", "lake"]


def test_parse_shows_every_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "snapshot_3.pickle", made.snapshot())
    assert main(["parse", str(path), "--format", "jsonl"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    tables = [record["table"] for record in records]
    assert (tables.count("snapshot_events"), tables.count("snapshot_blocks"), tables.count("snapshots")) == (9, 3, 1)
    device = next(record for record in records if record["table"] == "snapshot_devices")
    assert (device["rank"], device["peak_requested_bytes"], device["irregularities"]) == (3, 1800, {"pending_blocks": 1})
    event = next(record for record in records if record["table"] == "snapshot_events" and record["event"] == 1)
    assert (event["action"], event["size_bytes"], event["rank"], event["device"]) == ("alloc", 1000, 3, 1)


def test_parse_refuses_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot_3.pickle"
    path.write_bytes(attacks.inside(attacks.CODE["GLOBAL called"]))
    assert main(["parse", str(path)]) == 2
    assert "nothing was executed" in capsys.readouterr().err
    assert parse_file(write(tmp_path / "fine.pickle", made.snapshot())).kind == "snapshot"
