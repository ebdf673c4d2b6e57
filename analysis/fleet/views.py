"""What the views `fleet_*` need that SQL cannot say: `fleet_grid`, `fleet_stages`, `fleet_formula` and `fleet_oom_cases`.

Each is a view over a function of one attempt (or error), so that only attempts that a query asks for are worked out, and each once a query: a run's
answer hangs on its arguments, so answers are kept by the arguments that shape memory, and a fleet that runs ten configurations a thousand times
costs ten answers. Attempts are told apart by cluster too: two clusters may give two runs one name. An engine that cannot call Python takes the
rows from `rows_of`. The figures are those of `report`: its own functions are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from analysis.reconcile import Expected
    from analysis.theory.layout import ParallelSizes

Row = dict[str, Any]
Given = tuple[tuple[str, Any], ...]
"""Arguments as (name, value), by name: what an answer is kept by."""

WORKED_OUT = ("fleet_grid", "fleet_stages", "fleet_formula", "fleet_oom_cases")
"""The views that this module makes, in order."""
_FACTS = ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "context_parallel_size",
          "expert_model_parallel_size", "expert_tensor_parallel_size", "data_parallel_size", "vocab_size", "padded_vocab_size", "num_microbatches")
_FACT_TYPE = f"STRUCT({', '.join(f'{name} BIGINT' for name in _FACTS)})"
_ARGUMENT_TYPE = "STRUCT(name VARCHAR, value VARCHAR, origin VARCHAR)[]"
_GRID_TYPE = "STRUCT(stages INTEGER, stride INTEGER, world_size INTEGER, family VARCHAR, usual_capacity_bytes BIGINT, reason VARCHAR)"
_STAGE_TYPE = "STRUCT(stage INTEGER, expected_steady_bytes BIGINT, expected_peak_bytes BIGINT, reason VARCHAR)[]"
_FORMULA_TYPE = "STRUCT(branch VARCHAR, confidence VARCHAR, generation VARCHAR)"
_NUMBERS = ("requested_bytes", "capacity_bytes", "free_bytes", "process_bytes", "allocated_bytes", "private_pool_bytes", "reserved_unallocated_bytes",
            "reserved_bytes", "allowed_bytes")
_BEFORE = ("steady_bytes", "outside_bytes", "allocated_bytes", "reserved_bytes")
_CASE_TYPE = "STRUCT(oom_case VARCHAR, reason VARCHAR)"
_ARGUMENTS = """
argument AS (
    SELECT cluster, run, run_index, LIST({'name': name, 'value': value, 'origin': origin} ORDER BY artifact, line, name) AS arguments
    FROM fleet_arguments
    GROUP BY cluster, run, run_index
)"""
_JOINED = "argument.cluster = attempt.cluster AND argument.run = attempt.run AND argument.run_index = attempt.run_index"
_ATTEMPTS = "LIST({'cluster': attempt.cluster, 'run': attempt.run, 'run_index': attempt.run_index})"
"""Attempts that give a function the same, so that it is called once for all of them: a fleet runs few configurations, each many times."""
_GIVEN = "{" + ", ".join(f"'{name}': attempt.{name}" for name in _FACTS) + "}"
_GRID_VIEW = f"""
CREATE VIEW fleet_grid AS
WITH {_ARGUMENTS}, alike AS (
    SELECT {_GIVEN} AS facts, argument.arguments, attempt.gpu_name, {_ATTEMPTS} AS attempts
    FROM fleet_attempts AS attempt
    LEFT JOIN argument ON {_JOINED}
    GROUP BY ALL
), answered AS (
    SELECT attempts, fleet_grid_of(facts, arguments, gpu_name) AS one FROM alike
), gridded AS (
    SELECT UNNEST(attempts) AS attempt, one FROM answered
)
SELECT attempt.cluster AS cluster, attempt.run AS run, attempt.run_index AS run_index, one.stages AS stages, one.stride AS stride,
    one.world_size AS world_size, one.family AS family, one.usual_capacity_bytes AS usual_capacity_bytes, one.reason AS reason
