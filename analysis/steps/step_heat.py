"""Rank by step: what was left of each rank in each step, at most 2,500 cells, each showing its worst; near ones marked.

SQL: `analysis/sql/asked/step_heat.sql`. Ranks whose capacity or outside is not known are left out: their headroom cannot be said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.charts.heat import MARKS
from analysis.database import asked_text, records
from analysis.limits import margin
from analysis.rows import Rank
from analysis.scope import last_steps

if TYPE_CHECKING:
    import duckdb

ROWS, COLUMNS, CELLS = 50, 100, MARKS // 2
"""At most so many of each. A browser takes 0.1 s for a thousand cells, and the page has three more pictures."""


def step_heat(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, ranks: Sequence[Rank],
              records_at_most: int | None = None) -> list[dict[str, Any]]:
    """One dictionary a cell: its ranks and steps, the least headroom in bytes, where it was, and whether that is near the limit.

    Of all steps, or, with `records_at_most`, of the last ones (`analysis.scope`).
    """
    known = [rank for rank in ranks if rank.rank is not None and rank.capacity_bytes is not None and rank.outside_bytes is not None]
    if not known:
        return []
    rows = min(ROWS, len(known))
    left = {rank.rank: (rank.capacity_bytes or 0) - (rank.outside_bytes or 0) for rank in known}
    near = {rank.rank: margin(rank.capacity_bytes or 0) for rank in known}
    with last_steps(connection, run, run_index, records_at_most):
        found = records(connection, asked_text("step_heat"), {
            "run": run, "run_index": run_index, "ranks": list(left), "left": list(left.values()), "steps": min(COLUMNS, CELLS // rows), "rows": rows})
    return [{**row, "near": bool(row["exact"]) and row["headroom_bytes"] <= near[row["worst_rank"]]} for row in found]
