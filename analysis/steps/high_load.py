"""Which steps loaded each rank most, by what rule and above what threshold: the steps over which a rank is judged.

Load is bytes by the view `rank_load`: what a rank's experts save for backward plus the largest spike of one layer. A step without routing data has an
unknown load, not a low one. The rule is in `analysis/sql/asked/attempt_load.sql`; `rank_limits.sql` counts over the same choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.database import asked_text, records
from analysis.rows import HighLoad, Source

if TYPE_CHECKING:
    import duckdb

HIGH = "at least 1.05 of the rank's median load and in its top 10 %"
FLAT = "the load does not vary (largest below 1.05 of the mean): every step counts"


def high_loads(connection: duckdb.DuckDBPyConnection) -> tuple[HighLoad, ...]:
    """One row a rank whose load is known, in the order of ranks, within `attempt_steps`."""
    return tuple(
        HighLoad(row["rank"], HIGH if row["varies"] else FLAT, tuple(row["high"] or ()) if row["varies"] else (), row["steps"],
                 row["threshold_bytes"] if row["varies"] else None, round(row["median_bytes"]), row["most_bytes"])
        for row in records(connection, asked_text("high_load")))


def load_places(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, rank: int, steps: Sequence[int],
                most: int = 3) -> tuple[Source, ...]:
    """Where at most `most` of these steps of a rank (of all, where none is given) were read, those with the most tokens first: the line of the
    fullest layer of each."""
    asked = {"run": run, "run_index": run_index, "rank": rank, "steps": list(steps), "most": most}
    return tuple(Source(row["path"], row["line"]) for row in records(connection, asked_text("load_places"), asked))
