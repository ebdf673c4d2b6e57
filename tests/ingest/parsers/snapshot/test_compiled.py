"""The compiled reader gives what the Python reader gives, column for column, or refuses; where it refuses more is listed here."""

from __future__ import annotations

import gc
import gzip
import io
import mmap
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.errors import LedgerError
from ingest.parsers.snapshot import compiled, pickled
from ingest.parsers.snapshot.columns import SnapshotColumns
from ingest.parsers.snapshot.limits import MEMORY_VARIABLE, ReadLimits, limits_for
from sample_data import snapshots
from tests.conftest import ROOT
from tests.ingest.parsers.snapshot import attacks, made, torchscript

pytestmark = pytest.mark.skipif(not compiled.available(), reason="the compiled reader was not built")

TABLES = ("events", "segments", "blocks", "annotations", "stacks", "frames")
REFUSED_MORE = (
    "a key that is neither a text nor a small number", "a key that is no text", "as something else", "as a setting", "a place in the memo",
    "after it was filled", "is a pickle with an instruction that no snapshot has", "many numbers as keys", "`device_free`", "again and again")
"""Why the compiled reader may refuse what the Python reader reads."""


def outcome(reader: Any, data: bytes) -> SnapshotColumns | str:
    """Columns or the sentence of a refusal."""
    try:
        columns: SnapshotColumns = reader.read(memoryview(data), limits_for(len(data)))
    except LedgerError as error:
        return error.what
    return columns


def differences(one: SnapshotColumns, other: SnapshotColumns) -> list[str]:
    """What differs, by name."""
    found = [name for name in ("file_bytes", "devices", "actions", "states", "settings", "unknown") if getattr(one, name) != getattr(other, name)]
    found += [] if one.texts.equals(other.texts) else ["texts"]
    return found + [name for name in TABLES if not getattr(one, name).equals(getattr(other, name))]


def check(data: bytes) -> SnapshotColumns | str:
    """Both readers agree, or only the compiled one refuses, for a reason listed; what it gave."""
    expected, found = outcome(pickled, data), outcome(compiled, data)
    if isinstance(found, str):
        assert isinstance(expected, str) or any(reason in found for reason in REFUSED_MORE), found
        return found
    assert isinstance(expected, SnapshotColumns), expected
    for name in TABLES:
        getattr(found, name).validate(full=True)
    found.texts.validate(full=True)
    assert differences(expected, found) == []
    return found


def test_real_files(shared: Path) -> None:
    paths = sorted((shared / "data" / "snapshots").glob("*.gz"))
    assert len(paths) >= 12
    for path in paths:
        assert isinstance(check(gzip.decompress(path.read_bytes())), SnapshotColumns), path.name


@pytest.mark.parametrize("rank", snapshots.RANKS)
def test_sample_files(rank: int) -> None:
    data = gzip.decompress((ROOT / "sample_data" / "dense_7b5_pp2" / f"snapshot_{rank}.pickle.gz").read_bytes())
    columns = check(data)
    assert isinstance(columns, SnapshotColumns)
    assert (columns.unknown, len(columns.events) > 20_000) == ({}, True)


def test_a_full_ring_and_a_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    truth = snapshots.write(path, 120_000, stage=1)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        columns = compiled.read(data, limits_for(len(data)))
        assert len(data) > 9_000_000  # more than the pieces in which pages are given back
    assert len(columns.events) == truth["events"] == 120_000
    assert differences(pickled.read(path.read_bytes(), limits_for(path.stat().st_size)), columns) == []


def test_columns_outlive_the_reader() -> None:
    data = pickle.dumps(made.snapshot(), 4)
    sizes = compiled.read(data, limits_for(len(data))).events["size_bytes"]
    gc.collect()
    assert sizes.to_pylist() == [2048, 1000, 500, 300, 300, 300, 500, 10**9, 0]


