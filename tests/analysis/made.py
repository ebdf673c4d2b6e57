"""A small run made by hand, its numbers worked out here: 16 ranks, TP 2, PP 4, DP 2; ranks of data-parallel rank 0 print memory.

And `shown`, views over rows for tests that ask many sets of rows one after the other: making the views costs more than most answers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from duckdb import DuckDBPyConnection

from analysis.database import from_rows, put_rows
from ingest.tables import TABLES

GIB = 2**30
SEEN = (0, 1, 4, 5, 8, 9, 12, 13)
"""Data-parallel rank 0 of the grid: two ranks a stage."""

Rows = dict[str, list[dict[str, Any]]]


def memory(rank: int | None, *, line: int, peak: float = 20, reserved: float = 30, allocated: float = 10, **more: Any) -> dict[str, Any]:
    """One memory record, sizes in GiB."""
    sizes = {"allocated_bytes": allocated, "max_allocated_bytes": peak, "reserved_bytes": reserved, "max_reserved_bytes": reserved}
    return {"rank": rank, "iteration": 10, "phase": "train", "source": "megatron_log", "scope": "cumulative", "valid": True, "line": line,
            **{name: int(size * GIB) for name, size in sizes.items()}, **more}


def dense_run() -> Rows:
    """Stage 0 holds 24 GiB at its peak, the middle two 20, the last 23; rank 12 also tells what its device used: 33 GiB, so 2 GiB outside torch."""
    peaks = {0: 24, 1: 20, 2: 20, 3: 23}
    rows = [memory(rank, line=100 + rank, peak=peaks[rank // 4], reserved=peaks[rank // 4] + 8, allocated=peaks[rank // 4] / 2) for rank in SEEN]
    rows[6]["device_used_bytes"] = 33 * GIB
    return {
        "runs": [{"framework": "megatron-lm", "world_size": 16, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4, "line": 1}],
        "run_args": [{"name": name, "value": value, "origin": "dump", "line": 10 + at} for at, (name, value) in enumerate(
            {"tensor_model_parallel_size": "2", "pipeline_model_parallel_size": "4", "world_size": "16", "num_layers": "32"}.items())],
        "rank_memory": rows,
        "iterations": [{"iteration": 10, "train_iterations": 1000, "line": 90}, {"iteration": 20, "train_iterations": 1000, "line": 190}],
    }


@cache
def _views() -> DuckDBPyConnection:
    return from_rows({})


def shown(rows: Rows, run: str = "made", artifact: str | None = None) -> DuckDBPyConnection:
    """What `from_rows` gives, on the views of the call before, which lose their rows: for one set of rows at a time, and reading only."""
    connection = _views()
    connection.execute("; ".join(f"DELETE FROM {name}" for name in ("artifacts", *(f"stored.{table.name}" for table in TABLES))))
    put_rows(connection, rows, run, artifact or run)
    return connection
