"""TensorBoard event files and exported scalars: memory of the last rank, rounding, damage, cuts; other scalars are passed over."""

from __future__ import annotations

import io
import json
import random
import struct
from typing import Any

import pytest

from ingest.errors import LedgerError
from ingest.parsers import PARSERS
from ingest.parsers.base import Parser
from ingest.parsers.metrics import METRICS
from ingest.parsers.tensorboard import TENSORBOARD, masked_crc
from tests.ingest.parsers.mutations import mutated, one_line

MIB = 2**20


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number: int, kind: int, data: bytes) -> bytes:
    return varint(number << 3 | kind) + (varint(len(data)) if kind == 2 else b"") + data


def record(event: bytes) -> bytes:
    size = struct.pack("<Q", len(event))
    return size + struct.pack("<I", masked_crc(size)) + event + struct.pack("<I", masked_crc(event))


def scalar(step: int, tag: str, value: float, *, tensor: bool = False) -> bytes:
    body = field(8, 2, field(1, 0, b"\x01") + field(5, 2, struct.pack("<f", value))) if tensor else field(2, 5, struct.pack("<f", value))
    summary = field(1, 2, field(1, 2, tag.encode()) + body)
    return record(field(1, 1, struct.pack("<d", 1.76e9 + step)) + field(2, 0, varint(step)) + field(5, 2, summary))


VERSION = record(field(1, 1, struct.pack("<d", 1.76e9)) + field(3, 2, b"brain.Event:2"))
EVENTS = VERSION + b"".join(
    scalar(step, tag, value) for step in (100, 200, 300) for tag, value in (
        ("learning-rate", 1e-4), ("mem-reserved-bytes", 73620520960.0), ("mem-allocated-bytes", 31711870976.0), ("lm loss", 2.5),
        ("mem-max-allocated-bytes", 63988301824.0), ("mem-allocated-count", 1422.0)))


def rows(parser: Parser, data: bytes, path: str = "events.out.tfevents.1", **options: Any) -> list[dict[str, Any]]:
    return [row for piece in parser.parse(io.BytesIO(data), path, **options) for row in piece.rows.get("rank_memory", [])]


def test_the_check_sum_is_that_of_the_format() -> None:
    assert masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_memory_scalars_of_a_step_are_one_row_of_the_last_rank() -> None:
    assert TENSORBOARD.matches(EVENTS, "events")
    found = rows(TENSORBOARD, EVENTS)
    assert [row["iteration"] for row in found] == [100, 200, 300]
    row = found[0]
    assert (row["rank"], row["rank_label"], row["source"], row["scope"], row["valid"]) == (None, "last", "tensorboard", "cumulative", True)
    assert (row["reserved_bytes"], row["allocated_bytes"], row["max_allocated_bytes"]) == (73620520960, 31711870976, 63988301824)
    assert row["other"] == {"allocated-count": "1422"}
    assert row["rounding_bytes"] == 4096


def test_bridge_scalars_are_decimal_and_tensors_are_read() -> None:
    (row,) = rows(TENSORBOARD, VERSION + scalar(1, "memory/mem-reserved-gigabytes", 75.0)
                  + scalar(1, "memory/mem-allocated-gigabytes", 68.0, tensor=True))
    assert (row["reserved_bytes"], row["allocated_bytes"]) == (75_000_000_000, 68_000_000_000)


def test_other_scalars_leave_no_row() -> None:
    assert rows(TENSORBOARD, VERSION + scalar(1, "lm loss", 2.0) + scalar(1, "memory of the run", 3.0)) == []


def test_a_damaged_record_is_rejected_and_the_next_one_read() -> None:
    bad = bytearray(scalar(150, "mem-reserved-bytes", 5.0))
    bad[20] ^= 0xFF
    data = EVENTS[:400] + b"garbage" + EVENTS[400:] + bytes(bad) + scalar(400, "mem-reserved-bytes", 2.0**30)
    pieces = list(TENSORBOARD.parse(io.BytesIO(data), "e"))
    found = [row for piece in pieces for row in piece.rows.get("rank_memory", [])]
    assert [row["iteration"] for row in found][-2:] == [300, 400]
    assert {row["reason"] for piece in pieces for row in piece.rows["rejects"]} >= {"a record whose check sum is wrong"}


LINES = "".join(json.dumps({"tag": f"mem-{what}-bytes", "step": step, "value": step + 1.0}) + "\n"
                for step in range(1, 6) for what in ("reserved", "allocated")).encode()


@pytest.mark.parametrize(("parser", "data"), [(TENSORBOARD, EVENTS), (METRICS, LINES)])
def test_a_file_cut_anywhere_gives_the_rows_of_the_whole(parser: Parser, data: bytes) -> None:
    whole = rows(parser, data)
    assert whole
    for cut in range(0, len(data) + 1, 5):
        first = list(parser.parse(io.BytesIO(data[:cut]), "e", final=False))
        rest = rows(parser, data[first[-1].end_bytes:], "e", start=first[-1].end_bytes, state=first[-1].state)
        assert [row for piece in first for row in piece.rows.get("rank_memory", [])] + rest == whole, cut


