"""Where each rank that was seen sits: the view `rank_layout(run, run_index, rank, tp, cp, ep, etp, dp, pp)`, from sizes and strides (`rank_grid`).

The grid comes from the run's own arguments and world-size line through `analysis.theory.layout`, not from `rank // (world / pp)`,
which is wrong under `--use-tp-pp-dp-mapping`. Only ranks that some record names are placed; a run whose sizes are unknown or
do not multiply to its world has no rows, and `sizes_of` says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.theory.layout import ParallelSizes, parallel_sizes
from analysis.theory.run_arguments import run_arguments
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_NAMES = ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
          "expert_tensor_parallel_size", "data_parallel_size", "use_tp_pp_dp_mapping", "order", "gtp_weight_remat_size")
_ERAS = ("current", "core_0.9")
RANK_TABLES = ("rank_memory", "rank_day", "memory_stats", "oom_events", "memory_summary", "device_memory", "expert_load", "snapshots",
               "nccl_communicators", "nccl_allocations", "environment", "job_events")
"""Tables whose rows name the rank they come from."""

_AXES = (("tp", "dense", "tp"), ("cp", "dense", "cp"), ("ep", "expert", "ep"), ("etp", "expert", "tp"), ("dp", "dense", "dp"), ("pp", "dense", "pp"))
"""Each axis of `rank_layout` with the grid it is read from and its name there."""

_FACTS = tuple(name for name in _NAMES if name.endswith("_size") and name != _NAMES[-1])
_LISTED = ", ".join(f"'{name}'" for name in _NAMES)
_ARGUMENTS = f"SELECT name, value, origin, line FROM run_args WHERE run = ? AND run_index = ? AND name IN ({_LISTED})"
_FACT_TYPE = f"STRUCT({', '.join(f'{name} INTEGER' for name in _FACTS)})"
_ARGUMENT_TYPE = "STRUCT(name VARCHAR, value VARCHAR, origin VARCHAR, line BIGINT)[]"
_GRID_COLUMNS = ("world_size", *(f"{axis}_{what}" for axis, _, _ in _AXES for what in ("size", "stride")))
_GRID_TYPE = f"STRUCT({', '.join(f'{name} INTEGER' for name in _GRID_COLUMNS)})"
_GRID_VIEW = f"""
CREATE VIEW rank_grid AS
WITH argument AS (
    SELECT run, run_index, LIST({{'name': name, 'value': value, 'origin': origin, 'line': line}} ORDER BY artifact, line, name) AS arguments
    FROM run_args
    WHERE name IN ({_LISTED})
    GROUP BY run, run_index
), gridded AS (
    SELECT fact.run, fact.run_index, grid_of_attempt({{{', '.join(f"'{name}': fact.{name}" for name in _FACTS)}}}, argument.arguments) AS grid
    FROM attempt_facts AS fact
    LEFT JOIN argument ON argument.run = fact.run AND argument.run_index = fact.run_index
)
SELECT run, run_index, {', '.join(f'grid.{name} AS {name}' for name in _GRID_COLUMNS)}
FROM gridded
WHERE grid IS NOT NULL
"""


def add_rank_grid(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the view `rank_grid(run, run_index, world_size, tp_size, tp_stride, ...)`, worked out for the attempts that a query asks for."""
    given: list[Any] = [_FACT_TYPE, _ARGUMENT_TYPE]
    without_arguments: Any = "special"
    connection.create_function("grid_of_attempt", _grid, given, _GRID_TYPE, null_handling=without_arguments)
    connection.execute(_GRID_VIEW)


def rank_layout(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """The view `rank_layout` as Arrow rows, for an engine that cannot work out `rank_grid` itself."""
    return connection.sql("SELECT * FROM rank_layout").to_arrow_table()


def _grid(facts: dict[str, Any], arguments: list[dict[str, Any]] | None) -> Any:
    """Size and stride of each axis; None where the sizes are unknown."""
    sizes = _sizes(arguments or [], facts)
    if not isinstance(sizes, ParallelSizes):
        return None
    found = {"world_size": sizes.world_size}
    for axis, kind, name in _AXES:
        stride = 1
        for one, size in sizes.grid(kind):
            if one == name:
                found |= {f"{axis}_size": size, f"{axis}_stride": stride}
            stride *= size
    return found


def sizes_of(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> ParallelSizes | str:
    """The sizes of one attempt, or the sentence that says why they are unknown."""
    asked = [run, run_index]
    found = connection.execute(f"SELECT {', '.join(_FACTS)} FROM attempt_facts WHERE run = ? AND run_index = ?", asked).fetchone()
    printed = connection.execute(f"{_ARGUMENTS} ORDER BY artifact, line, name", asked).fetchall()
    return _sizes([dict(zip(("name", "value", "origin", "line"), row, strict=True)) for row in printed],
                  dict(zip(_FACTS, found or [None] * len(_FACTS), strict=True)))


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
