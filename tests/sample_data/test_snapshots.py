"""The generated snapshots are of torch's shape, keep the allocator's invariants, and their truth is what the backward walk finds."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import pickletools
import re
from itertools import accumulate

import pytest

from sample_data import make, snapshots
from sample_data.ledger import MIB
from sample_data.snapshots.stage import CLASSES
from tests.sample_data.test_make import SAMPLES

RUN = SAMPLES / "dense_7b5_pp2"


@pytest.fixture(scope="module", params=snapshots.RANKS)
def sample(request):
    """Rank, bytes, the loaded snapshot (this project wrote it) and its truth."""
    raw = gzip.decompress((RUN / f"snapshot_{request.param}.pickle.gz").read_bytes())
    return request.param, raw, pickle.loads(raw), json.loads((SAMPLES / "truth" / f"snapshot_{request.param}.json").read_text())


@pytest.fixture(scope="module")
def ring():
    """A snapshot whose ring lost its beginning, and its truth."""
    made, raw = snapshots.simulate(30_000, stage=1, device=3), io.BytesIO()
    made.pickle(raw)
    return pickle.loads(raw.getvalue()), made.truth()


def test_the_opcodes_are_those_of_pythons_own_pickler(sample):
    _, raw, loaded, _ = sample
    assert opcodes(raw) == opcodes(pickle.dumps(loaded, 4))


def opcodes(raw):
    return [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(raw) if opcode.name != "FRAME"]


def test_blocks_tile_their_segments(sample):
    for segment in sample[2]["segments"]:
        ends = [segment["address"], *accumulate((block["size"] for block in segment["blocks"]), initial=segment["address"])][1:]
        assert [block["address"] for block in segment["blocks"]] == ends[:-1]
        assert ends[-1] == segment["address"] + segment["total_size"]
        assert segment["allocated_size"] == sum(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated")


def test_the_truth_is_what_the_backward_walk_finds(sample):
    check_truth(sample[2], sample[3])


def test_the_truth_of_a_full_ring_is_what_the_backward_walk_finds(ring):
    loaded, truth = ring
    assert truth["events"] == 30_000
    assert truth["events_lost"] > 0
    assert loaded["device_traces"][3][0]["action"] != "segment_alloc"
    check_truth(loaded, truth)


def check_truth(loaded, truth):
    events = loaded["device_traces"][truth["device"]]
    assert len(events) == truth["events"]
    blocks = [block for segment in loaded["segments"] for block in segment["blocks"]]
    requested = sum(block["requested_size"] for block in blocks if block["state"] != "inactive")
    reserved = sum(segment["total_size"] for segment in loaded["segments"])
    assert peak(events, requested, {"alloc": -1, "free_completed": 1}) == truth["peaks"]["requested"]
    assert peak(events, reserved, {"segment_alloc": -1}) == truth["peaks"]["reserved"]
    assert sum(truth["requested_by_class"].values()) == truth["peaks"]["requested"]["bytes"]
    assert len(truth["class_of_alloc"]) == sum(event["action"] == "alloc" for event in events)


def peak(events, end, signs):
    levels = [end, *accumulate((signs.get(event["action"], 0) * event["size"] for event in reversed(events)), initial=end)][:0:-1]
    assert levels[-1] == end
    return {"bytes": max(levels), "event": levels.index(max(levels)) - 1}


def test_every_class_stands_somewhere(sample):
    rank, _, _, truth = sample
    missing = set(CLASSES) - {CLASSES["abcdefghijk".index(letter)] for letter in set(truth["class_of_alloc"])}
    assert missing == ({"unknown", "logits_and_loss"} if rank == 0 else {"unknown"})
    assert truth["requested_by_class"]["logits_and_loss"] == (0 if rank == 0 else pytest.approx(3 * 1_050_673_152, rel=1e-3))


def test_backward_kernels_have_no_stack_and_receives_a_stream_of_their_own(sample):
    events = [event for event in sample[2]["device_traces"][sample[3]["device"]] if event["action"] == "alloc"]
    assert 0.02 < sum(not event["frames"] for event in events) / len(events) < 0.5
    assert {any("p2p_communication" in frame["filename"] for frame in event["frames"]) for event in events if event["stream"]} == {True}


def test_the_peak_is_below_what_the_log_of_the_run_says(sample):
    rank, _, _, truth = sample
    printed = re.search(rf"\[Rank {rank}\] \(after 1 iterations\) memory \(MB\) \| allocated: (\S+) \| max allocated: (\S+) \| reserved: (\S+)",
                        (RUN / "train.log").read_text())
    assert printed
    allocated, most, reserved = (float(number) * MIB for number in printed.groups())
    assert 0.94 * most < truth["peaks"]["allocated"]["bytes"] <= most
    assert 0.94 * reserved < truth["peaks"]["reserved"]["bytes"] <= reserved
    end = sum(segment["allocated_size"] for segment in sample[2]["segments"])
    assert end == pytest.approx(allocated, rel=0.02)


def test_the_samples_are_small():
    assert max(path.stat().st_size for path in RUN.glob("snapshot_*")) < 300_000
    assert set(make.RUNS) >= {"dense_7b5_pp2", "truth"}
