"""The tables `rank_classes`, `fullest_ranks` and `phase_peaks`: the verdicts of every attempt of a lake on its steps, for queries over history.

The same answers as `report`, worked out when a query names one of them: a better rule changes the next answer, not a lake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from analysis.query.computed import Columns, Row

if TYPE_CHECKING:
    import duckdb

_KEY: Columns = (("run", "string", "name of the run"), ("run_index", "int32", "which attempt of the run, from 0"))
COLUMNS: dict[str, Columns] = {
    "rank_classes": (
        *_KEY, ("rank", "int32", "global rank"), ("class", "string", "stable, occasional, clear, insufficient, undetermined"),
        ("kind", "string", "hard: live bytes came near the limit; cache: only cached memory did; null: neither"),
        ("near_steps", "int64", "steps near the limit among those that count"), ("steps", "int64", "steps that count"),
        ("low", "double", "95 % bound of the chance of such a step, from below"), ("high", "double", "from above"),
        ("headroom_hard_bytes", "int64", "capacity less outside less peak"),
        ("headroom_soft_bytes", "int64", "capacity less outside less max reserved"),
        ("margin_bytes", "int64", "headroom at which near begins"), ("rule", "string", "which steps count"), ("reason", "string", "why this class")),
    "fullest_ranks": (
        *_KEY, ("rank", "int32", "global rank"), ("steps", "int64", "steps in which it had the largest peak, or one within 20 MiB of it"),
        ("share", "double", "of the steps compared"), ("peak_bytes", "int64", "its largest peak then"),
        ("compared_steps", "int64", "steps compared"), ("moves", "int64", "how often the fullest rank moved over them")),
    "phase_peaks": (
        *_KEY, ("phase", "string", "initialisation, first optimizer step, checkpoint save or load, evaluation, CUDA graph capture, offload"),
        ("rank", "int32", "fullest rank in it"), ("iteration", "int64", "where"), ("peak_bytes", "int64", "its peak there"),
        ("exact", "bool", "false where it is an upper bound"), ("told_by", "string", "label of a reading, or event of the job"),
        ("training_bytes", "int64", "training peak of that rank, null where not known"), ("over_bytes", "int64", "how far above it"),
        ("artifact", "string", "path read at"), ("line", "int64", "line read at")),
}
GRAIN = {"rank_classes": "one judged rank of an attempt", "fullest_ranks": "one rank of an attempt that was the fullest in a step",
         "phase_peaks": "one phase seen in an attempt, by its fullest rank"}


def make(connection: duckdb.DuckDBPyConnection, wanted: list[str]) -> Mapping[str, Iterable[Row]]:
    """The rows of the tables wanted, each attempt asked once."""
    from analysis.overview import overview

    found: dict[str, list[Row]] = {name: [] for name in wanted}
    for run, run_index in connection.execute("SELECT run, run_index FROM run_attempts ORDER BY run, run_index").fetchall():
        seen, key = overview(connection, run, run_index), {"run": run, "run_index": run_index}
        found.get("rank_classes", []).extend({**_same("rank_classes", one), **key, "class": one.near} for one in seen.near_limit)
        if top := seen.fullest:
            found.get("fullest_ranks", []).extend({**_same("fullest_ranks", one), **key, "compared_steps": top.steps, "moves": top.moves}
                                                  for one in top.ranks)
        found.get("phase_peaks", []).extend({**_same("phase_peaks", one), **key, "artifact": one.source.artifact, "line": one.source.line}
                                            for one in seen.phase_peaks)
    return found


def _same(table: str, one: Any) -> Row:
    """The columns that a record names alike."""
    return {name: getattr(one, name) for name, _, _ in COLUMNS[table] if hasattr(one, name)}
