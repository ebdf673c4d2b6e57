"""Fleets planted in memory: attempts of a model in clusters, their ranks' records by day, and the rollups that an ingest would write of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from analysis.database import from_rows
from ingest.tables import arrow_schema
from ingest.upkeep.rollup import rank_day_of
from tests.analysis.made import GIB
from tests.analysis.test_reconcile import MODEL

Rows = dict[str, list[dict[str, Any]]]
START = datetime(2026, 10, 1, 8)
SIZES = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4, "world_size": 16}


class Fleet:
    """Rows of many attempts; every artifact is `cluster/run/attempt/piece`."""

    def __init__(self) -> None:
        self.rows: Rows = {name: [] for name in ("artifacts", "runs", "run_args", "environment", "theory_reports", "rank_memory", "memory_stats",
                                                 "oom_events", "device_memory", "job_events")}

    def attempt(self, run: str, run_index: int = 0, cluster: str = "east", *, args: dict[str, Any] | None = None, started: datetime = START,
                printed_gib: float | None = None, **facts: Any) -> dict[str, Any]:
        """Facts and arguments of an attempt; the keys that its other rows carry."""
        key = self.piece(run, run_index, cluster)
        self.add("runs", key, framework="megatron-lm", num_microbatches=8, started_at=started, line=1, **{**SIZES, **facts})
        known = {**SIZES, **MODEL, **(args or {})}
        for at, (name, value) in enumerate(known.items()):
            self.add("run_args", key, name=name, value=str(value), origin="dump", line=10 + at)
        if printed_gib is not None:
            self.add("theory_reports", key, total_bytes=int(printed_gib * GIB), weight_and_optimizer_bytes=int(printed_gib * GIB) - GIB,
                     activation_bytes=GIB, line=90, text="")
        return key

    def piece(self, run: str, run_index: int = 0, cluster: str = "east", name: str = "0", ingested: datetime = START) -> dict[str, Any]:
        """A piece of an artifact."""
        artifact = f"{cluster}/{run}/{run_index}/{name}"
        key = {"run": run, "run_index": run_index, "cluster": cluster, "artifact": artifact}
        self.rows["artifacts"].append({**key, "source": artifact, "path": artifact, "status": "closed", "start_bytes": 0, "end_bytes": 1,
                                       "ingested_at": ingested})
        return key

    def add(self, table: str, key: dict[str, Any], **columns: Any) -> None:
        """One row."""
        self.rows[table].append({**key, **columns})

    def memory(self, key: dict[str, Any], rank: int | None, *, peak: float, reserved: float, day: int = 0, iteration: int = 1,
               outside: float | None = 2, total: float | None = 80, scope: str = "interval", timed: bool = True, **more: Any) -> None:
        """One record, sizes in GiB, on a day after the start."""
        used = None if outside is None else int((reserved + outside) * GIB)
        self.add("rank_memory", key, rank=rank, iteration=iteration, scope=scope, valid=True, line=1000 + len(self.rows["rank_memory"]),
                 allocated_bytes=int(peak * GIB) // 2, max_allocated_bytes=int(peak * GIB), reserved_bytes=int(reserved * GIB),
                 max_reserved_bytes=int(reserved * GIB), device_used_bytes=used, device_total_bytes=None if total is None else int(total * GIB),
                 at=START + timedelta(days=day, minutes=iteration) if timed else None, **more)

    def whole(self) -> Rows:
        """These rows and the rollups that an ingest writes beside them."""
        tables = {name: pa.Table.from_pylist(self.rows[name], schema=arrow_schema(name)) for name in ("rank_memory", "memory_stats", "oom_events")}
        return {**self.rows, "rank_day": rank_day_of(tables).to_pylist()}

    def connection(self) -> duckdb.DuckDBPyConnection:
        """The views over the whole."""
        return from_rows(self.whole())
