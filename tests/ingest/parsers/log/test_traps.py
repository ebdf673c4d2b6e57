"""The traps of the known line shapes, each held by what it says of the rows; skips without the shared data."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.parsers.log.reading import Rows, read

MIB, GIB, GB = 2**20, 2**30, 10**9
OTHERS = ("nccl", "tensorboard")
"""Families whose traps are held where their parsers are tested."""


def near(value: int | None, figure: float, unit: int) -> bool:
    return value is not None and abs(value - figure * unit) <= 0.006 * unit


def only(rows: Rows, table: str) -> dict[str, Any]:
    (row,) = rows[table]
    return row


def theory_weights(rows: Rows) -> bool:
    row = only(rows, "theory_reports")
    return near(row["weight_and_optimizer_bytes"], 38214.06, MIB) and row.get("activation_bytes") is None and row.get("total_bytes") is None


def refused(rows: Rows) -> bool:
    row = only(rows, "theory_reports")
    return row["shape"] == "unsupported" and not any(value for name, value in row.items() if name.endswith("_bytes"))


def free_names(rows: Rows) -> bool:
    found = only(rows, "theory_reports")["components"]
    return near(found["dense and embedding model states"], 18120.42, MIB) and near(found["routed expert model states"], 40312, MIB)


def host_keys(rows: Rows) -> bool:
    row = only(rows, "rank_memory")
    return row["allocated_bytes"] == 58_020_000_000 and row["other"]["host-mem-allocated-bytes"] == "212400000000"


def quoted_dump(rows: Rows) -> bool:
    found = {row["name"]: row["value"] for row in rows["run_args"]}
    return found["checkpoint_activations"] == "True" and found["model_parallel_size"] == "2" and found["DDP_impl"] == "local"


def enum_and_lists(rows: Rows) -> bool:
    found = {row["name"]: row["value"] for row in rows["run_args"]}
    return found["position_embedding_type"] == "PositionEmbeddingType.rope" and found["data_path"].count("/data/corpus") == 2


def last_rank_s_device(rows: Rows) -> bool:
    row = only(rows, "device_memory")
    return row["rank"] == 63 and near(row["used_bytes"], 243.38, GIB) and "rank_memory" not in rows


def mindspeed_peaks(rows: Rows) -> bool:
    row = only(rows, "rank_memory")
    return row["scope"] == "interval" and near(row["max_allocated_bytes"], 41.22, GIB) and row.get("allocated_bytes") is None


def swift_group(rows: Rows) -> bool:
    row = only(rows, "iterations")
    return row["losses"] == {"loss": 0.3822} and row["elapsed_ms"] == 43070.0 and near(int(row["other"]["max_reserved_bytes"]), 54.31, GIB) \
        and "rank_memory" not in rows


def other_process(rows: Rows) -> bool:
    row = only(rows, "oom_events")
    return row.get("process_bytes") is None and near(int(row["other"]["process_41877_bytes"]), 78.7, GIB)


def overflow(rows: Rows) -> bool:
    row = only(rows, "oom_events")
    return row["process_bytes"] is None and row["valid"] is False


def root_cause(rows: Rows) -> bool:
    return [(row["rank"], row["first_failure"]) for row in rows["job_events"]] == [(61, False), (60, True)]


def no_numbers(rows: Rows) -> bool:
    row = only(rows, "oom_events")
    return row["kind"] == "driver" and not any(name.endswith("_bytes") and value for name, value in row.items())


def host_only(rows: Rows) -> bool:
    return {row["event"] for row in rows["job_events"]} == {"host_killed"} and "oom_events" not in rows and "rank_memory" not in rows


def cell_units(rows: Rows) -> bool:
    first = rows["memory_summary"][0]
    reserved = next(row for row in rows["memory_summary"] if row["metric"] == "GPU reserved memory")
    return first["total_allocated"] == 128336 * GIB and first["current"] == 30249 * MIB and reserved["total_freed"] == 0


def collision(rows: Rows) -> bool:
    found = {row["rank"]: row for row in rows["rank_memory"]}
    return found[39].get("max_allocated_bytes") is None and near(found[38]["max_allocated_bytes"], 14602.84, MIB)


def rank_8(rows: Rows) -> bool:
    return all(row["rank"] == 8 and near(row["max_allocated_bytes"], 40220.25, MIB) for row in rows["rank_memory"])


CHECKS: dict[str, Callable[[Rows], bool]] = {
    "theory-001": theory_weights, "theory-007": refused, "theory-012": free_names,
    "theory-009": lambda rows: only(rows, "theory_reports")["producer"] == "flagscale",
    "rank_memory-004": lambda rows: [row["phase"] for row in rows["rank_memory"]] == ["before_save_checkpoint", "after_save_checkpoint"],
    "rank_memory-006": lambda rows: [(row["rank"], row["max_reserved_bytes"]) for row in rows["rank_memory"]] == [(7, 28120 * MIB), (6, 28116 * MIB)],
    "rank_memory-011": lambda rows: only(rows, "rank_memory")["other"]["mem-alloc-retires"] == "3", "rank_memory-012": host_keys,
    "rank_memory-014": lambda rows: (only(rows, "rank_memory")["rank"], rows["rank_memory"][0]["rank_label"]) == (None, "last"),
    "rank_memory-017": lambda rows: only(rows, "rank_memory")["valid"] is True,
    "rank_memory-019": lambda rows: near(only(rows, "rank_memory")["allocated_bytes"], 2.11, GIB),
    "args-003": enum_and_lists, "args-004": quoted_dump,
    "iteration-006": lambda rows: set(only(rows, "iterations")["losses"]) == {"lm loss", "z_loss", "load_balancing_loss", "mtp_1 loss"},
    "iteration-009": last_rank_s_device,
    "iteration-011": lambda rows: only(rows, "iterations")["other"]["mem_usages_valid"] == "false" and "device_memory" not in rows,
    "iteration-012": lambda rows: only(rows, "iterations")["elapsed_ms"] == 105310.0, "iteration-016": mindspeed_peaks, "iteration-017": swift_group,
    "iteration-019": lambda rows: only(rows, "iterations")["learning_rate"] == 1.875e-09
    and rows["iterations"][0]["other"]["chip_throughput"] == "1188.58",
    "oom-002": lambda rows: near(only(rows, "oom_events")["capacity_bytes"], 39.38, GIB), "oom-004": other_process,
    "oom-005": lambda rows: near(only(rows, "oom_events")["allowed_bytes"], 75.23, GIB), "oom-007": overflow, "oom-010": root_cause,
    "oom-012": no_numbers, "oom-014": host_only, "oom-015": lambda rows: only(rows, "oom_events")["kind"] == "nccl",
    "oom-017": lambda rows: rows["job_events"][0]["detail"].endswith("snapshot_oom_rank_11.pickle") and rows["job_events"][0]["rank"] == 11,
    "alloc_stats-001": cell_units, "npu-001": lambda rows: near(int(only(rows, "oom_events")["other"]["active_bytes"]), 57.81, GIB),
    "npu-004": lambda rows: (only(rows, "device_memory")["used_bytes"], rows["device_memory"][0]["total_bytes"]) == (60112 * MIB, 65536 * MIB),
    "npu-006": lambda rows: near(only(rows, "oom_events")["reserved_bytes"], 33.08, GIB),
    "wrapping-007": rank_8, "wrapping-012": rank_8, "wrapping-015": rank_8, "wrapping-018": collision,
    "wrapping-017": lambda rows: "rank_memory" not in rows,
}


def _shapes(shared: Path) -> dict[str, tuple[bytes, list[str]]]:
    path = shared / "data/logs/shapes.jsonl"
    if not path.exists():
        pytest.skip(f"needs {path.name} of the shared data")
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        shape = json.loads(line)
        texts = [base64.b64decode(one) for one in shape["lines_b64"]] if "lines_b64" in shape else [one.encode() for one in shape["lines"]]
        if shape["family"] not in OTHERS:
            found["-".join(shape["shape_id"].split("-")[:2])] = b"\n".join(texts) + b"\n", shape["expected"].get("traps", [])
    return found


def test_no_known_trap_is_stepped_into(shared: Path) -> None:
    shapes = _shapes(shared)
    assert [(name, shapes[name][1]) for name, check in CHECKS.items() if name in shapes and not check(read(shapes[name][0]))] == []


def test_every_known_trap_is_held(shared: Path) -> None:
    assert {name for name, (_, traps) in _shapes(shared).items() if traps} <= set(CHECKS)
