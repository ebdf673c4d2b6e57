"""The reserved staircase: which step raised what the allocator holds, whether it was need or fragmentation, and what coincided.

A riser is a step in which reserved rose above all before and stayed. Where the peak of allocated rose with it by at least half of the
rise, the memory was needed; where it did not, blocks that were free could not be used: the two call for opposite actions. Read by SQL
over `rank_steps` (`analysis/sql/asked/risers.sql`); what coincided is what the job's events, losses and loads say of the same steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from analysis.database import asked_text, records
from analysis.rows import Riser, Source
from ingest.allocator import LARGE_SEGMENT_BYTES

if TYPE_CHECKING:
    import duckdb

LEAST_RISE_BYTES = LARGE_SEGMENT_BYTES
"""A smaller rise is one small buffer."""

_EVENTS = {"checkpoint_save_started": "checkpoint save", "checkpoint_saved": "checkpoint save", "checkpoint_loaded": "checkpoint load",
           "checkpoint_load_started": "checkpoint load", "evaluation": "evaluation", "cuda_graph_built": "CUDA graph capture",
           "snapshot_written": "memory snapshot"}
_JOB = "SELECT rank, iteration, event FROM job_events WHERE run = ? AND run_index = ? AND iteration IS NOT NULL"
_PHASES = """
SELECT DISTINCT rank, iteration, phase FROM rank_memory
WHERE run = ? AND run_index = ? AND iteration IS NOT NULL AND COALESCE(phase, 'train') <> 'train'
"""
_TRAINED = """
SELECT iteration, COALESCE(skipped, 0) AS skipped, phase FROM iterations WHERE run = ? AND run_index = ? AND iteration IS NOT NULL ORDER BY iteration
"""
_PATHS = "SELECT artifact, path FROM artifacts WHERE run = ?"


def staircase(connection: duckdb.DuckDBPyConnection, run: str, run_index: int,
              high_load: Mapping[int, Iterable[int]] | None = None) -> tuple[Riser, ...]:
    """The risers of an attempt, by rank and step, within `attempt_steps`; `high_load` names the steps of high load of each rank."""
    found = records(connection, asked_text("risers"), {"run": run, "run_index": run_index, "least_bytes": LEAST_RISE_BYTES})
    if not found:
        return ()
    happened = _happened(connection, run, run_index, high_load or {})
    paths = {row["artifact"]: row["path"] for row in records(connection, _PATHS, [run])}
    return tuple(_riser(row, happened, paths) for row in found)


def _riser(row: dict[str, Any], happened: Mapping[tuple[int | None, int], list[str]], paths: Mapping[str, str]) -> Riser:
    need = row["peak_rise_bytes"]
    kind: Literal["need", "fragmentation"] | None = None if need is None else "need" if 2 * need >= row["rise_bytes"] else "fragmentation"
    last, first = row["iteration"], max(row["iteration_before"] + 1, row["iteration"] - 1000)
    seen = [what for step in range(first, last + 1) for who in (None, row["rank"]) for what in happened.get((who, step), ())]
    seen += ["the allocator freed its cache and retried"] if row["touched"] else []
    return Riser(row["rank"], last, row["rise_bytes"], row["reserved_bytes"], kind, need, tuple(dict.fromkeys(seen)),
                 Source(paths.get(row["artifact"], row["artifact"]), row["line"]))


def _happened(connection: duckdb.DuckDBPyConnection, run: str, run_index: int,
              high_load: Mapping[int, Iterable[int]]) -> Mapping[tuple[int | None, int], list[str]]:
    """What happened in each step, by rank (null: on all). What the job does after a step is seen by the next reading: memory is read before it."""
    found: dict[tuple[int | None, int], list[str]] = defaultdict(list)
    for row in records(connection, _JOB, [run, run_index]):
        if name := _EVENTS.get(row["event"]):
            found[None, row["iteration"] + 1].append(name)
    for row in records(connection, _PHASES, [run, run_index]):
        found[row["rank"], row["iteration"]].append(_phase_name(row["phase"]))
    trained = records(connection, _TRAINED, [run, run_index])
    steps = [row for row in trained if row["phase"] != "validation"]
    if first := next((row["iteration"] for row in steps if not row["skipped"]), None):
        found[None, first].append("first optimizer step")
    for row in trained:
        if row["phase"] == "validation":
            found[None, row["iteration"] + 1].append("evaluation")
    for rank, those in high_load.items():
        for step in those:
            found[rank, step].append("high load")
    return found


def _phase_name(phase: str) -> str:
    return "checkpoint save" if phase.endswith("save_checkpoint") else phase.replace("_", " ")
