"""Every shape a snapshot is written in gives the same columns, read in a process of its own."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from ingest.errors import LedgerError
from ingest.parsers.snapshot.columns import ACTIONS, ANNOTATIONS, BLOCKS, EVENTS, FRAMES, SEGMENTS, STACKS, SnapshotColumns
from ingest.parsers.snapshot.limits import limits_for
from ingest.parsers.snapshot.readers import reader_named
from ingest.parsers.snapshot.reading import read_snapshot
from tests.ingest.parsers.snapshot import made
from tests.ingest.parsers.snapshot.made import READERS


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest) -> Any:
    """A reader in this process: from objects to columns."""

    def inner(value: Any, protocol: int = 4) -> SnapshotColumns:
        data = pickle.dumps(value, protocol)
        return reader_named(request.param)(memoryview(data), limits_for(len(data)))

    return inner


def events(columns: SnapshotColumns) -> list[dict[str, Any]]:
    """Events with indexes resolved, of every device."""
    texts, stacks, frames = columns.texts.to_pylist(), columns.stacks["frames"].to_pylist(), columns.frames.to_pylist()
    rows = columns.events.to_pylist()
    for row in rows:
        row["action"] = columns.actions[row["action"]]
        row["stack"] = None if row["stack"] is None else [(texts[frames[at]["name"]], frames[at]["line"]) for at in stacks[row["stack"]]]
        row |= {key: None if row[key] is None else texts[row[key]] for key in ("pool", "metadata", "context")}
    return rows


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(read: Any, protocol: int) -> None:
    columns = read(made.snapshot(), protocol)
    for table, schema in ((columns.events, EVENTS), (columns.segments, SEGMENTS), (columns.blocks, BLOCKS), (columns.annotations, ANNOTATIONS),
                          (columns.stacks, STACKS), (columns.frames, FRAMES)):
        assert table.schema.equals(schema)
    rows = events(columns)
    assert [row["action"] for row in rows][:3] == ["segment_alloc", "alloc", "alloc"]
    assert {row["device"] for row in rows} == {1}
    assert rows[7] == {"device": 1, "action": "oom", "address": 123456, "size_bytes": 10**9, "stream": 0, "time_us": 1_700_000_000_000_000,
                       "stack": [("forward", 7), ("backward", 11)], "pool": None, "metadata": None, "context": None}
    assert (columns.devices, columns.unknown) == (2, {})
    assert columns.settings["roundup_power2_divisions"] == {"1": 0}
    assert columns.blocks["requested_bytes"].to_pylist() == [1000, 500, 300]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, lzma.compress, bz2.compress])
def test_compressed(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "snapshot.pickle.packed"
    path.write_bytes(pack(pickle.dumps(made.snapshot(), 4)))
    assert len(read_snapshot(path).events) == 9


def test_stacks_are_one_by_content(read: Any) -> None:
    value = made.snapshot()
    value["device_traces"] = [[made.event("alloc", made.BASE, 8, frames=[dict(made.FRAME), dict(made.OTHER)]) for _ in range(50)]]
    columns = read(value)
    assert (len(columns.frames), len({row["name"] for row in columns.frames.to_pylist()})) == (2, 2)
    assert sorted(map(len, columns.stacks["frames"].to_pylist())) == [0, 2]


def test_frames_absent_and_empty_are_different(read: Any) -> None:
    value = made.snapshot()
    absent = made.event("alloc", 1, 8)
    del absent["frames"]
    value["device_traces"] = [[absent, made.event("alloc", 1, 8, frames=[])]]
    assert [row["stack"] for row in events(read(value))] == [None, []]


def test_bare_list_of_segments(read: Any) -> None:
    columns = read(made.snapshot()["segments"])
    assert (columns.devices, len(columns.events), columns.segments["size_bytes"].to_pylist()) == (0, 0, [2048])


def test_block_history_of_torch_2_0(read: Any) -> None:
    history = [{"addr": 1, "real_size": 1000, "frames": [made.FRAME]}, {"addr": 2, "real_size": 5, "frames": []}]
    segment = {"device": 0, "address": made.BASE, "total_size": 4096, "stream": 0, "segment_type": "large", "blocks": [
        {"size": 1024, "state": "active_allocated", "history": history}, {"size": 512, "state": "inactive", "history": history},
        {"size": 2560, "state": "inactive"}]}
    other = {**segment, "address": made.BASE + 2**20, "blocks": [{"size": 4096, "state": "active_allocated", "requested_size": 4000}]}
    columns = read([segment, other])
    assert (np.asarray(columns.blocks["address"]) - made.BASE).tolist() == [0, 1024, 1536, 2**20]
    assert columns.blocks["requested_bytes"].to_pylist() == [1000, 0, 0, 4000]
    assert columns.segments.select(["allocated_bytes", "active_bytes", "requested_bytes"]).to_pylist() == [
        {"allocated_bytes": 1024, "active_bytes": 1024, "requested_bytes": 1000},
        {"allocated_bytes": 4096, "active_bytes": 4096, "requested_bytes": 4000}]
    assert [stack is None for stack in columns.blocks["stack"].to_pylist()] == [False, True, True, True]


def test_key_order_does_not_matter(read: Any) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(one) for key, one in reversed(value.items())}
        return [turned(one) for one in value] if isinstance(value, list) else value

    one, other = read(made.snapshot()), read(turned(made.snapshot()), 2)
    assert events(one) == events(other)
    assert one.segments.drop(["kind", "pool", "stack"]).equals(other.segments.drop(["kind", "pool", "stack"]))


def test_unknown_actions_and_keys_are_counted_and_kept(read: Any) -> None:
    value = made.snapshot()
    value["host_traces"] = [[]]
    value["segments"][0]["colour"] = "red"
    value["device_traces"][1] += [{"action": "annotate", "what": "x"}, made.event("alloc", 1, 2, forward_frames=[], user_metadata="m", pool_id=(0, 3),
                                                                                    compile_context="3/0")]
    columns = read(value)
    assert columns.unknown == {"top key host_traces": 1, "segment key colour": 1, "event key what": 1, "event key forward_frames": 1,
                               "action annotate": 1}
    *_, annotate, last = events(columns)
    assert (annotate["action"], annotate["address"], annotate["size_bytes"]) == ("annotate", 0, 0)
    assert (last["pool"], last["metadata"], last["context"]) == ("0,3", "m", "3/0")


def test_unsigned_addresses_keep_their_bits(read: Any) -> None:
    value = made.snapshot()
    value["device_traces"] = [[made.event("alloc", 2**64 - 4096, 8, stream=2**63)]]
    row = events(read(value))[0]
    assert (row["address"], row["stream"]) == (-4096, -(2**63))


@pytest.mark.parametrize(("change", "about", "said"), [
    (lambda trace: trace[1].update(size="8"), "size", "event of device 1 1 has a str as `size` where a whole number is due"),
    (lambda trace: trace[1].update(size=True), "size", "has a bool as `size`"),
    (lambda trace: trace[2].update(size=1.0), "size", "has a float as `size`"),
    (lambda trace: trace[2].update(size=-1), "size", "has -1 as `size`, which cannot be"),
    (lambda trace: trace[0].update(addr=2**64), "addr", "has a number of 65 bits as `addr`"),
    (lambda trace: trace[0].pop("addr"), "addr", "has no `addr`"), (lambda trace: trace[0].pop("action"), "action", "has no action"),
    (lambda trace: trace.append(3), "dictionary", "is a int where a dictionary is due"),
    (lambda trace: trace[0].update(frames=3), "frames", "`frames` is a int"),
    (lambda trace: trace[0].update(frames=[3]), "frame", "a frame is a int"),
    (lambda trace: trace[0].update(frames=[{"name": 3}]), "name", "a frame's name is a int"),
    (lambda trace: trace[0].update(pool_id="x"), "pool", "a pool id is a str"),
    (lambda trace: trace[0].update(user_metadata=[]), "user_metadata", "has a list as `user_metadata`"),
])
def test_wrong_types_are_one_sentence(read: Any, request: pytest.FixtureRequest, change: Any, about: str, said: str) -> None:
    """Both readers say where and what; the sentences differ in words."""
    value = made.snapshot()
    change(value["device_traces"][1])
    with pytest.raises(LedgerError) as caught:
        read(value)
    assert about in caught.value.what
    assert said in caught.value.what or request.node.callspec.params["read"] == "compiled"


@pytest.mark.parametrize("value", [{}, [], {"segments": 3}, 7, "text", {"weights": [1]}, [1, 2], None, {3: [4]}])
def test_other_pickles_are_no_snapshots(read: Any, value: Any) -> None:
    if value == []:
        assert len(read(value).segments) == 0
        return
    with pytest.raises(LedgerError, match="no memory snapshot"):
        read(value)


@pytest.mark.parametrize("reader", READERS)
def test_real_files(shared: Path, reader: str) -> None:
    """End levels of every device of every real file."""
    folder = shared / "data" / "snapshots"
    for name, spec in json.loads((folder / "expected.json").read_text()).items():
        data = gzip.decompress((folder / name).read_bytes())
        columns = reader_named(reader)(data, limits_for(len(data)))
        assert (columns.file_bytes, columns.unknown) == (spec["size"], {}), name
        for want in spec["devices"]:
            trace = columns.events.filter(np.asarray(columns.events["device"]) == want["device"])
            counts = {ACTIONS[entry["values"]]: entry["counts"] for entry in trace["action"].combine_chunks().value_counts().to_pylist()}
            mine = columns.segments.filter(np.asarray(columns.segments["device"]) == want["device"])
            sums = {f"end_{level}_bytes": sum(mine[f"{level}_bytes"].to_pylist()) for level in ("requested", "allocated", "active")}
            assert (len(trace), len(mine), counts) == (want["events"], want["segments"], want["actions"]), name
            assert sums == {key: want[key] for key in sums}, name
            assert sum(mine["size_bytes"].to_pylist()) == want["end_reserved_bytes"], name
