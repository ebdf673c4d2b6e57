"""Reserved and peak allocated of one rank by step, for the staircase: few enough for a picture, no extreme lost.

SQL: `analysis/sql/asked/step_levels.sql`, as M4 reduces a line to the columns of a picture (Jugel and others, 2014), with the peak's own
maximum kept beside those of reserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.database import asked_text, records
from analysis.scope import last_steps

if TYPE_CHECKING:
    import duckdb

COLUMNS = 400
"""Stretches of steps; up to five readings each, on two lines, stay below a chart's marks."""


def step_levels(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, rank: int,
                records_at_most: int | None = None) -> list[dict[str, Any]]:
    """Iteration, `held_bytes` and `max_allocated_bytes` by step; with `records_at_most` of the last steps (`analysis.scope`)."""
    with last_steps(connection, run, run_index, records_at_most):
        return records(connection, asked_text("step_levels"), {"run": run, "run_index": run_index, "rank": rank, "columns": COLUMNS})
