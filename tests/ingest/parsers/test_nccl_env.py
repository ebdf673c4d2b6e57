"""Environment dumps: whose they are, what is kept, and that logs and other JSON are left to their own parsers."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

from ingest.errors import LedgerError
from ingest.parsers import PARSERS
from ingest.parsers.nccl_env import ENVIRONMENT
from tests.ingest.parsers.mutations import mutated

SHELL = ("HOSTNAME=gx-n07\nRANK=12\nNCCL_DEBUG=INFO\nLS_COLORS=rs=0:di=01\nPATH=/usr/bin:/bin\nNCCL_ALGO=Ring,Tree\nSLURM_JOB_NUM_NODES=4\n"
         "HF_TOKEN=hf_abc\nNCCL_SECRET_KEY=abc\nBASH_FUNC_module%%=() {  eval x\n}\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n")


def rows(data: str | bytes, path: str = "env.txt") -> list[dict[str, Any]]:
    data = data.encode() if isinstance(data, str) else data
    assert ENVIRONMENT.matches(data[: 1 << 16], path)
    return [row for piece in ENVIRONMENT.parse(io.BytesIO(data), path) for row in piece.rows.get("environment", [])]


def told(found: list[dict[str, Any]]) -> dict[str, str]:
    return {row["name"]: row["value"] for row in found}


def test_a_shell_dump_tells_whose_it_is_and_keeps_no_secret() -> None:
    found = rows(SHELL)
    assert told(found) == {"HOSTNAME": "gx-n07", "RANK": "12", "NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring,Tree", "SLURM_JOB_NUM_NODES": "4",
                           "NCCL_SECRET_KEY": "(not kept)", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert {(row["host"], row["rank"], row["origin"]) for row in found} == {("gx-n07", 12, "env")}
    assert next(row["line"] for row in found if row["name"] == "NCCL_DEBUG") == 3


@pytest.mark.parametrize(("text", "origin"), [
    ('declare -x NCCL_DEBUG="INFO"\ndeclare -x CUDA_DEVICE_MAX_CONNECTIONS="1"\n', "declare -x"),
    ("export NCCL_DEBUG=INFO\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n", "export"), ("NCCL_DEBUG=INFO\r\nCUDA_DEVICE_MAX_CONNECTIONS=1\r\n", "env"),
    ('{"NCCL_DEBUG": "INFO", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}', "json"), ('{"env": ["NCCL_DEBUG=INFO", "CUDA_DEVICE_MAX_CONNECTIONS=1"]}', "json"),
])
def test_each_way_of_writing_it(text: str, origin: str) -> None:
    found = rows(text, "env_rank3.txt")
    assert told(found) == {"NCCL_DEBUG": "INFO", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert {(row["rank"], row["origin"]) for row in found} == {(3, origin)}


def test_json_lines_of_ranks_with_versions_and_devices() -> None:
    lines = [json.dumps({"host": f"n{rank // 8}", "rank": rank, "nics": ["mlx5_0"], "env": {"NCCL_DEBUG": "INFO", "PATH": "/bin"},
                         "gpus": ["H100"] * 8, "versions": {"torch": "2.8.0", "nccl": "2.27.3", "transformer_engine": "2.5", "driver": "550.54"}})
             for rank in (0, 9)]
    found = rows("\n".join(lines) + "\n")
    assert told([row for row in found if row["rank"] == 9]) == {
        "NCCL_DEBUG": "INFO", "torch version": "2.8.0", "nccl version": "2.27.3", "transformer_engine version": "2.5", "driver version": "550.54",
        "gpus": ", ".join(["H100"] * 8), "nics": "mlx5_0"}
    assert {(row["rank"], row["host"]) for row in found} == {(0, "n0"), (9, "n1")}


@pytest.mark.parametrize("text", [
    "NCCL_DEBUG=INFO\n[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.0\n", "a=1\nb=2\n", '{"log": "NCCL_DEBUG=INFO"}\n',
    "export NCCL_DEBUG=INFO\ntorchrun train.py\nusing world size: 8\n", '{"rank": 0, "stats": {"allocated_bytes.all.peak": 1}}\n', "",
])
def test_other_files_are_left_to_others(text: str) -> None:
    parser = next(one for one in PARSERS if one.matches(text.encode(), "x.log"))
    assert parser.name != "environment"


def test_nothing_is_closed_before_the_dump_ends() -> None:
    (piece,) = ENVIRONMENT.parse(io.BytesIO(SHELL.encode()), "env.txt", final=False)
    assert (piece.rows, piece.end_bytes) == ({}, 0)


def _mutations(count: int) -> None:
    """Wounded dumps raise nothing but LedgerError; the variables of intact lines keep their values."""
    chance = random.Random(20261129)
    documents = [SHELL.encode(), json.dumps({"host": "n1", "rank": 1, "env": {"NCCL_DEBUG": "INFO"}, "versions": {"torch": "2.8"}}).encode()]
    lines = SHELL.encode().splitlines(keepends=True)
    whole = {row["line"]: (row["name"], row["value"]) for row in rows(SHELL)}
    for _ in range(count):
        for document in documents:
            wounded = mutated(document, chance)
            try:
                ENVIRONMENT.matches(wounded, "env.txt")
                list(ENVIRONMENT.parse(io.BytesIO(wounded), "env.txt"))
            except LedgerError:
                pass
        victim = chance.randrange(len(lines))
        body = mutated(lines[victim][:-1], chance).translate(None, b"\n\0") + b"\n"
        data = b"".join([*lines[:victim], body, *lines[victim + 1:]])
        (piece,) = ENVIRONMENT.parse(io.BytesIO(data), "env.txt")
        kept = {row["line"]: (row["name"], row["value"]) for row in piece.rows["environment"] if row["line"] != victim + 1}
        assert kept == {number: value for number, value in whole.items() if number != victim + 1}, body


def test_mutated_dumps_raise_nothing_and_leave_intact_lines_alone() -> None:
    _mutations(500)


@pytest.mark.long
def test_many_mutated_dumps() -> None:
    _mutations(20_000)