def test_the_writer_in_cpp(tmp_path: Path) -> None:
    columns = check(torchscript.dumps(made.snapshot()))
    assert isinstance(columns, SnapshotColumns)
    plain = outcome(pickled, pickle.dumps(made.snapshot(), 4))
    assert isinstance(plain, SnapshotColumns)
    assert columns.events.drop(["stack"]).equals(plain.events.drop(["stack"]))


@pytest.mark.parametrize("data", list(attacks.mutations(100, seed=7)))
def test_mutated_bytes(data: bytes) -> None:
    check(data)


SHARED_EVENT = made.event("alloc", 5, 6)
FRAMES: list[Any] = [made.FRAME]


@pytest.mark.parametrize("value", [
    {"device_traces": [[SHARED_EVENT, SHARED_EVENT], [made.event("x", 1, 2), SHARED_EVENT]]},
    {"host_traces": [[made.event("new", 1, 2, odd=1)]], "device_traces": [[made.event("alloc", 1, 2)]]},
    {"device_traces": [[made.event("alloc", 1, 2, a=1, b=2), made.event("alloc", 1, 2, b=1), made.event("alloc", 1, 2)] * 3, None, []]},
    {"device_traces": [[made.event("alloc", 1, 2, frames=[made.FRAME] * 2500)] * 3]},
    {"device_traces": [[made.event("alloc", 1, 2, frames=[{}, {"line": 3}, dict(made.FRAME)])]]},
    {"device_traces": [[
        made.event("a" * 300, 1, 2, pool_id=(2**64 - 1, -3)), made.event("é", 1, 2, pool_id=[0, 1]), made.event("b", 1, 2, pool_id=())]]},
    {"device_traces": [], "allocator_settings": {
        "a": [1, 2.5, None, True, (1,)], "deep": [[[[[[1]]]]]], "large": 2**64, "low": -2**63, "nan": float("nan")}},
    {"device_traces": [], "allocator_settings": None}, {"device_traces": [], "allocator_settings": {3: 4, None: 1}, 5: 1, None: 2},
    {"segments": [made.segment(2**64 - 4096, [made.block(0, 2**62, 1, "odd"), made.block(0, 2**62, 1, "active_awaiting_free")])]},
    {"segments": [{"device": 0, "address": 1, "total_size": 8, "blocks": [
        {"size": 8, "state": "x", "history": [{"real_size": 5, "frames": FRAMES}, {}]}]}], "device_traces": [[made.event("x", 1, 1, frames=FRAMES)]]},
    {"segments": [{"device": 0, "address": 1, "total_size": 8, "blocks": [{"size": 8, "state": "x", "history": [{"real_size": None}]}]}]},
    {"segments": None, "device_traces": [[made.event("alloc", 1, 2, user_metadata="\ud800")]]},
    {"device_traces": [[made.event("oom", 5, 2), made.event("alloc", 1, 2, device_free=2**64)]]},
])
@pytest.mark.parametrize("protocol", [2, 4])
def test_shapes(value: Any, protocol: int) -> None:
    check(pickle.dumps(value, protocol))


def test_a_list_filled_after_its_event() -> None:
    frames: list[Any] = []
    event = made.event("alloc", 1, 2, frames=frames)
    frames.append({"name": "f", "later": event})
    columns = check(pickle.dumps({"device_traces": [[event]]}, 4))
    assert isinstance(columns, SnapshotColumns)
    assert columns.unknown == {"frame key later": 1}


ADDRESSES = st.sampled_from([0, 512, 2**40, 2**55 - 1, 2**55, 2**63 - 1, 2**63, 2**64 - 1, -1, -2**63, 2**64, None, 1.0])
SIZES = st.sampled_from([0, 1, 255, 256, 65536, 2**31, 2**55, 2**63 - 1] * 3 + [2**63, -1, None, True])
WORDS = st.sampled_from(["", "N/A", "a", "é", "alloc", "x" * 300, None])
ODD_KEYS = st.dictionaries(st.sampled_from(["x", "forward_frames", "ключ", "name"]), st.sampled_from([1, "a", None, [], {}]), max_size=2)


