"""Peaks by the backward walk: of real files, and of traces whose levels are known."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from ingest.parsers.snapshot import pickled
from ingest.parsers.snapshot.limits import limits_for
from ingest.parsers.snapshot.peaks import DevicePeaks, peaks
from ingest.parsers.snapshot.reading import read_snapshot
from sample_data.snapshots import write
from tests.ingest.parsers.snapshot import made
from tests.ingest.parsers.snapshot.made import BASE, READERS, event

MIB = 2**20


def of(value: Any) -> list[DevicePeaks]:
    data = pickle.dumps(value, 4)
    return peaks(pickled.read(data, limits_for(len(data))))


def test_a_trace_from_its_begin() -> None:
    found, = of(made.snapshot())
    assert (found.device, found.events) == (1, 9)
    assert (found.end_requested_bytes, found.end_allocated_bytes, found.end_reserved_bytes) == (1500, 1024, 2048)
    assert (found.peak_requested_bytes, found.peak_event, found.peak_reserved_bytes) == (1800, 3, 2048)
    assert (found.peak_allocated_low_bytes, found.peak_allocated_high_bytes) == (2048, 2048)
    assert found.irregularities == {"pending_blocks": 1}


def test_a_trace_whose_begin_is_lost() -> None:
    """A full ring buffer: what was allocated before counts, and a free without alloc raises the level before it."""
    blocks = [made.block(BASE, 1024, 1000, "active_allocated"), made.block(BASE + 1024, 1024, 0, "inactive")]
    trace = [event("free_requested", BASE + 1024, 700), event("free_completed", BASE + 1024, 700), event("alloc", BASE + 1024, 900),
             event("free_requested", BASE + 1024, 900), event("free_completed", BASE + 1024, 900), event("segment_free", 7, 4096)]
    found, = of({"segments": [made.segment(BASE, blocks)], "device_traces": [trace]})
    assert (found.peak_requested_bytes, found.peak_event, found.end_requested_bytes) == (1900, 2, 1000)
    assert (found.peak_reserved_bytes, found.end_reserved_bytes) == (2048 + 4096, 2048)
    assert found.irregularities == {"frees_without_alloc": 1}


def test_no_trace() -> None:
    found, = of({"segments": made.snapshot()["segments"], "device_traces": [[], []]})
    assert (found.events, found.peak_requested_bytes, found.peak_event, found.peak_reserved_bytes) == (0, 1500, -1, 2048)


def test_an_expandable_segment_grows_and_shrinks() -> None:
    trace = [event("segment_map", BASE, 2 * MIB), event("segment_map", BASE + 2 * MIB, 2 * MIB), event("segment_unmap", BASE + 2 * MIB, 2 * MIB)]
    segment = made.segment(BASE, [made.block(BASE, 2 * MIB, 0, "inactive")], is_expandable=True)
    found, = of({"segments": [segment], "device_traces": [trace]})
    assert found.peak_reserved_bytes == 4 * MIB


def test_blocks_of_the_end_are_exact_and_others_an_interval() -> None:
    blocks = [made.block(BASE, 3 * MIB, 2 * MIB, "active_allocated"), made.block(BASE + 3 * MIB, 17 * MIB, 0, "inactive")]
    trace = [event("alloc", BASE, 2 * MIB), event("alloc", BASE + 3 * MIB, 4 * MIB), event("free_requested", BASE + 3 * MIB, 4 * MIB),
             event("free_completed", BASE + 3 * MIB, 4 * MIB)]
    found, = of({"segments": [made.segment(BASE, blocks)], "device_traces": [trace]})
    assert (found.peak_requested_bytes, found.peak_allocated_low_bytes, found.peak_allocated_high_bytes) == (6 * MIB, 7 * MIB, 8 * MIB)


def test_real_files(shared: Path) -> None:
    folder = shared / "data" / "snapshots"
    for name, spec in json.loads((folder / "expected.json").read_text()).items():
        data = gzip.decompress((folder / name).read_bytes())
        found = {one.device: one for one in peaks(pickled.read(data, limits_for(len(data))))}
        assert sorted(found) == sorted(want["device"] for want in spec["devices"])
        for want in spec["devices"]:
            one = found[want["device"]]
            for key in ("events", "end_requested_bytes", "end_allocated_bytes", "end_reserved_bytes", "peak_requested_bytes", "peak_reserved_bytes"):
                assert getattr(one, key) == want[key], (name, key)
            for key in ("frees_without_alloc", "allocs_without_frames"):
                assert one.irregularities.get(key, 0) == want[key], (name, key)
            assert want["peak_requested_bytes"] <= one.peak_allocated_low_bytes <= one.peak_allocated_high_bytes <= one.peak_reserved_bytes


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("events", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_generated_files_whose_peaks_are_known(tmp_path: Path, reader: str, events: int) -> None:
    """The generator ran forward: its peaks do not come from a backward walk."""
    truth = write(tmp_path / "snapshot_0.pickle", events)
    columns = read_snapshot(tmp_path / "snapshot_0.pickle", reader)
    found, = peaks(columns)
    known = truth["peaks"]
    assert (columns.reader, columns.unknown, found.device, found.events) == (reader, {}, truth["device"], truth["events"])
    assert (found.peak_requested_bytes, found.peak_event) == (known["requested"]["bytes"], known["requested"]["event"])
    assert found.peak_reserved_bytes == known["reserved"]["bytes"]
    assert found.peak_allocated_low_bytes <= known["active"]["bytes"] <= found.peak_allocated_high_bytes
