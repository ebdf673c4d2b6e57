"""The small tables of the made fleet: what each job printed beside its memory, and the pieces its log was read in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time, timedelta
from typing import Any

import pyarrow as pa

from benchmarks.fleet_lake.jobs import CAPACITY_BYTES, CLUSTER, STEPS_A_RECORD, Job, arguments, day, footprint
from benchmarks.fleet_lake.records import GIB, piece_of
from ingest.tables import arrow_schema

Row = dict[str, Any]
LOG_BYTES_A_RECORD = 160


def facts(some: Iterable[Job], pieces: int, records: int) -> dict[str, pa.Table]:
    """Rows of `artifacts`, `runs`, `run_args`, `theory_reports`, `oom_events` and, for those that died, `rank_day`."""
    rows: dict[str, list[Row]] = {name: [] for name in ("runs", "run_args", "theory_reports", "oom_events", "rank_day", "artifacts")}
    for job in some:
        key = {"run": job.run, "run_index": 0, "artifact": piece_of(job, job.first, 0), "month": month(job.first), "cluster": CLUSTER}
        rows["artifacts"] += [_piece(job, number, piece, pieces, records) for number in range(job.first, job.first + job.days)
                              for piece in range(pieces)]
        rows["runs"].append({**key, **_run(job)})
        rows["run_args"] += [{**key, "name": name, "value": str(value), "origin": "dump", "line": 10 + at}
                             for at, (name, value) in enumerate(arguments(job.kind).items())]
        text, weights, activation, total = footprint(job.kind)
        rows["theory_reports"].append({**key, "iteration": 1, "weight_and_optimizer_bytes": weights, "activation_bytes": activation,
                                       "total_bytes": total, "shape": "full", "producer": "megatron-lm", "text": text, "line": 200})
        if job.died:
            rows["oom_events"].append({**key, **_death(job)})
            rows["rank_day"].append({**key, "rank": 3, "day": day(job.first), "records": 0, "ooms": 1, "pieces": 1})
    return {name: pa.Table.from_pylist(own, schema=arrow_schema(name)) for name, own in rows.items()}


def iterations(job: Job, first: int, last: int, pieces: int, records: int) -> pa.Table:
    """Rows of `iterations` of the days `first` to `last` (not included), without the partition's columns."""
    rows = [(number, record) for number in range(first, last) for record in range(records)]
    known = {
        "run": pa.repeat(job.run, len(rows)), "run_index": pa.repeat(pa.scalar(0, pa.int32()), len(rows)),
        "artifact": pa.array([piece_of(job, number, record * pieces // records) for number, record in rows]),
        "iteration": pa.array([((number - job.first) * records + record + 1) * STEPS_A_RECORD for number, record in rows]),
        "train_iterations": pa.repeat(pa.scalar(100_000, pa.int64()), len(rows)),
        "timestamp": pa.array([_at(number) + timedelta(microseconds=record * (86_400_000_000 // records)) for number, record in rows],
                              pa.timestamp("us")),
        "elapsed_ms": pa.repeat(86_400_000 / records / STEPS_A_RECORD, len(rows)), "phase": pa.repeat("train", len(rows)),
    }
    schema = pa.schema([field for field in arrow_schema("iterations") if field.name not in ("month", "cluster")])
    return pa.table([known.get(field.name, pa.nulls(len(rows), field.type)) for field in schema], schema=schema)


def month(number: int) -> str:
    """The partition of a day: read on the day it was written."""
    return f"{day(number):%Y-%m}"


def _at(number: int) -> datetime:
    return datetime.combine(day(number), time())


def _piece(job: Job, number: int, piece: int, pieces: int, records: int) -> Row:
    nth = (number - job.first) * pieces + piece
    size = records * job.kind.ranks * LOG_BYTES_A_RECORD // pieces
    return {
        "run": job.run, "run_index": 0, "artifact": piece_of(job, number, piece), "month": month(number), "cluster": CLUSTER,
        "source": f"made-{job.run}", "path": f"/logs/{job.run}.log", "kind": "megatron_log", "size_bytes": (nth + 1) * size,
        "start_bytes": nth * size, "end_bytes": (nth + 1) * size, "prefix_bytes": 4096, "prefix_hash": "made",
        "parser": "megatron_log", "parser_version": 1, "rows": records * job.kind.ranks // pieces, "rejected": 0, "status": "closed", "host": "made",
        "ingested_at": _at(number) + timedelta(days=(piece + 1) / pieces) - timedelta(seconds=1)}


def _run(job: Job) -> Row:
    kind = job.kind
    return {"framework": "megatron-lm", "framework_version": "0.20", "world_size": kind.ranks, "tensor_model_parallel_size": kind.tensor,
            "pipeline_model_parallel_size": kind.pipeline, "data_parallel_size": kind.ranks // kind.tensor // kind.pipeline,
            "num_microbatches": kind.micro_batches, "gpu_name": "NVIDIA H100 80GB HBM3", "started_at": _at(job.first),
            "ended_at": _at(job.first + job.days), "line": 1}


def _death(job: Job) -> Row:
    return {"rank": 3, "device": 3, "requested_bytes": 8 * GIB, "capacity_bytes": CAPACITY_BYTES, "free_bytes": 6 * GIB, "allocated_bytes": 64 * GIB,
            "reserved_unallocated_bytes": GIB, "kind": "cuda", "text": "CUDA out of memory.", "valid": True, "line": 9_000_000,
            "at": _at(job.first + 1) - timedelta(minutes=1)}
