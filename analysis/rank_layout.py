"""Where each rank that was seen sits: the table `rank_layout(run, run_index, rank, tp, cp, ep, etp, dp, pp)`.

The grid comes from the run's own arguments and world-size line through `analysis.theory.layout`, not from `rank // (world / pp)`,
which is wrong under `--use-tp-pp-dp-mapping`. Only ranks that some record names are placed; a run whose sizes are unknown or
do not multiply to its world has no rows, and `sizes_of` says why.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from analysis.theory.layout import ParallelSizes, coordinates, parallel_sizes
from analysis.theory.run_arguments import run_arguments
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

_NAMES = ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
          "expert_tensor_parallel_size", "data_parallel_size", "use_tp_pp_dp_mapping", "order", "gtp_weight_remat_size")
_ERAS = ("current", "core_0.9")
RANK_TABLES = ("rank_memory", "memory_stats", "oom_events", "memory_summary", "device_memory", "expert_load", "snapshots", "nccl_communicators",
               "nccl_allocations", "environment", "job_events")
"""Tables whose rows name the rank they come from."""

_SCHEMA = pa.schema([("run", pa.string()), *((name, pa.int32()) for name in ("run_index", "rank", "tp", "cp", "ep", "etp", "dp", "pp"))])


def rank_layout(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """One row a rank that a record names, for every attempt whose sizes are known; reads the base views and `run_attempts`."""
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    for run, run_index, rank in connection.execute(f"{_ranks_seen()} ORDER BY 1, 2, 3").fetchall():
        seen[run, run_index].append(rank)
    places: dict[ParallelSizes, dict[int, tuple[int, ...]]] = defaultdict(dict)
    rows: list[tuple[Any, ...]] = []
    for (run, run_index), sizes in _all_sizes(connection).items():
        if isinstance(sizes, ParallelSizes):
            known = places[sizes]
            for rank in seen[run, run_index]:
                if 0 <= rank < sizes.world_size:
                    rows.append((run, run_index, *(known.get(rank) or known.setdefault(rank, _placed(rank, sizes)))))
    columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)


def sizes_of(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> ParallelSizes | str:
    """The sizes of one attempt, or the sentence that says why they are unknown."""
    return _all_sizes(connection, run).get((run, run_index), "nothing in the artifacts tells the sizes")


def _ranks_seen() -> str:
    return " UNION ".join(f"SELECT run, run_index, rank FROM {table} WHERE rank IS NOT NULL" for table in RANK_TABLES)


def _placed(rank: int, sizes: ParallelSizes) -> tuple[int, ...]:
    at = coordinates(rank, sizes)
    return rank, at.tp, at.cp, at.ep, at.etp, at.dp, at.pp


def _all_sizes(connection: duckdb.DuckDBPyConnection, run: str | None = None) -> dict[tuple[str, int], ParallelSizes | str]:
    """Sizes by attempt, of every run or of one."""
    where, asked = ("WHERE run = ?", [run]) if run is not None else ("", [])
    facts: dict[tuple[str, int], dict[str, Any]] = {}
    result = connection.execute(f"SELECT run, run_index, {', '.join(name for name in _NAMES if name.endswith('_size') and name != _NAMES[-1])} "
                                f"FROM run_attempts {where}", asked)
    names = [column[0] for column in result.description or ()]
    for row in result.fetchall():
        facts[row[0], row[1]] = dict(zip(names, row, strict=True))
    arguments: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    listed = ", ".join(f"'{name}'" for name in _NAMES)
    for row in connection.execute(f"SELECT run, run_index, name, value, origin, line FROM run_args {where or 'WHERE TRUE'} AND name IN ({listed})",
                                  asked).fetchall():
        arguments[row[0], row[1]].append(dict(zip(("name", "value", "origin", "line"), row[2:], strict=True)))
    return {key: _sizes(arguments[key], fact) for key, fact in facts.items()}


def _sizes(arguments: list[dict[str, Any]], facts: dict[str, Any]) -> ParallelSizes | str:
    if facts["world_size"] is None and not any(row["name"] == "world_size" and row["value"] for row in arguments):
        return "the world size is in no artifact, so no rank can be placed on a stage"
    args = run_arguments(arguments, [facts]).args
    if args.get("pipeline_model_parallel_size") is None:
        return "the pipeline size is in no artifact, so no rank can be placed on a stage"
    why = ""
    for era in _ERAS:
        try:
            return parallel_sizes(args, era=era)
        except LedgerError as error:
            why = why or f"the sizes contradict one another: {error.what}"
    return why
