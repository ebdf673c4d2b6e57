"""The compiled scanner gives the rows of the Python one, and is used where it should be."""

from __future__ import annotations

import base64
import gc
import gzip
import io
import json
import random
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.parsers.log import MEGATRON_LOG, engine
from tests.ingest.parsers.log.reading import Rows
from tests.ingest.parsers.log.test_engine import EVERY

pytestmark = pytest.mark.skipif(engine.Engine((), "x", None).fast is None, reason="the compiled scanner is not built")

MEMORY = "[Rank {0}] (after {1} iterations) memory (MB) | allocated: {2} | max allocated: {3} | reserved: {4} | max reserved: {5}"
ITERATION = (" iteration {0:8d}/    1000 | consumed samples: {1:12d} | elapsed time per iteration (ms): {2:.1f} | learning rate: {3:.6E} | "
             "global batch size: {4:5d} | lm loss: {5:.6E} | loss scale: 1.0 | grad norm: {6:.3f} | num zeros: {7} | "
             "number of skipped iterations: {8:3d} | number of nan iterations: {9:3d} |")
PREFIXES = ("", "", "", " ", "[default3]:", "[rank5]: ", " 9: [rank9]:", "[default1]:[rank2]: ", "gx-n01: ", "[1,8]<stdout>:", "INFO:megatron:",
            "\x1b[36m", "2026-09-01T10:00:00.1Z ", "(Actor pid=3) ", "\t", "{", "x] ", "[Rank ", "#1|", "\x00", "\r", "é: ",
            "[0] ", "[3]: ", "Nov 30 07:21:44 gpu01 python[1]: ", "Nov  3 07:21:44 ", "trainer_1_1  | ", "[rank=4] ", "10.0.0.1: ", "worker[2]: ")


def _rows(data: bytes, path: str, **options: object) -> tuple[Rows, int]:
    rows: Rows = {}
    fast = 0
    for piece in MEGATRON_LOG.parse(io.BytesIO(data), path, **options):  # type: ignore[arg-type]
        fast += sum(part.num_rows for table, part in piece.tables.items() if table in ("rank_memory", "iterations"))
        for table, found in piece.records().items():
            rows.setdefault(table, []).extend({name: value for name, value in row.items() if value is not None} for row in found)
    return {table: found for table, found in rows.items() if found}, fast


def both(data: bytes, path: str = "train.log") -> int:
    """How many rows the compiled scanner read; fails where the Python one reads others, or in another order."""
    native, fast = _rows(data, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "fast_path", lambda *_: None)
        python, none = _rows(data, path)
    assert none == 0
    assert native == python
    return fast


def _number(source: random.Random) -> str:
    value = source.choice((source.uniform(0, 9e4), source.randrange(10**8) * 512 / 2**20, 0.0, source.randrange(10**5) / 4, source.uniform(0, 2**31)))
    form = source.choice(("{:.2f}", "{}", "{:.1f}", "{:.3f}", "{:.12f}", "{:.0f}", "-{:.2f}", "{:.2e}"))
    return form.format(value)


def _memory_line(source: random.Random) -> str:
    exact = [str(source.randrange(10**8) * 512 / 2**20) for _ in range(4)]
    figures = source.choice((exact, [f"{source.uniform(0, 9e4):.2f}" for _ in range(4)], [_number(source) for _ in range(4)], ["0.00"] * 4))
    line = MEMORY.format(source.randrange(64), source.randrange(2000), *figures)
    return line + source.choice(("", "", "", " | total device memory used: 40000.25", " |", "  ", "[Rank 3]", "\r", " note", "..."))


def _iteration_line(source: random.Random, n: int) -> str:
    stamp = source.choice(("", "", f" [2026-{source.randrange(1, 14):02d}-{source.randrange(1, 32):02d} 10:00:{source.randrange(62):02d}]",
                           " [2026-09-01 10:00:00.123456]", " [2026-02-29 10:00:00.12]"))
    line = ITERATION.format(n, source.randrange(10**6), source.uniform(1, 1e5), source.uniform(0, 1), 512, source.uniform(-1, 11), source.random(),
                            source.choice(("1.0", "nan", "3", "1/2", "12.5 (avg 3.0)")), source.randrange(3), 0)
    more = source.choice(("", "", "", " moe x_loss: 1.250000E+00 |", " mem_usages: 0.5 |", " time (s): 3.5 |", " unread |", " lm loss: 2 |",
                          " a = 3 |", " [Rank 1] (after 2 iterations)", " TFLOPs: 33.25 |", " validation: 1.0 |", " allocated (GB): 2.5 |",
                          " lens: 1,2,3 |", " tokens: 1,234,567 |", " grad norm: 1,5 |", " lm loss: 1,070112E+01 |"))
    if source.random() < 0.2:
        line = line.replace(" number of nan iterations:   0 |", "")
    return stamp + line + more


