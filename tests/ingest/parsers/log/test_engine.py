"""The engine: the same rows however a log is cut, bounded memory, encodings, containers, attempts, damage."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from ingest.parsers.log import MEGATRON_LOG
from tests.ingest.parsers.log.reading import canonical, read, read_in_two

EVERY = (Path(__file__).parent / "every_record.log").read_bytes()
MEMORY = "[Rank {0}] (after 2 iterations) memory (MB) | allocated: {1} | max allocated: 40220.25 | reserved: 42000.00 | max reserved: 42000.00"


KINDS = {"rank_memory", "theory_reports", "iterations", "run_args", "runs", "parameter_counts", "oom_events", "job_events"}
NEAR_LINE_ENDS = {at + near for at, byte in enumerate(EVERY) if byte == 10 for near in (-1, 0, 1, 2)}


def _wrong_cuts(cuts: Iterable[int]) -> list[int]:
    whole = canonical(read(EVERY))
    assert set(whole) >= KINDS
    return [cut for cut in cuts if canonical(read_in_two(EVERY, cut)) != whole]


def test_a_log_cut_at_line_ends_and_inside_every_line_gives_the_rows_of_the_whole() -> None:
    assert _wrong_cuts(sorted({*NEAR_LINE_ENDS, *range(0, len(EVERY) + 1, 11)})) == []


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


def _mutations(count: int) -> None:
    """Mutated bytes raise nothing, and a line that was left intact keeps its rows."""
    random_ = random.Random(20261129)
    lines = [MEMORY.format(rank, "20110.50").encode() for rank in range(4)] + EVERY.splitlines()
    for _ in range(count):
        victim = random_.randrange(4)
        data = bytearray(lines[victim])
        for _ in range(random_.randint(1, 6)):
            at = random_.randrange(len(data) + 1)
            data[at:at + random_.randint(0, 3)] = bytes(random_.choice(b"\x00[]|:0189. -\xffRank\x1b") for _ in range(random_.randint(0, 3)))
        body = bytes(data).replace(b"\n", b" ").replace(b"\r", b" ")
        intact = read(b"\n".join([*lines[:victim], body, *lines[victim + 1:4]]) + b"\n")
        kept = {row["rank"] for row in intact.get("rank_memory", []) if row["line"] != victim + 1}
        assert kept == {rank for rank in range(4) if rank != victim}, body
        chunk = list(EVERY)
        for _ in range(random_.randint(1, 40)):
            chunk[random_.randrange(len(chunk))] = random_.randrange(256)
        read(bytes(chunk))


def test_mutated_logs_raise_nothing_and_leave_intact_lines_alone() -> None:
    _mutations(250)


@pytest.mark.long
def test_many_mutated_logs() -> None:
    _mutations(20_000)


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