@st.composite
def graphs(draw: Any) -> Any:
    """A snapshot with shared frames, lists and events, mostly as torch makes them."""
    frame = st.fixed_dictionaries({}, optional={"name": WORDS, "filename": WORDS, "line": SIZES}) | st.just(made.FRAME)
    frames = draw(st.lists(frame, min_size=1, max_size=4))
    lists = draw(st.lists(st.lists(st.sampled_from(frames), max_size=4), min_size=1, max_size=4))
    stack = st.sampled_from(lists)
    pool = st.sampled_from([(0, 0), (0, 1), [1, 2], (), None, (2**64 - 1, -5)])
    event = st.fixed_dictionaries(
        {"action": st.sampled_from(["alloc", "free_completed", "oom", "annotate", "other"]), "addr": ADDRESSES, "size": SIZES, "device_free": SIZES},
        optional={"stream": ADDRESSES, "time_us": SIZES, "frames": stack, "pool_id": pool, "user_metadata": WORDS, "compile_context": WORDS})
    events = draw(st.lists(st.builds(lambda one, more: {**more, **one}, event, ODD_KEYS), min_size=1, max_size=6))
    history = st.lists(st.fixed_dictionaries({}, optional={"real_size": SIZES, "frames": stack}), max_size=2)
    block = st.fixed_dictionaries(
        {"size": SIZES, "state": st.sampled_from(["inactive", "active_allocated", "active_awaiting_free", "odd"])},
        optional={"address": ADDRESSES, "requested_size": SIZES, "frames": stack, "history": history})
    segment = st.fixed_dictionaries(
        {"device": st.sampled_from([0, 1, 7]), "address": ADDRESSES, "total_size": SIZES, "blocks": st.lists(block, max_size=3)},
        optional={"allocated_size": SIZES, "stream": ADDRESSES, "segment_type": WORDS, "segment_pool_id": pool, "is_expandable": st.sampled_from(
            [True, False, None]), "frames": stack, "odd": SIZES})
    note = st.fixed_dictionaries({"device": st.sampled_from([0, 1])}, optional={"stage": WORDS, "name": WORDS, "time_us": SIZES, "odd": SIZES})
    traces = st.lists(st.lists(st.sampled_from(events), max_size=6), max_size=3)
    top = {"segments": draw(st.lists(segment, max_size=2)), "device_traces": draw(traces), "external_annotations": draw(st.lists(note, max_size=2)),
           "host_traces": [events[:1]]}
    return {key: top[key] for key in draw(st.permutations(list(top)))}


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(graphs(), st.sampled_from([2, 4]), st.booleans())
def test_graphs(value: Any, protocol: int, framed: bool) -> None:
    check(small_frames(value) if framed else pickle.dumps(value, protocol))


def test_bytes_after_the_end_are_counted_inside_a_frame_too() -> None:
    data = b"\x80\x04\x95\x12\x00\x00\x00\x00\x00\x00\x00}(\x8c\x08segments]u.}}}}"
    columns = check(data)
    assert isinstance(columns, SnapshotColumns)
    assert columns.unknown == {"bytes after the end": 4}