def _log(source: random.Random, lines: int) -> str:
    """Lines of both records behind prefixes, wounded now and then, among records of several lines and noise."""
    n, out = 0, []
    blocks = EVERY.decode().split("\n")
    for _ in range(lines):
        n += source.choice((0, 1, 1, 1, 1, -3 if source.random() < 0.05 else 1))
        kind = source.random()
        if kind < 0.01:
            line = source.choice(blocks)
        elif kind < 0.1:
            line = source.choice(("noise", "gpu1:2:3 [0] NCCL INFO Using network IB", "restarting worker group", "", "x" * 300, "memory (MB) |"))
        else:
            line = source.choice(PREFIXES) + (_memory_line(source) if kind < 0.65 else _iteration_line(source, max(n, 0)))
        if source.random() < 0.1 and line:
            at = source.randrange(len(line))
            line = line[:at] + source.choice(("", "9", ".", "|", " ", "\x00", "é", "[", ":", "e5")) + line[at + source.randrange(3):]
        out.append(line)
    return "\n".join(out) + source.choice(("", "\n"))


def _generated(count: int) -> None:
    fast = 0
    for seed in range(count):
        source = random.Random(seed)
        data = _log(source, source.choice((3, 30, 200))).encode("utf-8", "surrogatepass")
        fast += both(data, source.choice(("train.log", "rank_3.log", "local_rank_2/stdout.log")))
    assert fast > count


def test_generated_logs_give_the_rows_of_the_python_scanner() -> None:
    _generated(60)


@pytest.mark.long
def test_many_generated_logs_give_the_rows_of_the_python_scanner() -> None:
    _generated(4000)


def test_a_log_of_every_record_whole_and_with_wounds() -> None:
    assert both(EVERY) >= 0
    source = random.Random(7)
    for _ in range(60):
        wounded = bytearray(EVERY)
        for _ in range(source.randrange(1, 40)):
            wounded[source.randrange(len(wounded))] = source.randrange(256)
        both(bytes(wounded))


def _shared_logs(shared: Path) -> Iterator[tuple[str, bytes]]:
    folder = shared / "data/logs"
    for file in sorted((folder / "files").glob("*")):
        if not file.name.endswith(".expected.json"):
            yield file.name, file.read_bytes()
    for file in sorted((folder / "real").glob("*.gz")):
        yield file.name, gzip.decompress(file.read_bytes())
    for line in (folder / "shapes.jsonl").read_text(encoding="utf-8").splitlines():
        shape = json.loads(line)
        encoded = shape.get("lines_b64", [])
        parts = [base64.b64decode(one) for one in ([encoded] if isinstance(encoded, str) else encoded)]
        yield shape["shape_id"], b"\n".join([*(one.encode() for one in shape.get("lines", ())), *parts, b""])


def test_known_logs_give_the_rows_of_the_python_scanner(shared: Path) -> None:
    assert sum(both(data, name) for name, data in _shared_logs(shared)) > 200


@pytest.fixture(autouse=True)
def _as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows there are, they come as columns, so that they can be counted."""
    monkeypatch.setattr(engine, "MANY_ROWS", 1)


@pytest.mark.parametrize("prefix", ["", "[default3]:", " 9: [rank9]:", "[1,8]<stdout>:"])
def test_the_common_records_are_read_fast_behind_common_prefixes(prefix: str) -> None:
    lines = []
    for n in range(1, 101):
        lines.append(prefix + ITERATION.format(n, n, 5.5, 1e-4, 8, 2.0, 1.0, "3", 0, 0))
        lines.append(prefix + MEMORY.format(n % 8, n, "20110.50", "20110.50", "30000.25", "30000.25"))
    assert both("\n".join([*lines, ""]).encode()) > 150


@pytest.mark.parametrize("cut", [1, 77, 400, 401, 402, 4000])
def test_a_growing_log_gives_the_rows_of_the_whole(cut: int) -> None:
    data = _log(random.Random(3), 120).encode("utf-8", "surrogatepass")
    whole, _ = _rows(data, "train.log")
    first = list(MEGATRON_LOG.parse(io.BytesIO(data[:cut]), "train.log", final=False))
    end, state = first[-1].end_bytes, first[-1].state
    rest, _ = _rows(data[end:], "train.log", start=end, state=state)
    for piece in reversed(first):
        for table, found in piece.records().items():
            rest[table] = [{name: value for name, value in row.items() if value is not None} for row in found] + rest.get(table, [])
    assert {table: rows for table, rows in rest.items() if rows} == whole


def test_the_buffers_of_a_log_are_gone_with_its_last_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[object]] = []
    real = engine.fast_path

    def noted(*arguments: Any) -> object:
        found = real(*arguments)
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(engine, "fast_path", noted)
    gc.disable()
    try:
        whole = list(MEGATRON_LOG.parse(io.BytesIO(EVERY), "train.log"))
        next(iter(MEGATRON_LOG.parse(io.BytesIO(EVERY), "train.log")))
        assert whole
        assert [one() for one in made] == [None, None]
    finally:
        gc.enable()


def test_more_rows_than_wait_at_once_come_in_pieces() -> None:
    data = b"".join(MEMORY.format(n % 8, n, "20110.50", "20110.50", "30000.25", "30000.25").encode() + b"\n" for n in range(40_000))
    pieces = list(MEGATRON_LOG.parse(io.BytesIO(data), "train.log"))
    assert len(pieces) > 2
    lines = [row["line"] for piece in pieces for row in piece.records().get("rank_memory", [])]
    assert lines == list(range(1, 40_001))
