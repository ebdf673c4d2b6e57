"""What the artifacts say about one attempt: sizes, program, device, iterations, and the arguments that shape memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.database import records
from analysis.rank_layout import sizes_of
from analysis.rows import Configuration, Source
from analysis.theory.layout import ParallelSizes
from analysis.theory.run_arguments import run_arguments
from ingest.tables import BY_NAME

if TYPE_CHECKING:
    import duckdb

MODEL_ARGUMENTS = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "seq_length", "micro_batch_size", "global_batch_size",
    "num_experts", "moe_router_topk", "sequence_parallel", "use_distributed_optimizer", "recompute_granularity", "recompute_method",
    "recompute_num_layers", "recompute_modules", "checkpoint_activations", "bf16", "fp16", "fp8", "optimizer", "use_precision_aware_optimizer",
)
"""Arguments shown with a run, in this order, where the run sets them."""

SIZE_ARGUMENTS = ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
                  "expert_tensor_parallel_size", "virtual_pipeline_model_parallel_size")
"""Arguments that lay a run out over its ranks."""

_UNSET = {None, "None", "False", ""}
_ARGUMENTS = "SELECT name, value, origin, line, artifact FROM run_args WHERE run = ? AND run_index = ?"
_ATTEMPT = "SELECT * FROM run_attempts WHERE run = ? AND run_index = ?"
_LOADED = "SELECT event, iteration FROM job_events WHERE run = ? AND run_index = ? AND event = 'checkpoint_loaded'"


def configuration(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> Configuration:
    """The facts of one attempt; null where no artifact tells."""
    found = records(connection, _ATTEMPT, [run, run_index])
    facts: dict[str, Any] = found[0] if found else dict.fromkeys(_attempt_columns(connection))
    rows = records(connection, _ARGUMENTS, [run, run_index])
    known = run_arguments(rows, [facts] if found else [])
    sizes = sizes_of(connection, run, run_index)
    model = {name: str(known.args[name]) for name in MODEL_ARGUMENTS if known.args.get(name) not in _UNSET}
    return Configuration(
        framework=facts["framework"], framework_version=facts["framework_version"], **_sizes(facts, known.args, sizes),
        num_microbatches=known.microbatches, padded_vocab_size=facts["padded_vocab_size"],
        params_dtype=facts["params_dtype"] or known.args.get("params_dtype"), gpu_name=facts["gpu_name"], first_iteration=facts["first_iteration"],
        last_iteration=facts["last_iteration"], train_iterations=facts["train_iterations"], started_at=facts["started_at"],
        ended_at=facts["ended_at"], model=model, source=_source(connection, rows))


def arguments_of(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> dict[str, Any]:
    """The arguments of one attempt as printed, facts of the run filled in."""
    return run_arguments(records(connection, _ARGUMENTS, [run, run_index]), records(connection, _ATTEMPT, [run, run_index])).args


@dataclass(frozen=True, slots=True)
class Printed:
    """Arguments of an attempt as printed, and the place of each where it stands in an artifact."""

    args: dict[str, Any]
    places: dict[str, Source]


def arguments_and_lines(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> Printed:
    """`arguments_of`, with the artifact and line of each."""
    rows = records(connection, _ARGUMENTS, [run, run_index])
    known = run_arguments(rows, records(connection, _ATTEMPT, [run, run_index]))
    paths = {row["artifact"]: row["path"] for row in records(connection, "SELECT artifact, path FROM artifacts WHERE run = ?", [run])}
    places = {row["name"]: Source(paths.get(row["artifact"], row["artifact"]), row["line"]) for row in rows
              if row["line"] and row["line"] == known.lines.get(row["name"])}
    return Printed(known.args, places)


def record_counts(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> dict[str, int]:
    """Records of one attempt by table, those without any left out."""
    counted = [name for name in BY_NAME if name not in ("artifacts", "rejects", "rank_day")]
    query = " UNION ALL ".join(f"SELECT '{name}' AS name, COUNT(*) AS n FROM {name} WHERE run = $1 AND run_index = $2" for name in counted)
    found = {row["name"]: row["n"] for row in records(connection, query, [run, run_index])}
    return {name: found[name] for name in counted if found[name]}


def steps_before(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> int | None:
    """Iterations done before the attempt began: 0 without a loaded checkpoint, null where its iteration is not told."""
    loaded = [row["iteration"] for row in records(connection, _LOADED, [run, run_index])]
    return 0 if not loaded else None if None in loaded else int(max(loaded))


def _sizes(facts: dict[str, Any], args: dict[str, Any], sizes: ParallelSizes | str) -> dict[str, int | None]:
    """Sizes as the grid has them; what is printed alone where no grid can be laid."""
    if isinstance(sizes, ParallelSizes):
        return {"world_size": sizes.world_size, "tp": sizes.tp, "pp": sizes.pp, "vpp": facts["virtual_pipeline_model_parallel_size"] or
                _number(args.get("virtual_pipeline_model_parallel_size")), "cp": sizes.cp, "ep": sizes.ep, "etp": sizes.etp, "dp": sizes.dp,
                "pp_stride": sizes.stride("dense", "pp")}
    names = {"tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "vpp": "virtual_pipeline_model_parallel_size",
             "cp": "context_parallel_size", "ep": "expert_model_parallel_size", "etp": "expert_tensor_parallel_size", "dp": "data_parallel_size",
             "world_size": "world_size"}
    return {short: facts[name] if facts[name] is not None else _number(args.get(name)) for short, name in names.items()}


def _number(value: Any) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _source(connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]]) -> Source | None:
    dumped = next((row for row in rows if row["origin"] == "dump" and row["line"]), None)
    if dumped is None:
        return None
    path = records(connection, "SELECT path FROM artifacts WHERE artifact = ?", [dumped["artifact"]])
    return Source(path[0]["path"] if path else dumped["artifact"], min(row["line"] for row in rows if row["origin"] == "dump" and row["line"]))


def _attempt_columns(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [column[0] for column in connection.execute("SELECT * FROM run_attempts LIMIT 0").description or ()]