OTEL = {"resourceMetrics": [{"resource": {"attributes": [{"key": "rank", "value": {"intValue": "7"}}]}, "scopeMetrics": [{"metrics": [
    {"name": "torch.memory.reserved", "unit": "By", "gauge": {"dataPoints": [
        {"asInt": "73620520960", "timeUnixNano": "1760000000000000000", "attributes": [{"key": "step", "value": {"intValue": "12"}}]}]}},
    {"name": "torch.memory.max.allocated", "unit": "By", "gauge": {"dataPoints": [{"asDouble": 5e9, "attributes": [
        {"key": "step", "value": {"intValue": "12"}}]}]}}]}]}]}


@pytest.mark.parametrize(("text", "expected"), [
    ('{"tag": "mem-reserved-bytes", "step": 100, "value": 73620520960.0}\n{"tag": "mem-allocated-bytes", "step": 100, "value": 31711870976.0}\n'
     '{"tag": "mem-max-allocated-bytes", "step": 100, "value": 63988301824.0}\n{"tag": "mem-allocated-count", "step": 100, "value": 1422.0}\n',
     [(None, 100, 31711870976, 73620520960)]),
    ('{"tag": "memory/mem-reserved-gigabytes", "step": 1, "value": 75.0}\n{"tag": "memory/mem-allocated-gigabytes", "step": 1, "value": 68.0}\n',
     [(None, 1, 68_000_000_000, 75_000_000_000)]),
    ('{"_step": 3, "lm loss": 2.5, "mem-reserved-bytes": 1024, "mem-allocated-bytes": 512}\n{"_step": 4, "lm loss": 2.4}\n', [(None, 3, 512, 1024)]),
    ('{"step": 3, "rank": 5, "metrics": {"memory/allocated_gb": 2}}\n', [(5, 3, 2_000_000_000, None)]),
    (json.dumps(OTEL) + "\n", [(7, 12, None, 73620520960)]),
    ('"Step","run-a - mem-reserved-bytes","run-a - mem-reserved-bytes__MIN"\n"10","2048","1"\n"20","4096","1"\n', [(None, 10, None, 2048),
                                                                                                              (None, 20, None, 4096)]),
])
def test_exported_scalars(text: str, expected: list[tuple[Any, ...]]) -> None:
    parser = next(one for one in PARSERS if one.matches(text.encode(), "metrics.jsonl"))
    assert parser.name == "metrics"
    found = rows(parser, text.encode(), "metrics.jsonl")
    assert [(row["rank"], row["iteration"], row.get("allocated_bytes"), row.get("reserved_bytes")) for row in found] == expected


@pytest.mark.parametrize("text", ['{"log": "mem-reserved-bytes: 3"}\n', '{"step": 3, "loss": 2.0}\n', "iteration 3 mem\n",
                                  '{"rank": 0, "stats": {"allocated_bytes.all.peak": 1}}\n'])
def test_other_lines_are_left_to_others(text: str) -> None:
    assert next(one.name for one in PARSERS if one.matches(text.encode(), "x.log")) != "metrics"


def test_a_figure_that_cannot_be_true_is_kept_and_marked() -> None:
    (row,) = rows(METRICS, b'{"_step": 3, "mem-reserved-bytes": -5, "mem-allocated-bytes": 512}\n')
    assert (row["valid"], row.get("reserved_bytes"), row["other"]) == (False, None, {"mem-reserved-bytes": "-5.0"})


def _mutations(count: int) -> None:
    """Wounded files raise nothing but LedgerError; a line of its own step that was left whole keeps its row."""
    chance = random.Random(20261129)
    lines = [json.dumps({"_step": step, "mem-reserved-bytes": step * 1024}).encode() for step in range(1, 9)]
    for _ in range(count):
        victim = chance.randrange(len(lines))
        body = one_line(mutated(lines[victim], chance))
        try:
            list(TENSORBOARD.parse(io.BytesIO(mutated(EVENTS, chance)), "e"))
            found = rows(METRICS, b"\n".join([*lines[:victim], body, *lines[victim + 1:]]) + b"\n", "m")
        except LedgerError:
            continue
        kept = {row["line"]: row["reserved_bytes"] for row in found if row["line"] != victim + 1}
        still_a_record = any(row["line"] == victim + 1 for row in found)
        if still_a_record or (victim == 0 and not body.lstrip(b"\xef\xbb\xbf ").startswith(b"{")):
            continue  # it may now name its neighbour's step, or be the header of a table
        assert kept == {at + 1: (at + 1) * 1024 for at in range(8) if at != victim}, body


def test_mutated_files_raise_nothing() -> None:
    _mutations(500)


@pytest.mark.long
def test_many_mutated_files() -> None:
    _mutations(20_000)
