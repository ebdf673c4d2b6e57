"""Connection lines read in runs give the rows of the general way, behind any prefix, in any neighbourhood, cut anywhere."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ingest.parsers.log import nccl_runs
from tests.ingest.parsers.log.reading import canonical, read, read_in_two

PREFIXES = ("", "[1,3]<stdout>:", "[default5]:", "[rank3]: ", "[rank2]:", " 7: ", "12: ", "[node-1:4]:", "gx-n01: ",
            "2026-04-30T02:12:41.8Z stdout F ",
            "(Worker pid=3) ", "[pod/x/y] ", "[2026-06-22 03:04:05] ", "\x1b[36m[default1]:\x1b[0m", "[snapshot]: ")
VIAS = ("P2P/CUMEM/read", "P2P/direct pointer", "SHM/direct/direct", "direct shared memory", "P2P/IPC comm 0x7f9d30 nRanks 08", "P2P/CUMEM/",
        "NET/IB/0(2)/GDRDMA/Shared", "NET/OFI/1/GDRDMA(PCI)")


def _log(chance: random.Random, lines: int) -> bytes:
    out = []
    prefix = chance.choice(PREFIXES)
    for at in range(lines):
        prefix = chance.choice(PREFIXES) if chance.random() < 0.1 else prefix
        ends = f"{chance.randrange(16)}[{chance.randrange(8)}] -> {chance.randrange(16)}[{chance.choice(['1a000', '3'])}]"
        way = chance.choice(["", " [send]", " [receive]"])
        body = f"Channel {chance.randrange(64):02d}{chance.choice(['', '/0', '/1'])} : {ends}{way} via {chance.choice(VIAS)}"
        kind = chance.random()
        if kind < 0.04:
            body = "24 coll channels, 0 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer"
        elif kind < 0.06:
            body += f"n02:9:9 [1] NCCL INFO {body}"
        line = f"{prefix}gx-n{chance.randrange(2)}:{880 + at % 3}:{chance.randrange(999)} [{chance.choice([-1, 0, 7])}] NCCL INFO {body}"
        if chance.random() < 0.02:
            line = "[Rank 8] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 4.0 | max reserved: 4.0"
        out.append(line + chance.choice(["\n", "\n", "\n", "\r\n", "\x00\n" if chance.random() < 0.05 else "\n"]))
    return "".join(out).encode()


def _general(data: bytes, monkeypatch: pytest.MonkeyPatch, path: str) -> dict[str, list[str]]:
    with monkeypatch.context() as patch:
        patch.setattr(nccl_runs.ConnectionRuns, "take", lambda self, data, at, number, context: (at, 0))
        return told(read(data, path))


def told(rows: Any) -> dict[str, list[str]]:
    """Rows without the columns that are null, in an order of their own."""
    return canonical({table: [{name: value for name, value in row.items() if value is not None} for row in found] for table, found in rows.items()})


@pytest.mark.parametrize("path", ["train.log", "rank3.log", "attempt_0/3/stdout.log"])
@pytest.mark.parametrize("lines", [40, 3000])
def test_runs_give_the_rows_of_the_general_way(path: str, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        data = _log(random.Random(seed), lines)
        assert told(read(data, path)) == _general(data, monkeypatch, path)


def test_most_lines_of_a_common_log_are_read_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [0]
    take = nccl_runs.ConnectionRuns.take

    def counted(self: Any, data: bytes, at: int, number: int, context: Any) -> tuple[int, int]:
        at, lines = take(self, data, at, number, context)
        seen[0] += lines
        return at, lines

    monkeypatch.setattr(nccl_runs.ConnectionRuns, "take", counted)
    for prefix in ("", "[default3]:", "[1,3]<stdout>:", "[rank3]: ", " 3: "):
        seen[0] = 0
        read("".join(f"{prefix}gx-n1:1:1 [0] NCCL INFO Channel {channel:02d}/0 : 0[0] -> 1[1] via P2P/CUMEM\n" for channel in range(64)))
        assert seen[0] == 64, prefix


def test_a_log_of_runs_cut_anywhere_gives_the_rows_of_the_whole() -> None:
    data = _log(random.Random(9), 60)
    whole = told(read(data))
    assert [cut for cut in range(0, len(data), 29) if told(read_in_two(data, cut)) != whole] == []
