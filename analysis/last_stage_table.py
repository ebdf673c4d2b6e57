"""The last stage of an attempt against its neighbour: what the head should add, beside what its ranks measured.

Stages are measured by their ranks' cumulative peaks, parameters come from the log's count of each stage, the version of Transformer Engine from
what the artifacts say of the software. Everything else is `analysis.theory.last_stage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.database import records
from analysis.rows import Rank
from analysis.theory.last_stage import LastStage, Measured, last_stage

if TYPE_CHECKING:
    import duckdb

_PARAMETERS = """
SELECT pipeline_rank, MAX(parameters) AS parameters FROM parameter_counts
WHERE run = ? AND run_index = ? AND pipeline_rank IS NOT NULL AND bucket IS NULL GROUP BY pipeline_rank
"""
_ENGINE = "SELECT value FROM environment WHERE run = ? AND run_index = ? AND LOWER(name) IN ('transformer engine', 'te_version') ORDER BY line"


def last_stage_of(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, ranks: Sequence[Rank], args: dict[str, Any],
                  microbatches: int | None) -> LastStage:
    """The verdict on one attempt; not measurable, with the reason, where something is missing."""
    counted = {row["pipeline_rank"]: row["parameters"] for row in records(connection, _PARAMETERS, [run, run_index])}
    versions = [row["value"] for row in records(connection, _ENGINE, [run, run_index])]
    return last_stage(args, measured_stages(ranks, counted), microbatches=microbatches, te_version=versions[-1] if versions else None)


def measured_stages(ranks: Sequence[Rank], parameters: dict[int, int]) -> list[Measured]:
    """The stages with a measured peak, in order."""
    stages: dict[int, list[Rank]] = {}
    for rank in ranks:
        if rank.stage is not None and rank.max_allocated_bytes is not None:
            stages.setdefault(rank.stage, []).append(rank)
    return [Measured(stage, min(_peaks(own)), max(_peaks(own)),
                     max((one.allocated_bytes for one in own if one.allocated_bytes is not None), default=None), parameters.get(stage))
            for stage, own in sorted(stages.items())]


def _peaks(ranks: Sequence[Rank]) -> list[int]:
    return [rank.max_allocated_bytes for rank in ranks if rank.max_allocated_bytes is not None]
