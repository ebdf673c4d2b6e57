"""memory_summary tables with their cell units and rounding, and memory_stats printed on one line or over several."""

from __future__ import annotations

import pytest

from tests.ingest.parsers.log.reading import read

MIB, GIB = 2**20, 2**30
TABLE = """\
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 3                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 1            |        cudaMalloc retries: 4         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |  30249 MiB |  61042 MiB | 128336 GiB | 128306 GiB |
|       from large pool |  29915 MiB |  60665 MiB | 127204 GiB | 127175 GiB |
|---------------------------------------------------------------------------|
| GPU reserved memory   |  70210 MiB |  70210 MiB |  70210 MiB |      0 B   |
|---------------------------------------------------------------------------|
| Allocations           |    1422    |    2011    |     912 K  |       3 M  |
|===========================================================================|
"""


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "[default3]:[rank3]: ", "3: [rank3]: "])
def test_a_table_s_units_are_each_cell_s_own(prefix: str) -> None:
    rows = read("".join(prefix + line + "\n" for line in TABLE.splitlines()))["memory_summary"]
    found = [tuple(row[one] for one in ("metric", "pool", "current", "peak", "total_allocated", "total_freed", "rounding_bytes")) for row in rows]
    assert found == [
        ("Allocated memory", "all", 30249 * MIB, 61042 * MIB, 128336 * GIB, 128306 * GIB, MIB),
        ("Allocated memory", "large", 29915 * MIB, 60665 * MIB, 127204 * GIB, 127175 * GIB, MIB),
        ("GPU reserved memory", "all", 70210 * MIB, 70210 * MIB, 70210 * MIB, 0, MIB),
        ("Allocations", "all", 1422, 2011, 912_000, 3_000_000, 0)]
    assert {row["rank"] for row in rows} == {3 if prefix else None}
    assert {row["device"] for row in rows} == {3}
    assert rows[0]["other"]["ooms"] == "1"
    assert rows[0]["other"]["cudamalloc_retries"] == "4"


def test_tables_of_two_ranks_between_each_other_s_lines_are_two_tables_where_they_follow_each_other() -> None:
    rows = read(TABLE + TABLE.replace("device ID 3", "device ID 4").replace("30249", "30250"))["memory_summary"]
    assert [(row["device"], row["current"]) for row in rows if row["metric"] == "Allocated memory" and row["pool"] == "all"] == [
        (3, 30249 * MIB), (4, 30250 * MIB)]


COUNTERS = {"active.all.allocated": 912331, "allocated_bytes.all.current": 31711870976, "allocated_bytes.all.peak": 63988301824,
            "reserved_bytes.all.peak": 73620520960, "num_ooms": 1}
PAIRS = [f"('{name}', {value})" for name, value in COUNTERS.items()]
ITEMS = [f"'{name}': {value}" for name, value in COUNTERS.items()]


@pytest.mark.parametrize("text", [
    "[rank5]: OrderedDict([" + ", ".join(PAIRS) + "])", "[rank5]: OrderedDict({" + ", ".join(ITEMS) + "})", "[rank5]: {" + ", ".join(ITEMS) + "}",
    "rank 5 memory stats: OrderedDict([" + ", ".join(PAIRS) + "]) done", "OrderedDict([" + ",\n             ".join(PAIRS) + "])",
    "{" + ",\n ".join(ITEMS) + "}", "[rank5]: OrderedDict([" + ",\n[rank5]:              ".join(PAIRS) + "])\n[rank5]: next",
])
def test_counters_printed_into_a_log_are_read_however_python_prints_them(text: str) -> None:
    rows = read(" iteration 20/ 30 | lm loss: 1.000000E+00 | number of nan iterations:   0 |\n" + text + "\n")
    (stats,) = rows["memory_stats"]
    assert stats["counters"] == COUNTERS
    assert (stats["rank"], stats["iteration"], stats["line"]) == (5 if text.startswith(("[rank5]", "rank 5")) else None, 20, 2)
    assert rows["rank_memory"][0]["max_allocated_bytes"] == 63988301824


def test_counters_that_break_off_are_rejected_and_the_next_line_is_read() -> None:
    rows = read("OrderedDict([" + ",\n ".join(PAIRS[:3]) + "\n[Rank 1] (after 1 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | "
                "reserved: 4.0 | max reserved: 4.0\n")
    assert "memory_stats" not in rows
    assert [row["rank"] for row in rows["rank_memory"]] == [1]
    assert [row["reason"] for row in rows["rejects"]] == ["counters whose brackets do not close"]
