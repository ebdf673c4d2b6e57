"""The steps of one attempt as temporary tables that every question on steps shares: nearness, risers, high load, the fullest rank, chances.

`attempt_load`: the load of each rank and step and whether it is high (`analysis/sql/asked/attempt_load.sql`). `attempt_steps`: the attempt's rows of
`rank_steps` with `counts`, whether the step counts for its rank (`analysis/sql/asked/attempt_steps.sql`). Four million rows of 4,096 ranks are made
once and not for each question.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from analysis.database import asked_text

if TYPE_CHECKING:
    import duckdb

_TABLES = ("attempt_load", "attempt_steps")


@contextmanager
def attempt_steps(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> Iterator[None]:
    """Both tables, for as long as the block runs."""
    try:
        for name in _TABLES:
            connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {asked_text(name)}", {"run": run, "run_index": run_index})
        yield
    finally:
        for name in _TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {name}")
