"""What stands in for the load of a step where no tokens per expert were recorded, and is called a proxy wherever it is shown.

A load-balancing or auxiliary loss tells that routing was uneven somewhere, not on which rank, nor how many bytes it made; a printed
length of packed sequences does so for a dense run. They choose steps worth looking at; no byte is computed from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from analysis.database import records

if TYPE_CHECKING:
    import duckdb

_LENGTH = r"seq(?:uence)?[_ -]?len(?:gth)?"
_NAMES = re.compile(rf"load[_ -]?balanc|aux[_ -]?loss|(?:max|packed|actual|mean)[_ -]?{_LENGTH}|{_LENGTH}s?$", re.IGNORECASE)
_STEPS = "SELECT iteration, losses, other FROM iterations WHERE run = $run AND run_index = $run_index AND iteration >= $since ORDER BY iteration"
_PRINTED = """
WITH step AS (SELECT losses, other FROM iterations WHERE run = $run AND run_index = $run_index AND iteration >= $since)
SELECT DISTINCT UNNEST(MAP_KEYS(losses)) AS name FROM step UNION SELECT DISTINCT UNNEST(MAP_KEYS(other)) FROM step
"""
HIGHEST_STEPS = 5


@dataclass(frozen=True, slots=True)
class LoadProxy:
    """One printed value a step: its name as printed, how many steps have it, its range, and the steps in which it was highest."""

    name: str
    steps: int
    lowest: float
    median: float
    highest: float
    highest_steps: tuple[int, ...]


def load_proxies(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, since: int = -1) -> tuple[LoadProxy, ...]:
    """The proxies an attempt prints from step `since` on, by name; none where it prints none: its steps are not fetched to find that out."""
    asked = {"run": run, "run_index": run_index, "since": since}
    if not any(_NAMES.search(row["name"]) for row in records(connection, _PRINTED, asked)):
        return ()
    values: dict[str, dict[int, float]] = {}
    for row in records(connection, _STEPS, asked):
        for name, value in _pairs(row).items():
            if _NAMES.search(name) and (figure := _number(value)) is not None:
                values.setdefault(name, {})[row["iteration"]] = figure
    return tuple(LoadProxy(name, len(by_step), min(by_step.values()), median(by_step.values()), max(by_step.values()),
                           tuple(sorted(sorted(by_step, key=lambda step: -by_step[step])[:HIGHEST_STEPS])))
                 for name, by_step in sorted(values.items()))


def _pairs(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(row["losses"] or {}), **dict(row["other"] or {})}


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
