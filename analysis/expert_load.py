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

import pyarrow as pa

from analysis.theory.arguments import native_args
from analysis.theory.inflight import peak_stages, schedule
from analysis.theory.run_arguments import run_arguments
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

RULES = pa.schema([
    ("run", pa.string()), ("run_index", pa.int32()), ("pp", pa.int32()), ("saved_bytes_a_token", pa.int64()), ("spike_bytes_a_token", pa.int64()),
    ("in_flight", pa.float64()), ("microbatches", pa.int32()), ("chunks", pa.int32()), ("recomputed", pa.bool_())])
_RUNS = """
SELECT DISTINCT attempt.* FROM run_attempts AS attempt
JOIN (SELECT DISTINCT run, run_index FROM expert_load) AS loaded ON loaded.run = attempt.run AND loaded.run_index = attempt.run_index
"""
_ARGUMENTS = "SELECT name, value, origin, line FROM run_args WHERE run = ? AND run_index = ?"


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


def load_rules(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """One row a stage of every attempt that has counts of experts and the widths among its arguments."""
    rows: list[dict[str, Any]] = []
    result = connection.execute(_RUNS)
    names = [column[0] for column in result.description or ()]
    for values in result.fetchall():
        attempt = dict(zip(names, values, strict=True))
        given = connection.execute(_ARGUMENTS, [attempt["run"], attempt["run_index"]]).fetchall()
        arguments = [dict(zip(("name", "value", "origin", "line"), one, strict=True)) for one in given]
        known = run_arguments(arguments, [attempt])
        rows += [{"run": attempt["run"], "run_index": attempt["run_index"], **row} for row in _of_stages(native_args(known.args), known.microbatches)]
    return pa.Table.from_pylist(rows, schema=RULES)


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
