"""Load of MoE ranks in bytes: the rule's coefficients for each run, and what a report says of the counts that were recorded.

load = saved part + largest single-layer spike. Saved: C (2 h + (2 G + 2) m) over the rank's MoE layers and its micro-batches in flight (C tokens of
its experts, G 2 with a gate, m the experts' width over ETP); nothing under full or MoE recomputation, 2 m less with the activation
recomputed. Spike: the dispatch of one layer, three copies of C tokens, and what recomputation brings back. Counts alone are not compared between
runs: a token's bytes are the run's. The view `rank_load` applies it; steps without counts have an unknown load there, not a low one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.theory.arguments import native_args
from analysis.theory.inflight import peak_stages, schedule
from analysis.theory.run_arguments import run_arguments
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_RULE_TYPE = """STRUCT(pp INTEGER, saved_bytes_a_token BIGINT, spike_bytes_a_token BIGINT, in_flight DOUBLE, microbatches INTEGER, chunks INTEGER,
    recomputed BOOLEAN)[]"""
_FACTS = ("num_microbatches", "world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
          "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "data_parallel_size")
_FACT_TYPE = f"STRUCT({', '.join(f'{name} BIGINT' for name in _FACTS)})"
_ARGUMENT_TYPE = "STRUCT(name VARCHAR, value VARCHAR, origin VARCHAR, line BIGINT)[]"
_RULES_VIEW = f"""
CREATE VIEW load_rules AS
WITH loaded AS (
    SELECT DISTINCT run, run_index FROM expert_load
), argument AS (
    SELECT run, run_index, LIST({{'name': name, 'value': value, 'origin': origin, 'line': line}} ORDER BY artifact, line, name) AS arguments
    FROM run_args
    GROUP BY run, run_index
), ruled AS (
    SELECT fact.run, fact.run_index,
        UNNEST(rules_of_attempt({{{', '.join(f"'{name}': fact.{name}" for name in _FACTS)}}}, argument.arguments)) AS rule
    FROM attempt_facts AS fact
    JOIN loaded ON loaded.run = fact.run AND loaded.run_index = fact.run_index
    JOIN argument ON argument.run = fact.run AND argument.run_index = fact.run_index
)
SELECT run, run_index, rule.pp AS pp, rule.saved_bytes_a_token AS saved_bytes_a_token, rule.spike_bytes_a_token AS spike_bytes_a_token,
    rule.in_flight AS in_flight, rule.microbatches AS microbatches, rule.chunks AS chunks, rule.recomputed AS recomputed
FROM ruled
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """Bytes a routed token keeps and spikes on one rank. `recomputed` is None where the arguments do not tell."""

    saved_bytes: int
    spike_bytes: int
    recomputed: bool | None


def rule(args: Mapping[str, Any]) -> Rule | None:
    """The coefficients by native arguments; None where the widths are not among them."""
    hidden, width = _number(args, "moe_latent_size") or _number(args, "hidden_size"), _number(args, "moe_ffn_hidden_size") or _number(
        args, "ffn_hidden_size")
    if not hidden or not width:
        return None
    width //= _number(args, "expert_tensor_parallel_size") or _number(args, "tensor_model_parallel_size") or 1
    gate = 2 if args.get("swiglu") or args.get("gated_linear_unit") else 1
    saved, dispatch = 2 * hidden + (2 * gate + 2) * width, 6 * hidden
    modules = args.get("recompute_modules")
    selected = tuple(modules) if isinstance(modules, list | tuple) else ()
    granularity = args.get("recompute_granularity")
    if granularity == "full" or args.get("moe_layer_recompute") is True or (granularity == "selective" and "moe" in selected):
        return Rule(0, saved + dispatch, True)
    activation = 2 * width if granularity == "selective" and "moe_act" in selected else 0
    return Rule(saved - activation, dispatch + activation, False if "recompute_granularity" in args else None)


def add_load_rules(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the view `load_rules`: a row a stage of every attempt with counts of experts and the widths among its arguments."""
    given: list[Any] = [_FACT_TYPE, _ARGUMENT_TYPE]
    connection.create_function("rules_of_attempt", _rules, given, _RULE_TYPE)
    connection.execute(_RULES_VIEW)


def load_rules(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """The view `load_rules` as Arrow rows, for an engine that cannot work it out itself."""
    return connection.sql("SELECT * FROM load_rules").to_arrow_table()


def _rules(facts: dict[str, Any], arguments: list[dict[str, Any]]) -> Any:
    known = run_arguments(arguments, [facts])
    return _of_stages(native_args(known.args), known.microbatches)


def _of_stages(args: Mapping[str, Any], microbatches: int | None) -> list[dict[str, Any]]:
    known, pp, chunks = rule(args), _number(args, "pipeline_model_parallel_size") or 1, _chunks(args)
    if known is None:
        return []
    rows = []
    for stage in range(pp):
        try:
            alive = peak_stages(schedule(pp, chunks, microbatches or pp * chunks, _number(args, "microbatch_group_size_per_vp_stage"),
                                         overlap_experts=args.get("overlap_moe_expert_parallel_comm") is True), stage)
        except LedgerError:
            alive = float(pp - stage)
        rows.append({"pp": stage, "saved_bytes_a_token": known.saved_bytes, "spike_bytes_a_token": known.spike_bytes, "in_flight": alive,
                     "microbatches": microbatches, "chunks": chunks, "recomputed": known.recomputed})
    return rows


def _chunks(args: Mapping[str, Any]) -> int:
    if virtual := _number(args, "virtual_pipeline_model_parallel_size") or _number(args, "num_virtual_stages_per_pipeline_rank"):
        return virtual
    layers, each = _number(args, "num_layers"), _number(args, "num_layers_per_virtual_pipeline_stage")
    pp = _number(args, "pipeline_model_parallel_size") or 1
    return max(1, layers // pp // each) if layers and each else 1


def _number(args: Mapping[str, Any], name: str) -> int | None:
    value = args.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
