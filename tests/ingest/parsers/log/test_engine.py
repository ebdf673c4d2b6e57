"""The engine: the same rows however a log is cut, bounded memory, encodings, containers, attempts, damage."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from ingest.errors import LedgerError
from ingest.parsers.log import MEGATRON_LOG
from tests.ingest.parsers.log.reading import canonical, read, read_in_two
from tests.ingest.parsers.mutations import mutated, one_line

EVERY = (Path(__file__).parent / "every_record.log").read_bytes()
NEIGHBOURS = (Path(__file__).parent / "neighbours.log").read_bytes()
MEMORY = "[Rank {0}] (after 2 iterations) memory (MB) | allocated: {1} | max allocated: 40220.25 | reserved: 42000.00 | max reserved: 42000.00"


KINDS = {"rank_memory", "theory_reports", "iterations", "run_args", "runs", "parameter_counts", "oom_events", "job_events"}
NEAR_LINE_ENDS = {at + near for at, byte in enumerate(EVERY) if byte == 10 for near in (-1, 0, 1, 2)}


def _wrong_cuts(cuts: Iterable[int]) -> list[int]:
    whole = canonical(read(EVERY))
    assert set(whole) >= KINDS
    return [cut for cut in cuts if canonical(read_in_two(EVERY, cut)) != whole]


def test_a_log_cut_at_line_ends_and_inside_every_line_gives_the_rows_of_the_whole() -> None:
    assert _wrong_cuts(sorted({*NEAR_LINE_ENDS, *range(0, len(EVERY) + 1, 11)})) == []


def _wrong_neighbour_cuts(cuts: Iterable[int]) -> list[int]:
    whole = canonical(read(NEIGHBOURS))
    assert set(whole) >= {"rank_memory", "theory_reports", "iterations", "memory_stats", "memory_summary", "oom_events", "device_memory", "runs",
                          "job_events"}
    return [cut for cut in cuts if canonical(read_in_two(NEIGHBOURS, cut)) != whole]


def test_a_log_of_neighbours_with_wraps_and_parts_gives_the_same_rows_however_it_is_cut() -> None:
    assert _wrong_neighbour_cuts(range(0, len(NEIGHBOURS) + 1, 13)) == []
    rows = read(NEIGHBOURS)
    assert "rejects" not in rows
    assert sorted(row["rank"] for row in rows["rank_memory"] if row["rank"] is not None) == [0, 3, 5, 7, 8, 9]
    assert [(row["rank"], row["kind"]) for row in rows["oom_events"]] == [(3, "driver"), (2, "cuda"), (None, "nccl")]


def test_a_dump_behind_an_unknown_prefix_and_glued_and_torn_records_give_the_same_rows_however_they_are_cut() -> None:
    memory = MEMORY.format(8, "20110.50")
    lines = [f"7 of w >  {line}" for line in (
        "------------------------ arguments ------------------------", "  lr .............................................. 1e-08",
        "  a_name_of_more_than_forty_eight_characters_without_dots  True", "-------------------- end of arguments ---------------------")]
    data = "\n".join([*lines, memory[:90], memory[90:] + memory.replace("Rank 8", "Rank 9"), "DistributedDataParallelConfig(a=1, nam", "e=(2, 3))",
                      " iteration 3/ 10 | lr: 1,5 | lm loss: 1.000000E+00 | number of nan iterations:   0 |", ""]).encode()
    whole = canonical(read(data))
    assert {table: len(rows) for table, rows in whole.items()} == {"run_args": 4, "rank_memory": 2, "iterations": 1, "rejects": 1}
    assert [cut for cut in range(len(data) + 1) if canonical(read_in_two(data, cut)) != whole] == []


@pytest.mark.long
def test_a_log_of_neighbours_cut_at_any_byte_gives_the_rows_of_the_whole() -> None:
    assert _wrong_neighbour_cuts(range(len(NEIGHBOURS) + 1)) == []


@pytest.mark.long
def test_a_log_cut_at_any_byte_gives_the_rows_of_the_whole() -> None:
    assert _wrong_cuts(range(len(EVERY) + 1)) == []


def test_the_open_end_of_a_log_reads_as_if_it_ended_there() -> None:
    cut = EVERY.index(b"Theoretical memory footprints")
    first = list(MEGATRON_LOG.parse(io.BytesIO(EVERY[:cut]), "train.log", final=False))
    end, state = first[-1].end_bytes, first[-1].state
    assert end < cut
    tail = MEGATRON_LOG.parse(io.BytesIO(EVERY[end:cut]), "train.log", start=end, state=state, final=True)
    both = [*first, *tail]
    assert both[-1].end_bytes == cut
    assert sum(piece.row_count for piece in both) == sum(len(rows) for table, rows in read(EVERY[:cut]).items() if table != "rejects")


def test_two_attempts_in_one_file_are_two_runs_and_a_world_line_with_its_dump_is_one() -> None:
    rows = read(EVERY)
    assert [row["run_index"] for row in rows["runs"] if row.get("world_size")][-1] == 1
    assert {(row["run_index"], row["rank"]) for row in rows["rank_memory"]} == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)}
    assert {row["run_index"] for row in rows["run_args"]} == {0}


@pytest.mark.parametrize("wrapped", [
    "{0}", "[default3]:{0}", "[default0]:[rank8]: {0}", "8: [rank8]:{0}", " 8: {0}", "[cnode0137:0]:{0}", "gx-n01: {0}", "[1,8]<stdout>:{0}",
    "[1,mpirank:8,algo-2]<stdout>:{0}", "[pod/llm-worker-1/pytorch] 2026-04-30T02:12:41.844351500Z {0}", "2026-04-30T02:12:41.8Z stdout F {0}",
    "\x1b[36m(MegatronTrainRayActor pid=1)\x1b[0m [2026-09-02 18:00:01.887 actor_cell0_rank0] {0}", "INFO:megatron.training:{0}",
    "\x1b[32m2026-09-02 18:00:01\x1b[0m | \x1b[1mINFO    \x1b[0m | \x1b[36mtrain\x1b[0m:\x1b[36mmain\x1b[0m:\x1b[36m12\x1b[0m - \x1b[1m{0}\x1b[0m",
    "# {0}", "Filter: 100%|##| 10/10 [00:04<00:00]\r{0}", "\x00\x00\x00{0}", "\ufeff{0}\r", '{{"level": "INFO", "rank": 8, "msg": "{0}"}}',
])
def test_a_record_is_read_through_every_wrapping(wrapped: str) -> None:
    rows = read(wrapped.format(MEMORY.format(8, "20110.50")) + "\n")
    (row,) = rows["rank_memory"]
    assert (row["rank"], row["iteration"], row["allocated_bytes"], row["line"]) == (8, 2, round(20110.5 * 2**20), 1)


@pytest.mark.parametrize(("line", "rank", "label"), [
    ("[rank3]: ", 3, None), ("[default3]:", None, "local 3"), (" 3: ", None, "task 3"), ("[default1]:[rank9]: ", 9, None),
    ("[1,5]<stderr>:", 5, None),
])
def test_only_a_prefix_that_means_a_global_rank_gives_one(line: str, rank: int | None, label: str | None) -> None:
    from ingest.parsers.log.prefixes import log_line

    found = log_line(line + "torch.OutOfMemoryError: CUDA out of memory.", 1, 0)
    assert (found.rank, found.rank_label) == (rank, label)
    assert found.text.startswith("torch.OutOfMemoryError")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "gbk"])
def test_other_encodings_keep_their_records(encoding: str) -> None:
    note = "训练" if encoding == "gbk" else "note"
    rows = read(f"{note}\n{MEMORY.format(4, '20110.50')}\n".encode(encoding))
    assert [(row["rank"], row["line"]) for row in rows["rank_memory"]] == [(4, 2)]


def test_docker_records_that_continue_are_joined() -> None:
    first, second = MEMORY.format(8, "20110.50").split(".50", 1)
    rows = read('{"log":"' + first + '","stream":"stdout"}\n{"log":"x\\n","stream":"stderr"}\n{"log":".50' + second + '\\n","stream":"stdout"}\n')
    assert [row["allocated_bytes"] for row in rows["rank_memory"]] == [round(20110.5 * 2**20)]


def test_a_line_without_end_is_rejected_in_bounded_memory_and_the_next_is_read() -> None:
    class Endless(io.RawIOBase):
        left = 40

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return b"x" * 2**20 if self.left > 0 else b"\n" + MEMORY.format(1, "20110.50").encode() + b"\n" if self.left == 0 else b""

    rows: dict[str, list[dict[str, object]]] = {}
    for piece in MEGATRON_LOG.parse(Endless(), "train.log"):  # type: ignore[arg-type]
        for table, found in piece.rows.items():
            rows.setdefault(table, []).extend(found)
    assert [row["rank"] for row in rows["rank_memory"]] == [1]
    assert [row["reason"] for row in rows["rejects"]] == ["line longer than 1 MiB"]


def test_an_empty_log_and_a_cut_record_give_nothing() -> None:
    assert read(b"") == {}
    assert "rank_memory" not in read("[Rank 8] (after 2 iterations) memory (MB) | allocated: 20110.50 | max alloc\n")


def test_a_rank_comes_from_the_file_name_only_where_it_says_rank() -> None:
    from ingest.parsers.names import rank_of

    named = {"logs/rank3.log": 3, "rank_12/out.txt": 12, "memory_stats_rank-0007.jsonl": 7, "a.zip!rank5.log": 5}
    assert {path: rank_of(path) for path in named} == named
    assert [rank_of(path) for path in ("train.log", "3.log", "node0_local_rank_3.log", "attempt_0/3/stdout.log", "crank3.log")] == [None] * 5


SINGLE = [line.encode() for line in (
    *(MEMORY.format(rank, "20110.50") for rank in range(3)),
    " [2026-04-05 16:08:25] iteration       40/    1000 | consumed samples:          160 | elapsed time per iteration (ms): 1402.6 | "
    "learning rate: 1.488E-04 | lm loss: 1.244310E+01 | number of nan iterations:   0 |",
    " > number of parameters on (tensor, pipeline) model parallel rank (3, 5): 925177344",
    " > padded vocab (size: 151643) with 421 dummy tokens (new size: 152064)",
    "[rank3]: torch.AcceleratorError: CUDA error: out of memory",
    "[rank2]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 2; 60.96 GiB total capacity; 30.23 GiB already allocated; "
    "25.36 GiB free; 33.08 GiB reserved in total by PyTorch)",
    "[INFO:swift] after offload GPU memory: 3.12GB allocated, 4.50GB reserved",
    "[Rank 5] Memory-Usage after train: {'gpu': '0', 'total_GB': 139.81, 'used_GB': 75.27, 'allocated_GB': 58.57, 'reserved_GB': 70.67}",
    "[rank5]: OrderedDict([('allocated_bytes.all.current', 31711870976), ('reserved_bytes.all.peak', 73620520960)])",
    "GPU[1]\t\t: VRAM Total Used Memory (B): 198141652992", "successfully saved checkpoint from iteration      50 to /data/ckpt [ t 1/1, p 1/1 ]",
    "  micro_batch_size ................................ 2", "srun: error: gx-n12: task 2: Out Of Memory")]
CONTEXT = ("run_index", "iteration")
"""What a record without an iteration of its own takes from the last iteration line: a wound there may change it."""


def _rows_but(lines: list[bytes], victim: int, dropped: tuple[str, ...]) -> dict[str, list[str]]:
    rows = read(b"\n".join(lines) + b"\n")
    kept = {table: [{name: value for name, value in row.items() if name not in dropped} for row in found if row["line"] != victim + 1]
            for table, found in rows.items() if table not in ("rejects", "runs")}
    return {table: found for table, found in canonical(kept).items() if found}


def _mutations(count: int) -> None:
    """Wounded bytes raise nothing but the one error, and a line that was left intact keeps its rows."""
    chance = random.Random(20261129)
    for _ in range(count):
        lines = chance.sample(SINGLE, 6)
        victim = chance.randrange(len(lines))
        dropped = CONTEXT if b"iteration" in lines[victim] else ()
        whole = _rows_but(lines, victim, dropped)
        lines[victim] = one_line(mutated(lines[victim], chance))
        assert _rows_but(lines, victim, dropped) == whole, lines
        with suppress(LedgerError):
            read(mutated(EVERY, chance, 40))


def test_mutated_logs_raise_nothing_and_leave_intact_lines_alone() -> None:
    _mutations(500)


@pytest.mark.long
def test_many_mutated_logs() -> None:
    _mutations(20_000)


@pytest.mark.parametrize("line", [
    " iteration {0}/ {0} | consumed samples: {0} | lm loss: 1.000000E+00 |", "using world size: {0}, data-parallel size: {0}",
    "[Rank {0}] (after {0} iterations) memory (MB) | allocated: {0}.0 | max allocated: {0}.0 | reserved: {0}.0 | max reserved: {0}.0",
    "[rank{0}]: RuntimeError: CUDA error: out of memory", "CUDA out of memory. Tried to allocate {0}.00 GiB", "[1,{0}]<stdout>:{0}: x",
    "Params for bucket {0} ({0} elements):", "| Allocated memory | {0} MiB |", " iteration 1/ 2 | lm loss: 3E512 | lr: 1e999 |",
    "(after {0} iterations) memory (GB) | mem-allocated-gigabytes: 1e{0} | mem-max-allocated-gigabytes: 1.0",
    " iteration 1/ 2 | global batch size: 3E512 | consumed samples: 1e30 |", "0, {0} MiB, {0} MiB", "rtMalloc failed. size:{0}",
    "After x, memory allocated (GB): 1e{0}, memory reserved (GB): 2.0", "GPU[{0}] : VRAM Total Used Memory (B): {0}",
])
def test_numbers_of_any_length_raise_nothing(line: str) -> None:
    for digits in (20, 400, 3_999, 5_000, 100_000):
        rows = read(line.replace("{0}", "9" * digits) + "\n" + MEMORY.format(7, "20110.50") + "\n")
        assert [row["rank"] for row in rows["rank_memory"] if row["line"] == 2] == [7]


def test_real_logs_give_every_rank_and_nothing_more(shared: Path) -> None:
    import json

    from ingest.parsers.reading import parse_file

    folder = shared / "data/logs/real"
    if not folder.is_dir():
        pytest.skip("needs the real logs of the shared data")
    for name, expected in json.loads((folder / "expected.json").read_text()).items():
        rows = parse_file(folder / name).rows
        assert len(rows["rank_memory"]) == len(expected["rank_memory"]), name
        assert sorted(row["iteration"] for row in rows["iterations"]) == sorted(expected["iterations"])
        measured = {(row["rank"], row["allocated_bytes"], row["max_reserved_bytes"]) for row in rows["rank_memory"] if row["rank"] is not None}
        assert measured <= {(row["rank"], row["allocated_bytes"], row["max_reserved_bytes"]) for row in expected["rank_memory"]}