FROM gridded
"""
_ALIKE = f"""
{_ARGUMENTS}, variable AS (
    SELECT COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, name, MIN(value) AS value
    FROM environment
    WHERE value IS NOT NULL
    GROUP BY COALESCE(cluster, 'default'), run, COALESCE(run_index, 0), name
), environment_of AS (
    SELECT cluster, run, run_index, LIST({{'name': name, 'value': value}} ORDER BY name) AS variables FROM variable GROUP BY cluster, run, run_index
), alike AS (
    SELECT {_GIVEN} AS facts, argument.arguments, environment_of.variables, attempt.gpu_name, {_ATTEMPTS} AS attempts
    FROM fleet_attempts AS attempt
    LEFT JOIN argument ON {_JOINED}
    LEFT JOIN environment_of ON environment_of.cluster = attempt.cluster AND environment_of.run = attempt.run
        AND environment_of.run_index = attempt.run_index
    GROUP BY ALL
)"""
_STAGES_VIEW = f"""
CREATE VIEW fleet_stages AS
WITH {_ALIKE}, answered AS (
    SELECT attempts, UNNEST(fleet_stages_of(facts, arguments, variables, gpu_name)) AS one FROM alike
), staged AS (
    SELECT UNNEST(attempts) AS attempt, one FROM answered
)
SELECT attempt.cluster AS cluster, attempt.run AS run, attempt.run_index AS run_index, one.stage AS stage,
    one.expected_steady_bytes AS expected_steady_bytes, one.expected_peak_bytes AS expected_peak_bytes, one.reason AS reason
FROM staged
"""
_FORMULA_VIEW = f"""
CREATE VIEW fleet_formula AS
WITH {_ARGUMENTS}, report AS (
    SELECT COALESCE(cluster, 'default') AS cluster, run, COALESCE(run_index, 0) AS run_index, producer, text, weight_and_optimizer_bytes,
        activation_bytes, total_bytes, artifact, line, ROW_NUMBER() OVER (
            PARTITION BY COALESCE(cluster, 'default'), run, COALESCE(run_index, 0)
            ORDER BY CASE WHEN weight_and_optimizer_bytes IS NULL AND total_bytes IS NULL THEN 1 ELSE 0 END, artifact DESC, line DESC
        ) AS nth
    FROM theory_reports
), alike AS (
    SELECT report.text, report.producer, {_GIVEN} AS facts, argument.arguments, {_ATTEMPTS} AS attempts
    FROM report
    JOIN fleet_attempts AS attempt ON report.cluster = attempt.cluster AND report.run = attempt.run AND report.run_index = attempt.run_index
    LEFT JOIN argument ON {_JOINED}
    WHERE report.nth = 1
    GROUP BY ALL
), answered AS (
    SELECT attempts, fleet_formula_of(text, producer, facts, arguments) AS card FROM alike
), one_each AS (
    SELECT UNNEST(attempts) AS attempt, card FROM answered
), solved AS (
    SELECT report.*, one_each.card
    FROM report
    JOIN one_each ON one_each.attempt.cluster = report.cluster AND one_each.attempt.run = report.run
        AND one_each.attempt.run_index = report.run_index
    WHERE report.nth = 1
)
SELECT cluster, run, run_index, card.branch AS branch, card.confidence AS confidence, card.generation AS generation, weight_and_optimizer_bytes,
    activation_bytes, total_bytes, artifact, line
