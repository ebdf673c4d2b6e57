"""`hbmledger snapshot`: the fixed face on files written as torch writes them, two files beside each other, and users' mistakes."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from analysis.snapshot.report import device_json
from analysis.snapshot.trace import from_columns
from analysis.snapshot.view import devices as read
from cli import main
from ingest.parsers.snapshot.reading import read_snapshot

MIB = 2**20


def written(folder: Path, name: str, extra: int = 0) -> Path:
    """A snapshot of device 1: a constructor's weights, a forward, and `extra` bytes more in it."""
    frames = [{"name": "__init__", "filename": "/x/site-packages/torch/nn/modules/linear.py", "line": 101}]
    forward = [{"name": "forward", "filename": "/data/home/me/model.py", "line": 7}]
    events = [_event("segment_alloc", 4096, 100 * MIB, frames), _event("alloc", 4096, 10 * MIB, frames),
              _event("alloc", 4096 + 10 * MIB, 5 * MIB + extra, forward), _event("free_requested", 4096 + 10 * MIB, 5 * MIB + extra, forward),
              _event("free_completed", 4096 + 10 * MIB, 5 * MIB + extra, forward)]
    blocks = [{"address": 4096, "size": 10 * MIB, "requested_size": 10 * MIB, "state": "active_allocated", "frames": frames},
              {"address": 4096 + 10 * MIB, "size": 90 * MIB, "requested_size": 0, "state": "inactive", "frames": []}]
    segment = {"device": 1, "address": 4096, "total_size": 100 * MIB, "allocated_size": 10 * MIB, "active_size": 10 * MIB, "requested_size": 10 * MIB,
               "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames, "blocks": blocks}
    path = folder / name
    path.write_bytes(gzip.compress(pickle.dumps({"segments": [segment], "device_traces": [[], events], "allocator_settings": {}}, protocol=4)))
    return path


def _event(action: str, address: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": frames}


def test_the_fixed_face(tmp_path, capsys):
    path = written(tmp_path, "snapshot_rank7.pickle.gz")
    assert main(["snapshot", str(path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rank"] == 7
    assert [one["device"] for one in found["devices"]] == [1]
    device = found["devices"][0]
    assert device["actions"] == {"alloc": 2, "free_requested": 1, "free_completed": 1, "segment_alloc": 1}
    assert (device["start_requested_bytes"], device["peak_requested_bytes"], device["end_requested_bytes"]) == (0, 15 * MIB, 10 * MIB)
    assert (device["start_reserved_bytes"], device["peak_reserved_bytes"]) == (0, 100 * MIB)
    assert device["peak"]["event"] == 2
    assert device["peak"]["phase"] == "forward"
    assert {one["class"]: one["bytes"] for one in device["peak"]["classes"]} == {"weights": 10 * MIB, "activations": 5 * MIB}
    assert device["history"]["began"] == "complete"
    assert device["cached"]["largest_block_obtainable_bytes"] == 90 * MIB


def test_real_snapshots_have_their_known_figures(shared):
    expected = json.loads((shared / "data" / "snapshots" / "expected.json").read_text())
    for name, known in expected.items():
        devices = {one.trace.device: device_json(one) for one in read(from_columns(read_snapshot(shared / "data" / "snapshots" / name)))}
        for device in known["devices"]:
            assert {key: devices[device["device"]][key] for key in device} == device, name


def test_text_says_the_peak_first(tmp_path, capsys):
    assert main(["snapshot", str(written(tmp_path, "a.pickle.gz"))]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[2].startswith("Peak  15.0 MiB requested (15,728,640 bytes)")
    assert "activations" in shown
    assert max(map(len, shown.splitlines())) <= 110


def test_two_files_are_compared_by_class_and_by_stack(tmp_path, capsys):
    before, after = written(tmp_path, "a.pickle.gz"), written(tmp_path, "b.pickle.gz", extra=3 * MIB)
    assert main(["snapshot", str(before), "--compare", str(after), "--format", "json"]) == 0
    compared = json.loads(capsys.readouterr().out)["compared"][0]
    assert compared["change_bytes"] == 3 * MIB
    assert {one["name"]: one["change_bytes"] for one in compared["classes"]} == {"activations": 3 * MIB, "weights": 0}
    assert [(one["name"], one["change_bytes"]) for one in compared["stacks"]] == [("home/me/model.py:7 forward", 3 * MIB)]
    assert main(["snapshot", str(before), "--compare", str(after)]) == 0
    assert "+3.00 MiB" in capsys.readouterr().out


@pytest.mark.parametrize("more", [["--device", "3"], ["--compare", "gone.pickle"]])
def test_mistakes_are_one_sentence(tmp_path, capsys, more):
    assert main(["snapshot", str(written(tmp_path, "a.pickle.gz")), *more]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["snapshot", "parse"])
def test_one_file_that_cannot_be_read_is_exit_code_2(tmp_path, capsys, verb):
    """It is the whole question, so nothing can be judged; 3 is for some inputs among others."""
    whole = gzip.decompress(written(tmp_path, "a.pickle.gz").read_bytes())
    for name, data in {"hostile": whole[:-1] + b"cos\nsystem\n.", "cut": whole[:500], "another": pickle.dumps({"a": 1}, 4)}.items():
        (tmp_path / name).write_bytes(data)
        assert main([verb, str(tmp_path / name)]) == 2, name
        assert capsys.readouterr().err.count("\n") == 1


def test_among_others_it_is_exit_code_3(tmp_path, capsys):
    (tmp_path / "bad.pickle").write_bytes(b"\x80\x04cos\nsystem\n.")
    assert main(["parse", str(tmp_path / "bad.pickle"), str(written(tmp_path, "a.pickle.gz"))]) == 3
    assert "snapshot_events 5" in capsys.readouterr().out


def test_a_rank_given_wins_over_the_name(tmp_path, capsys):
    assert main(["snapshot", str(written(tmp_path, "x_rank7.pickle.gz")), "--rank", "3", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rank"] == 3


def test_exports_for_other_viewers_hold_the_same_peak(tmp_path, capsys):
    file, trace, flame = written(tmp_path, "a.pickle.gz"), tmp_path / "a.json", tmp_path / "a.folded"
    assert main(["snapshot", str(file), "--perfetto", str(trace), "--folded", str(flame)]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    sums = [sum(event["args"].values()) for event in events if event["name"] == "requested by class"]
    assert max(sums) == 15 * MIB
    assert [event["args"]["bytes"] for event in events if event["name"] == "reserved"][-1] == 100 * MIB
    assert [event["name"] for event in events if event["ph"] == "i"] == ["peak, 15,728,640 bytes requested"]
    lines = flame.read_text().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 15 * MIB
    assert all(line.startswith("device 1;") for line in lines)
    capsys.readouterr()
    assert main(["snapshot", str(file), "--folded", str(flame)]) == 2
    assert "is there already" in capsys.readouterr().err
