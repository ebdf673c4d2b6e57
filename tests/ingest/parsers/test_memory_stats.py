"""The kinds of `memory_stats` text, what they prove of rank and step, and the same rows however a file is cut."""

from __future__ import annotations

import io
import json
import random
from collections import OrderedDict
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest import tables
from ingest.parsers import memory_stats
from ingest.parsers.memory_stats import MEMORY_STATS
from tests.ingest.parsers.mutations import mutated, one_line

FLAT = {"allocated_bytes.all.current": 31711870976, "allocated_bytes.all.peak": 63988301824, "reserved_bytes.all.current": 73620520960,
        "reserved_bytes.all.peak": 73620520960, "inactive_split_bytes.all.current": 8527020032, "active.all.current": 1422,
        "num_alloc_retries": 4, "num_ooms": 1, "max_split_size": -1}
PROBE = {"rank": 3, "iteration": 120, "time": 1764412345.25, "scope": "interval", "device_total_bytes": 85_000_000_000,
         "device_free_bytes": 5_000_000_000, "stats": FLAT}


def nested(flat):
    deep = {}
    for name, value in flat.items():
        place = deep
        *parts, last = name.split(".")
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = value
    return deep


def rows(data: bytes, path: str = "stats.json", **options):
    pieces = list(MEMORY_STATS.parse(io.BytesIO(data), path, **options))
    found = {}
    for piece in pieces:
        for table, some in piece.rows.items():
            found.setdefault(table, []).extend(some)
    return found


def test_a_probe_line_fills_both_tables():
    found = rows(json.dumps(PROBE).encode() + b"\n")
    [stats], [memory] = found["memory_stats"], found["rank_memory"]
    assert (stats["rank"], stats["iteration"], stats["scope"], stats["line"], stats["run_index"]) == (3, 120, "interval", 1, 0)
    assert stats["at"] == datetime(2025, 11, 29, 10, 32, 25, 250000)
    assert stats["counters"] == FLAT
    assert stats["allocated_bytes_all_peak_bytes"] == 63988301824
    assert stats["inactive_split_bytes_all_current_bytes"] == 8527020032
    assert (stats["num_alloc_retries"], stats["num_ooms"]) == (4, 1)
    assert (memory["max_allocated_bytes"], memory["reserved_bytes"], memory["device_used_bytes"]) == (63988301824, 73620520960, 80_000_000_000)
    assert (memory["source"], memory["scope"], memory["phase"], memory["rounding_bytes"]) == ("memory_stats", "interval", "train", 0)
    assert stats["valid"] is memory["valid"] is True


def test_a_rank_and_a_step_may_be_spelled_as_text():
    found = rows(json.dumps(PROBE | {"rank": "3", "iteration": "120"}).encode() + b"\n")
    assert [(row["rank"], row["iteration"]) for row in found["memory_stats"]] == [(3, 120)]
    assert [row["rank"] for row in rows(json.dumps(PROBE | {"rank": "3a"}).encode() + b"\n")["memory_stats"]] == [None]


@pytest.mark.parametrize("text", [
    json.dumps(FLAT), json.dumps(nested(FLAT)), json.dumps(FLAT, indent=2), json.dumps(nested(FLAT), indent="\t"), json.dumps([FLAT]),
    "OrderedDict([" + ", ".join(f"({name!r}, {value})" for name, value in FLAT.items()) + "])",
    "OrderedDict([" + ",\n             ".join(f"({name!r}, {value})" for name, value in FLAT.items()) + "])",
    f"OrderedDict({FLAT})", str(nested(FLAT)), str({0: dict(FLAT)}), json.dumps({"stats": FLAT}),
], ids=["flat", "nested", "indented", "tabs", "list", "ordered", "ordered_lines", "python_3_12", "python_nested", "python_mapping", "stats"])
def test_every_kind_of_text_gives_the_same_counters(text):
    for end in ("", "\n"):
        data = (text + end).encode()
        assert MEMORY_STATS.matches(data, "dump.json")
        found = rows(data)
        assert [row["counters"] for row in found["memory_stats"]] == [FLAT]
        assert "rejects" not in found


def test_a_summary_is_read_by_the_names_people_write():
    data = json.dumps({"rank": 2, "step": 30, "allocated_bytes": 5, "reserved_bytes": 9, "max_allocated_bytes": 7, "max_reserved_bytes": 9,
                       "num_alloc_retries": 4}).encode()
    assert MEMORY_STATS.matches(data, "x")
    [row] = rows(data)["memory_stats"]
    assert (row["rank"], row["iteration"], row["num_alloc_retries"]) == (2, 30, 4)
    assert row["counters"] == {"allocated_bytes.all.current": 5, "reserved_bytes.all.current": 9, "allocated_bytes.all.peak": 7,
                               "reserved_bytes.all.peak": 9, "num_alloc_retries": 4}
    [row] = rows(b'{"memory_allocated": 5, "max_memory_reserved": 9, "node": "a"}')["rank_memory"]
    assert (row["allocated_bytes"], row["max_reserved_bytes"], row["other"], row["rank"]) == (5, 9, {"node": "a"}, None)


