"""The tables `rank_ledger`, `stage_ledger` and `gap`: the expected ledger of every attempt of a lake beside what was measured.

The same answers as `report`, for queries over history. A run whose arguments do not lay the ledger out has no row in the first two; `gap` has a row
for each measured rank and part, null with its reason where it cannot be measured. `stage_ledger` hangs on arguments alone, so that ten thousand runs
of ten configurations cost ten answers; the other two read the ranks of every attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from analysis.fleet.views import expected_ledgers
from analysis.query.computed import Columns, Row
from analysis.reconcile import Expected, Gap, expected_of, gaps

if TYPE_CHECKING:
    import duckdb

_KEY: Columns = (("run", "string", "name of the run"), ("run_index", "int32", "which attempt of the run, from 0"))
COLUMNS: dict[str, Columns] = {
    "stage_ledger": (
        ("cluster", "string", "cluster of the run"), *_KEY, ("stage", "int32", "pipeline stage"),
        ("parameters", "int64", "parameters of a rank, exact"),
        ("steady_allocated_bytes", "int64", "expected after the optimizer step"), ("steady_low_bytes", "int64", "low end of its 90 % interval"),
        ("steady_high_bytes", "int64", "high end"), ("peak_allocated_bytes", "int64", "expected at the peak"),
        ("peak_low_bytes", "int64", "low end of its 90 % interval"), ("peak_high_bytes", "int64", "high end"),
        ("peak_instant", "string", "when it peaks: forward, loss, backward, optimizer_step, after_step"),
        ("classes", "map<string,int64>", "bytes of each class after a step"),
        ("peak_classes", "map<string,int64>", "bytes of each class at the peak"),
        ("assumptions", "list<string>", "what was assumed")),
    "rank_ledger": (
        *_KEY, ("rank", "int32", "global rank, measured"), ("stage", "int32", "its stage"),
        ("allocated_bytes", "int64", "measured after a step"), ("expected_steady_bytes", "int64", "expected of it"),
        ("max_allocated_bytes", "int64", "measured peak"), ("expected_peak_bytes", "int64", "expected of it"),
        ("max_reserved_bytes", "int64", "measured"), ("device_used_bytes", "int64", "measured, other processes included")),
    "gap": (
        *_KEY, ("rank", "int32", "global rank, measured"), ("stage", "int32", "its stage"),
        ("against", "string", "what the gap is taken from: printed total, or expected peak"), ("base_bytes", "int64", "that total"),
        ("gap_bytes", "int64", "sum of the parts that can be measured"),
        ("part", "string", "resident_difference, activation_difference, last_stage_head, cached, outside_torch, unexplained"),
        ("part_bytes", "int64", "the part, null where it cannot be measured"), ("reason", "string", "why it cannot be")),
}
GRAIN = {"stage_ledger": "one pipeline stage of an attempt whose arguments lay it out: what it should hold",
         "rank_ledger": "one measured rank: expected beside measured", "gap": "one measured rank and part of the gap"}


def make(connection: duckdb.DuckDBPyConnection, wanted: list[str]) -> Mapping[str, Iterable[Row]]:
    """The rows of the tables wanted, each attempt asked once."""
    found: dict[str, list[Row]] = {name: [] for name in wanted}
    if "stage_ledger" in found:
        found["stage_ledger"] = sorted(_stage_rows(connection), key=lambda row: (row["cluster"], row["run"], row["run_index"], row["stage"]))
    if set(wanted) == {"stage_ledger"}:
        return found
    for key, ranks, rows in _attempts(connection):
        by_rank = {rank.rank: rank for rank in ranks}
        found.get("rank_ledger", []).extend({**key, **_rank(one), "max_reserved_bytes": by_rank[one.rank].max_reserved_bytes,
                                             "device_used_bytes": by_rank[one.rank].device_used_bytes} for one in rows)
        found.get("gap", []).extend(part for one in rows for part in _parts(key, one))
    return found


def _attempts(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Row, tuple[Any, ...], tuple[Gap, ...]]]:
    from analysis.overview import environment_of, ranks_of
    from analysis.run_facts import arguments_of, configuration
    from analysis.theory_table import theory_of

    for run, run_index in connection.execute("SELECT run, run_index FROM run_attempts ORDER BY run, run_index").fetchall():
        facts = configuration(connection, run, run_index)
        environment = environment_of(connection, run, run_index)
        expected = expected_of(arguments_of(connection, run, run_index), facts.num_microbatches, environment, facts.gpu_name)
        ranks = ranks_of(connection, run, run_index, None, facts.gpu_name)
        yield {"run": run, "run_index": run_index}, ranks, gaps(ranks, theory_of(connection, run, run_index, ranks), expected)


def _stage_rows(connection: duckdb.DuckDBPyConnection) -> Iterator[Row]:
    for attempts, expected in expected_ledgers(connection):
        stages = list(_stages(expected))
        yield from ({**row, **attempt} for attempt in attempts for row in stages)


def _stages(expected: Expected) -> Iterator[Row]:
    for stage, row in sorted(expected.stages.items()):
        same = {name: getattr(row, name) for name, _, _ in COLUMNS["stage_ledger"] if hasattr(row, name)}
        yield {**same, "stage": stage, "classes": list(row.classes.items()), "peak_classes": list(row.peak_classes.items()),
               "assumptions": list(row.assumptions)}


def _rank(one: Gap) -> Row:
    names = ("rank", "stage", "allocated_bytes", "expected_steady_bytes", "max_allocated_bytes", "expected_peak_bytes")
    return {name: getattr(one, name) for name in names}


def _parts(key: Row, one: Gap) -> Iterator[Row]:
    for name, size in one.parts.items():
        yield {**key, "rank": one.rank, "stage": one.stage, "against": one.against, "base_bytes": one.base_bytes, "gap_bytes": one.gap_bytes,
               "part": name, "part_bytes": size, "reason": one.missing.get(name)}
