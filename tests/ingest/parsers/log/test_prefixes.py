"""Launcher prefixes, one by one and stacked: the payload stays whole; a global rank, a time and a host only where the prefix says so."""

from __future__ import annotations

from datetime import datetime

import pytest

from ingest.parsers.log.prefixes import log_line
from tests.ingest.parsers.log.reading import read

MEMORY = "[Rank 8] (after 2 iterations) memory (MB) | allocated: 20110.50 | max allocated: 40220.25 | reserved: 42000.00 | max reserved: 42000.00"
ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 546.00 MiB. GPU 5 has a total capacity of 79.11 GiB of which 1.00 MiB is free."
NOON = datetime(2026, 4, 30, 2, 12, 41)


@pytest.mark.parametrize(("prefix", "rank", "label", "host", "at"), [
    ("[default3]:[rank11]: ", 11, None, None, None), ("3: [default3]:[rank11]: ", 11, None, None, None), ("[rank11]:", 11, None, None, None),
    ("node-3: 11: ", None, "task 11", "node-3", None), ("0: 11: ", None, "task 11", None, None), ("[1,11]<stderr>: ", 11, None, None, None),
    ("[1,mpirank:11,algo-2]<stderr>:", 11, None, None, None), ("worker-3 | [rank11]: ", 11, None, "worker-3", None),
    ("2026-04-30T02:12:41Z ", None, None, None, NOON), ("[2026-04-30 02:12:41] ", None, None, None, NOON),
    ("2026-04-30 02:12:41,000 - megatron - ERROR - ", None, None, None, NOON), ("2026-04-30 02:12:41,000 ", None, None, None, NOON),
    ("[2026-04-30 02:12:41,000] [INFO] [launch.py:1] ", None, None, None, NOON),
    ("[NeMo W 2026-04-30 02:12:41 nemo_logging:349] ", None, None, None, NOON),
    ("(RayTrainWorker pid=3, ip=1.2.3.4) [rank11]: ", 11, None, "1.2.3.4", None), ("10.1.2.3: ", None, None, "10.1.2.3", None),
    ("[pod/llm-worker-1/pytorch] 2026-04-30T02:12:41.000000000Z [rank11]: ", 11, None, None, NOON),
    ("[llm-worker-1 pytorch] ", None, None, None, None), ("gx-n01: [default3]:[rank11]: ", 11, None, "gx-n01", None),
    ("[gx-n01:3]: ", None, "local 3", "gx-n01", None), ("[gx-n01]: ", None, None, "gx-n01", None), ("p4_v2_perf/0 [rank11]: ", 11, None, None, None),
    ("[Rank 11] ", 11, None, None, None), ("rank11: ", 11, None, None, None), ("[INFO:swift] [rank11] ", 11, None, None, None),
    ("[20260123 12:39:12][rank-11/64][ERROR] [--------trainer.py:2382] : ", 11, None, None, None), ("ERROR:root:", None, None, None, None),
    ("\x1b[36m(MegatronTrainRayActor pid=1)\x1b[0m [2026-04-30 02:12:41.000 actor_cell0_rank0] ", None, "actor_cell0_rank0", None, NOON),
    ("E0404 10:00:00.000000 123 torch/distributed/elastic/x.py:1] ", None, None, None, None),
    ("\x1b[36m(WorkerDict pid=333)\x1b[0m ", None, None, None, None),
    ("2026-04-30 02:12:41.000 | ERROR    | __main__:train:12 - ", None, None, None, NOON),
    ("[prterun-node1-1234@1,11]<stderr>: ", 11, None, None, None), ("Thu Apr 30 02:12:41 2026[1,11]<stderr>:", 11, None, None, None),
    ("Thu Apr 30 02:12:41 2026<stderr>: ", None, None, None, None), ("trainer_1_1    | ", None, None, "trainer_1_1", None),
    ("Apr 30 02:12:41 gpu01 python[123]: ", None, None, "gpu01", None), ("Apr 30 02:12:41 ", None, None, None, None),
    ("<14>1 2026-04-30T02:12:41Z gpu01 python 123 - - ", None, None, "gpu01", NOON), ("2026-04-30T02:12:41.000000Z 01E ", None, None, None, NOON),
    ("train\tRun it\t2026-04-30T02:12:41.0000000Z ", None, None, None, NOON), ("[11] ", None, "task 11", None, None),
    ("[11]:", None, "task 11", None, None), ("[rank=11] ", 11, None, None, None), ("[node1:rank11] ", 11, None, "node1", None),
    ("worker[11]: ", None, "task 11", None, None), ("ERROR 04-30 02:12:41 [trainer.py:1] ", None, None, None, None),
    ("[ERROR|trainer.py:123] 2026-04-30 02:12:41,000 >> ", None, None, None, NOON),
])
def test_a_stack_of_prefixes(prefix: str, rank: int | None, label: str | None, host: str | None, at: datetime | None) -> None:
    line = log_line(prefix + ERROR, 1, 0)
    assert (line.text, line.rank, line.rank_label, line.host, line.at) == (ERROR, rank, label, host, at)
    (row,) = read(prefix + MEMORY + "\n")["rank_memory"]
    assert (row["rank"], row["max_allocated_bytes"], row["at"]) == (8, round(40220.25 * 2**20), at)