def test_rank_and_step_come_from_content_then_keys_then_the_name():
    assert [row["rank"] for row in rows(json.dumps({"0": FLAT, "rank_7": nested(FLAT)}).encode())["memory_stats"]] == [0, 7]
    [row] = rows(json.dumps({"step 10": {"rank3": FLAT}}).encode())["memory_stats"]
    assert (row["rank"], row["iteration"]) == (3, 10)
    [row] = rows(json.dumps(FLAT).encode(), "out/stats_rank_12_step_0040.json")["memory_stats"]
    assert (row["rank"], row["iteration"]) == (12, 40)
    assert rows(json.dumps(PROBE).encode(), "stats_rank_12.json")["memory_stats"][0]["rank"] == 3
    assert [row["rank"] for row in rows(json.dumps([FLAT, FLAT]).encode())["memory_stats"]] == [None, None]
    [row] = rows(json.dumps({"local_rank": 1, **FLAT}).encode())["memory_stats"]
    assert (row["rank"], row["rank_label"]) == (None, "local 1")
    [row] = rows(json.dumps(FLAT).encode(), "logs/attempt_0/3/stats.json")["memory_stats"]
    assert (row["rank"], row["rank_label"]) == (None, "local 3")


@pytest.mark.parametrize("wrong", [
    {"allocated_bytes.all.current": 0, "allocated_bytes.all.peak": 0}, {"allocated_bytes.all.current": -512, "allocated_bytes.all.peak": 5},
    {"allocated_bytes.all.peak": 2**62},
])
def test_figures_that_cannot_be_true_are_kept_and_marked(wrong):
    found = rows(json.dumps({"rank": 1, "stats": wrong}).encode())
    assert found["memory_stats"][0]["valid"] is found["rank_memory"][0]["valid"] is False
    assert found["memory_stats"][0]["counters"] == wrong


def test_more_free_than_the_device_has_cannot_be_true_and_huge_integers_are_text():
    assert rows(json.dumps({**PROBE, "device_free_bytes": 2**40}).encode())["rank_memory"][0]["valid"] is False
    [row] = rows(json.dumps({"allocated_bytes.all.peak": 5, "allocated_bytes.all.allocated": 2**64}).encode())["memory_stats"]
    assert row["counters"] == {"allocated_bytes.all.peak": 5}
    assert "allocated_bytes.all.allocated" in row["other"]


def test_a_torn_line_is_rejected_and_its_neighbours_are_kept():
    line = json.dumps(PROBE).encode()
    data = line + b"\n" + line[:200] + b"\n" + line + b"\n" + line[:70] + line + b"\n" + b'{"note": 1}\n'
    found = rows(data)
    assert [row["line"] for row in found["memory_stats"]] == [1, 3, 4]
    assert [(row["line"], row["reason"]) for row in found["rejects"]] == [
        (2, "a record that is not whole"), (4, "a record that is not whole"), (5, "a record without allocator counters")]
    assert [row["offset_bytes"] for row in found["rejects"]] == [len(line) + 1, 2 * len(line) + 203, data.index(b'{"note')]


def test_a_step_that_goes_back_is_a_new_attempt_of_that_rank():
    def line(rank, step, time):
        return json.dumps({**PROBE, "rank": rank, "iteration": step, "time": time}) + "\n"
    data = "".join(line(rank, step, time) for step, time in ((1, 10.0), (2, 20.0), (1, 30.0), (2, 40.0)) for rank in (0, 1)).encode()
    assert [row["run_index"] for row in rows(data)["memory_stats"]] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("text", [
    "", "\n", "using world size: 8\n", '{"hidden_size": 4096}\n', '[rank5]: OrderedDict([("allocated_bytes.all.current", 5)])\n',
    json.dumps({"log": "OrderedDict([('allocated_bytes.all.current', 1)])\n", "stream": "stdout"}) + "\n",
    json.dumps({"message": "step", "allocated_bytes": 5}) + "\n", json.dumps(PROBE) + "\n iteration 1/ 10 | consumed samples: 8 |\n",
    '{"tag": "mem-allocated-bytes", "step": 100, "value": 1422.0}\n', "{" * 3000, "[" * 60000,
    "[2026-01-01 10:00:00] 'allocated_bytes.all.current', 5 (", "OrderedDict([('loss', 1)])",
    "{'allocated_bytes.all.peak': " + "(" * 5000,
])
def test_ordinary_logs_are_left_to_others(text):
    assert not MEMORY_STATS.matches(text.encode(), "run.log")