@pytest.mark.long
@settings(max_examples=5000, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(graphs(), st.sampled_from([2, 4]), st.booleans())
def test_many_graphs(value: Any, protocol: int, framed: bool) -> None:
    check(small_frames(value) if framed else pickle.dumps(value, protocol))


def small_frames(value: Any) -> bytes:
    """A pickle in many frames, with bytes after its end."""
    out = io.BytesIO()
    pickler = pickle._Pickler(out, 4)  # type: ignore[attr-defined]
    pickler.framer._FRAME_SIZE_TARGET = 50
    pickler.dump(value)
    return out.getvalue() + b"more"


def opcodes(*pieces: bytes) -> bytes:
    return b"\x80\x04}(\x8c\x0ddevice_traces]" + b"".join(pieces) + b"u."


@pytest.mark.parametrize(("data", "said"), [
    (opcodes(b"q\xff"), "a place in the memo that is larger than the number of its instructions (byte 20)"),
    (opcodes(b"0"), "no snapshot has, nothing was executed: POP (byte 20)"),
    (opcodes(b"K\x01K\x02s"), "sets items of what is no dictionary (byte 24)"),
    (opcodes(b"", b"\x8c\x06others\x8c\x06action\x8c\x01xs"), "sets items of what is no dictionary"),
    (opcodes(b"h\x09"), "refers to what was not read (byte 20)"),
    (opcodes(b"X\xff\x00\x00\x00a"), "is cut off (byte 20)"),
    (opcodes(b"\x8c\x01\xff0"), "no valid UTF-8 (byte 20)"),
    (opcodes(b"\xff"), "an instruction that does not exist (byte 20)"),
    (opcodes(b"a"), "appends to what is no list"),
])
def test_refusals_say_the_byte(data: bytes, said: str) -> None:
    assert said in str(outcome(compiled, data))


def test_an_event_stays_as_it_was_filled() -> None:
    event = b"}\x94(\x8c\x06action\x8c\x01xu"
    assert isinstance(outcome(compiled, opcodes(b"]" + event + b"aa")), SnapshotColumns)
    assert "changes an event of the trace after it was filled" in str(outcome(compiled, opcodes(b"]" + event + b"\x8c\x01a\x8c\x01bsaa")))
    whole = pickle.dumps({"device_traces": [], "segments": [{"action": "x"}]}, 4)
    assert "uses an event of the trace as something else" in str(outcome(compiled, whole))


def test_memory_is_bounded() -> None:
    data = pickle.dumps({"device_traces": [[made.event(f"action {n % 7}", n, 1, user_metadata=str(n)) for n in range(20_000)]]}, 4)
    with pytest.raises(LedgerError, match="asks for more memory") as caught:
        compiled.read(data, ReadLimits(100_000, 60, len(data)))
    assert MEMORY_VARIABLE in caught.value.todo
    assert isinstance(outcome(compiled, data), SnapshotColumns)


WIDE = {**{str(number): 0 for number in range(2000)}, "device": 0, "address": 1, "total_size": 8, "blocks": []}


@pytest.mark.parametrize("value", [
    {"segments": [{"device": 0, "address": 1, "total_size": 8, "blocks": [made.block(0, 1, 1, "inactive")] * 2000}] * 2000},
    {"device_traces": [[made.event("alloc", 1, 1)] * 2000] * 2000}, {"segments": [WIDE] * 2000}, [WIDE] * 2000,
    {"device_traces": [[{**WIDE, **made.event("alloc", 1, 1)}] * 2000]}, {"segments": [], "external_annotations": [WIDE] * 2000},
])
def test_the_same_things_are_not_looked_at_for_ever(value: Any) -> None:
    assert "again and again" in str(outcome(compiled, pickle.dumps(value, 4)))


def test_numbers_of_every_length() -> None:
    for number in [sign * (2**bits + more) for bits in (0, 7, 8, 31, 32, 54, 55, 56, 62, 63, 64, 70) for more in (-1, 0, 1) for sign in (1, -1)]:
        length = number.bit_length() // 8 + 1
        for size in {length, length + 3}:
            raw = b"\x8a" + struct.pack("B", size) + number.to_bytes(size, "little", signed=True)
            check(b"\x80\x04}(\x8c\x08segments]\x8c\x12allocator_settings}(\x8c\x01n" + raw + b"uu.")
            columns = check(opcodes(b"]}(\x8c\x06action\x8c\x05alloc\x8c\x04addr" + raw + b"\x8c\x04sizeK\x01uaa"))
            assert isinstance(columns, SnapshotColumns) == (-(2**63) <= number < 2**64)