@pytest.mark.parametrize("text", [
    "  num_layers ...................................... 32", "E-04 | global batch size:     4 |", "rank      : 60 (local_rank: 4)",
    "[ERROR] 2026-06-15-21:45:45 (PID:3734596, Device:7, RankID:7) ERR00100 PTA call acl api failed", "| 0     910B3 | OK |",
    "42000.00 | max reserved", "gx-n01:3310:4411 [2] NCCL INFO comm 0x5", "Loss: 3 | x", "index: 3", "[0, 1, 1]", "['a', 'b']", "[]",
    "-1: x", "rank_memory: 3", "[0] NVIDIA H100 | 30'C", "[Rank 3] (after", "12E+01 | lm loss", "May be x",
    "node_count: 3", "| 1 |", "EL0004: [PID: 12] Failed to allocate memory.",
])
def test_what_only_looks_like_a_prefix_stays(text: str) -> None:
    assert log_line(text, 1, 0).text == text


def test_an_iteration_line_s_own_time_stays_beside_the_container_s() -> None:
    line = log_line("2026-04-30T02:12:41Z  [2026-04-30 10:12:40] iteration        2/    2000 | x", 1, 0)
    assert (line.at, line.text.lstrip()) == (NOON, "[2026-04-30 10:12:40] iteration        2/    2000 | x")


def docker(text: str, stream: str = "stdout") -> str:
    import json

    return json.dumps({"log": text, "stream": stream, "time": "2026-04-30T02:12:41.000000000Z"}, separators=(",", ":")) + "\n"


@pytest.mark.parametrize("text", [
    docker(MEMORY + "\n"), docker(MEMORY + "\r\n"), docker(MEMORY[:50]) + docker(MEMORY[50:90]) + docker(MEMORY[90:] + "\n"),
    docker(MEMORY[:70]) + docker("other\n", "stderr") + docker(MEMORY[70:] + "\n"), docker(MEMORY),
    f"2026-04-30T02:12:41Z stdout P {MEMORY[:60]}\n2026-04-30T02:12:42Z stderr F hello\n2026-04-30T02:12:42Z stdout F {MEMORY[60:]}\n",
    f"2026-04-30T02:12:41Z stdout P {MEMORY[:60]}\n2026-04-30T02:12:42Z stdout P {MEMORY[60:80]}\n2026-04-30T02:12:42Z stdout F {MEMORY[80:]}\n",
    f'{{"ts": "2026-04-30T02:12:41Z", "level": "INFO", "rank": 8, "msg": "{MEMORY}"}}\n',
])
def test_what_a_container_cut_is_one_line_with_the_time_of_its_first_part(text: str) -> None:
    rows = read(text)
    (row,) = rows["rank_memory"]
    assert (row["rank"], row["line"], row["at"], row["allocated_bytes"]) == (8, 1, NOON, round(20110.5 * 2**20))
    assert "rejects" not in rows


def test_a_part_whose_rest_never_comes_is_let_go() -> None:
    lost = docker(MEMORY[:-3])
    noise = docker("x\n", "stderr") * 1_200
    rows = read(lost + noise + docker(MEMORY.replace("Rank 8", "Rank 9") + "\n"))
    assert [row["rank"] for row in rows["rank_memory"]] == [9]
    assert [row["line"] for row in rows["rejects"]] == [1]


def test_ray_s_repeat_mark_and_colours_are_no_part_of_a_record() -> None:
    text = f"\x1b[36m(Actor pid=1, ip=10.0.0.2)\x1b[0m {MEMORY}\x1b[32m [repeated 3x across cluster] (Ray deduplicates logs by default.)\x1b[0m\n"
    (row,) = read(text)["rank_memory"]
    assert row["max_reserved_bytes"] == 42000 * 2**20