def test_a_document_larger_than_the_head_is_recognised():
    data = json.dumps({str(rank): nested(FLAT) for rank in range(400)}, indent=1).encode()
    assert len(data) > 2 * 65536
    assert MEMORY_STATS.matches(data[:65536], "all.json")
    assert len(rows(data)["memory_stats"]) == 400


def test_a_record_without_an_end_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(memory_stats, "LARGEST_RECORD_BYTES", 4096)
    with pytest.raises(memory_stats.LedgerError, match="a record of more than"):
        rows(b'{"stats": {"allocated_bytes.all.peak": 5,' + b'"a": 1, ' * 2000)


RECORDS = [json.dumps(PROBE) + "\n", json.dumps(nested(FLAT), indent=1) + "\n", f"OrderedDict({FLAT})\n", json.dumps({"0": FLAT}) + "\r\n",
           json.dumps(PROBE)[:90] + "\n", "\n", "[\n" + json.dumps(FLAT) + ",\n" + json.dumps(FLAT) + "\n]\n"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(RECORDS), min_size=1, max_size=6), st.data())
def test_any_cut_gives_the_rows_of_the_whole(records, data):
    whole = "".join(records).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    found, start, state = {}, 0, None
    for cut in [*cuts, len(whole)]:
        last = cut == len(whole)
        for piece in MEMORY_STATS.parse(io.BytesIO(whole[start:cut]), "s", start=start, state=state, final=last):
            for table, some in piece.rows.items():
                found.setdefault(table, []).extend(some)
            assert start <= piece.end_bytes <= cut
            closed, state = piece.end_bytes, piece.state
        start = closed
        if last:
            break
    assert start == len(whole)
    assert found == rows(whole, "s")


NAMES = ["rank", "stats", "allocated_bytes", "all", "current", "peak", "time", "step", "x", "allocated_bytes.all.peak"]
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(NAMES), inner, max_size=4), max_leaves=12)


@settings(max_examples=200, deadline=None)
@given(JSON | st.binary(max_size=80))
def test_any_value_gives_rows_that_fit_the_schema(value):
    import pyarrow as pa

    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    MEMORY_STATS.matches(data, "x")
    for table, some in rows(data).items():
        schema = tables.arrow_schema(table)
        assert {name for row in some for name in row} <= set(schema.names)
        pa.Table.from_pylist([{**row, "other": list((row.get("other") or {}).items()), **(
            {"counters": list(row["counters"].items())} if "counters" in row else {})} for row in some], schema=schema)


def test_ordered_dict_text_as_this_python_prints_it():
    assert rows(str(OrderedDict(FLAT)).encode())["memory_stats"][0]["counters"] == FLAT


def test_a_rank_that_no_job_has_is_no_rank():
    assert [rows(json.dumps({"rank": rank, "stats": FLAT}).encode())["memory_stats"][0]["rank"] for rank in (2**31, -1, 7)] == [None, None, 7]


WHOLE = [record for record in RECORDS if record.startswith(("{", "Ord")) and record.count("\n") == 1 and record.rstrip().endswith(("}", ")"))]


def _mutations(count):
    """Wounds raise nothing but the one error, and a wounded line changes no row of another line."""
    chance = random.Random(20261129)
    for _ in range(count):
        lines = [json.dumps({**PROBE, "rank": rank}).encode() for rank in range(3)] + [chance.choice(WHOLE).encode().rstrip()]
        chance.shuffle(lines)
        whole = rows(b"\n".join(lines) + b"\n")
        victim = chance.randrange(len(lines))
        lines[victim] = one_line(mutated(lines[victim], chance)) + b" "
        damaged = rows(b"\n".join(lines) + b"\n")
        for table in ("memory_stats", "rank_memory"):
            kept = [row for row in whole[table] if row["line"] != victim + 1]
            assert [row for row in damaged.get(table, []) if row["line"] != victim + 1] == kept, lines[victim]
        text = mutated("".join(RECORDS).encode(), chance, 30)
        try:
            MEMORY_STATS.matches(text, "x")
            rows(text)
        except memory_stats.LedgerError:
            pass


def test_wounded_files_raise_nothing_and_leave_whole_lines_alone():
    _mutations(500)


@pytest.mark.long
def test_many_wounded_files():
    _mutations(20_000)