FROM solved
"""
_CASES_VIEW = f"""
CREATE VIEW fleet_oom_cases AS
WITH judged AS (
    SELECT cluster, run, run_index, artifact, line, rank, fleet_oom_case_of(
        kind, {{{", ".join(f"'{name}': {name}" for name in _NUMBERS)}}}, other, {{{", ".join(f"'{name}': before_{name}" for name in _BEFORE)}}}
    ) AS one
    FROM fleet_oom_evidence
)
SELECT DISTINCT cluster, run, run_index, artifact, line, rank, one.oom_case AS oom_case, one.reason AS reason FROM judged
"""


def add_fleet_grid(connection: duckdb.DuckDBPyConnection) -> None:
    """Make `fleet_grid`: a row an attempt: how its ranks fall on stages and what kind of model it is. Needs the view `fleet_attempts`."""
    _function(connection, "fleet_grid_of", _grid, [_FACT_TYPE, _ARGUMENT_TYPE, "VARCHAR"], _GRID_TYPE)
    connection.execute(_GRID_VIEW)


def add_fleet_stages(connection: duckdb.DuckDBPyConnection) -> None:
    """Make `fleet_stages`: a row a pipeline stage of every attempt whose sizes are known: its expected bytes. Needs the view `fleet_attempts`."""
    _function(connection, "fleet_stages_of", _stages, [_FACT_TYPE, _ARGUMENT_TYPE, "STRUCT(name VARCHAR, value VARCHAR)[]", "VARCHAR"], _STAGE_TYPE)
    connection.execute(_STAGES_VIEW)


def add_fleet_formula(connection: duckdb.DuckDBPyConnection) -> None:
    """Make `fleet_formula`: a row an attempt that printed a footprint: which branch and newest generation print it. Needs `fleet_attempts`."""
    _function(connection, "fleet_formula_of", _formula, ["VARCHAR", "VARCHAR", _FACT_TYPE, _ARGUMENT_TYPE], _FORMULA_TYPE)
    connection.execute(_FORMULA_VIEW)


def add_fleet_oom_cases(connection: duckdb.DuckDBPyConnection) -> None:
    """Make `fleet_oom_cases`: a row an out-of-memory error: its case and why. Needs the view `fleet_oom_evidence`."""
    numbers, before = (f"STRUCT({', '.join(f'{name} BIGINT' for name in names)})" for names in (_NUMBERS, _BEFORE))
    _function(connection, "fleet_oom_case_of", _case, ["VARCHAR", numbers, "MAP(VARCHAR, VARCHAR)", before], _CASE_TYPE)
    connection.execute(_CASES_VIEW)


ADDED = {"fleet_attempts": (add_fleet_grid, add_fleet_stages, add_fleet_formula), "fleet_oom_evidence": (add_fleet_oom_cases,)}
"""What is made right after which view of `analysis/sql`."""
VIEWS = ("fleet_arguments", "fleet_attempts", "fleet_ranks", "fleet_near_limit", "fleet_ratio", "fleet_runs", "fleet_outside_torch",
         "fleet_oom_evidence", "fleet_oom", "fleet_drift")
"""The views of `analysis/sql` on history, each after those it reads."""


def rows_of(connection: duckdb.DuckDBPyConnection, name: str) -> pa.Table:
    """A view of `WORKED_OUT` as Arrow rows, for an engine that cannot work it out itself."""
    return connection.sql(f"SELECT * FROM {name}").to_arrow_table()


def expected_ledgers(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[list[Row], Expected]]:
    """The expected ledger of every attempt of a lake: attempts (cluster, run, run_index) that give the same, and their answer."""
    from analysis.reconcile import expected_of

    for facts, arguments, variables, gpu, attempts in connection.execute(f"WITH {_ALIKE} SELECT * FROM alike").fetchall():
        args, microbatches = _known(facts, arguments)
        yield attempts, expected_of(dict(args), microbatches, {one["name"]: one["value"] for one in variables or ()}, gpu)


def _function(connection: duckdb.DuckDBPyConnection, name: str, made: Callable[..., Any], given: list[Any], answer: str) -> None:
    connection.create_function(name, made, given, answer, null_handling="special")  # type: ignore[call-overload]


def _grid(facts: Row, arguments: Sequence[Row] | None, gpu: str | None) -> Row:
    from analysis.capacity import capacity_of_device

    args, _ = _known(facts, arguments)
    usual = capacity_of_device(gpu) if gpu else None
    return {**_grid_of(args), "usual_capacity_bytes": usual.capacity_bytes if usual else None}


@lru_cache(maxsize=4096)
def _grid_of(args: Given) -> Mapping[str, Any]:
    sizes, kind = _sizes(dict(args)), family(dict(args))
    if isinstance(sizes, str):
        return {"stages": None, "stride": None, "world_size": None, "family": kind, "reason": sizes}
    return {"stages": sizes.pp, "stride": sizes.stride("dense", "pp"), "world_size": sizes.world_size, "family": kind, "reason": None}


def _stages(facts: Row, arguments: Sequence[Row] | None, variables: Sequence[Row] | None, gpu: str | None) -> list[Row]:
    return [dict(row) for row in _stages_of(*_known(facts, arguments), tuple((one["name"], one["value"]) for one in variables or ()), gpu)]


@lru_cache(maxsize=4096)
def _stages_of(args: Given, microbatches: int | None, variables: tuple[tuple[str, str], ...], gpu: str | None) -> tuple[Mapping[str, Any], ...]:
    """A row a stage where the sizes are known, else none."""
    from analysis.reconcile import expected_of

    sizes = _sizes(dict(args))
    if isinstance(sizes, str):
        return ()
    expected = expected_of(dict(args), microbatches, dict(variables), gpu)
    return tuple({"stage": stage, "expected_steady_bytes": row.steady_allocated_bytes if row else None,
                  "expected_peak_bytes": row.peak_allocated_bytes if row else None, "reason": expected.reason}
                 for stage in range(sizes.pp) for row in [expected.stages.get(stage)])


def _known(facts: Row, arguments: Sequence[Row] | None) -> tuple[Given, int | None]:
    """The arguments of an attempt in one order, and its micro-batches."""
    from analysis.theory.run_arguments import run_arguments

    known = run_arguments(arguments or (), [facts])
    return tuple(sorted((name, value) for name, value in known.args.items() if value is not None)), known.microbatches


def _sizes(args: Mapping[str, Any]) -> ParallelSizes | str:
    """The sizes, or why they are unknown; as `analysis.rank_layout` has it."""
    from analysis.theory.layout import parallel_sizes

    for name, words in (("world_size", "the world size"), ("pipeline_model_parallel_size", "the pipeline size")):
        if args.get(name) is None:
            return f"{words} is in no artifact, so no rank can be placed on a stage"
    why = ""
    for era in ("current", "core_0.9"):
        try:
            return parallel_sizes(args, era=era)
        except LedgerError as error:
            why = why or f"the sizes contradict one another: {error.what}"
    return why


def family(args: Mapping[str, Any]) -> str | None:
    """What kind of model the arguments make: `dense`, `MoE` or `hybrid`, with `MLA`, `FSDP`, `fp8`; null where they do not tell the model."""
    from analysis.theory.arguments import native_args

    known = native_args(args)
    if not known.get("num_layers") or not known.get("hidden_size"):
        return None
    experts = known.get("num_experts")
    kind = "hybrid" if known.get("hybrid_override_pattern") or known.get("hybrid_layer_pattern") else \
        "MoE" if isinstance(experts, int) and experts > 1 else "dense"
    marks = [("MLA", "multi_latent_attention"), ("FSDP", "use_megatron_fsdp"), ("fp8", "fp8_format"), ("fp8", "fp8")]
    return ", ".join(dict.fromkeys([kind, *(mark for mark, name in marks if known.get(name))]))


def _formula(text: str | None, producer: str | None, facts: Row, arguments: Sequence[Row] | None) -> Row:
    args, microbatches = _known(facts, arguments)
    return _formula_of(text or "", producer, args if arguments else None, microbatches)


@lru_cache(maxsize=4096)
def _formula_of(text: str, producer: str | None, args: Given | None, microbatches: int | None) -> Row:
    from analysis.theory.run_arguments import RunArguments
    from analysis.theory.run_card import card_of

    card = card_of(text, producer, RunArguments(dict(args or ()), {}, microbatches), has_arguments=args is not None)
    return {"branch": card.branch, "confidence": card.confidence, "generation": card.generations[-1] if card.generations else None}


def _case(kind: str | None, numbers: Row, other: Mapping[str, str] | None, before: Row) -> Row:
    from analysis.oom.case import Before, judge

    if kind == "host":
        return {"oom_case": "F", "reason": "the host killed the process for its own memory"}
    known = {name: size for name, size in numbers.items() if size is not None}
    others = sum(int(value) for name, value in (other or {}).items() if name.startswith("process_") and value.isdigit())
    verdict = judge(kind, known, others, Before(*(before[name] for name in _BEFORE)))
    return {"oom_case": verdict.case, "reason": verdict.reason}
