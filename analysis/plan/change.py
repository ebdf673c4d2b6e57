"""What another setting would do to this run: each stage before and after, the run's own residual kept, and whether it fits.

The expected ledger is asked twice, with the run's arguments and with the change; what was measured above or below the first is kept on top of the
second (`analysis.plan.residual`), so that an error the ledger makes in both cancels. The data-parallel size and the number of micro-batches
follow from the world size and the global batch as Megatron computes them. Layouts that Megatron would refuse are refused with its reason.
Method: docs/methods/plan.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from analysis.expected import RankExpectation, expect_stages
from analysis.findings.catalogue import ACTIONS
from analysis.findings.model import Saver, Seen
from analysis.plan.residual import Residual, kept, residual_of
from analysis.plan.values import refuse_misspelt
from analysis.reconcile import Expected
from analysis.rows import Rank
from analysis.theory.arguments import native_args, whole
from analysis.theory.layout import parallel_sizes
from ingest.errors import LedgerError

Fit = Literal["fits", "may fit", "does not fit", "unknown"]


@dataclass(frozen=True, slots=True)
class Before:
    """What is kept of the run, in bytes: the residual of each stage (measured - expected peak), the most outside torch, the capacity, and the
    residual of each stage after a step where that was measured too."""

    residuals: Mapping[int, int]
    outside_bytes: int | None
    capacity_bytes: int | None
    steady_residuals: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """One stage after the change, bytes. Peak, interval and steady state have the run's residual in them, `residual_bytes` is that of the peak;
    `saved_bytes` is null where the stage was not there before."""

    stage: int
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    steady_bytes: int
    residual_bytes: int
    before_bytes: int | None
    saved_bytes: int | None
    fits: Fit
    classes: Mapping[str, int]
    peak_instant: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to one change. `saved_bytes` is what the fullest stage's peak falls by."""

    changes: Mapping[str, Any]
    microbatches: int
    sizes: Mapping[str, int]
    stages: tuple[PlannedStage, ...]
    fullest_stage: int
    fullest_bytes: int
    before_bytes: int
    saved_bytes: int
    fits: Fit
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One action of the catalogue on this run: bytes saved on the fullest rank, or why it cannot be had."""

    action: str
    sentence: str
    changes: Mapping[str, Any]
    saved_bytes: int | None
    refused: str | None
    computation: str
    communication: str
    complexity: str
    fails_when: str


def before_of(expected: Expected, ranks: Sequence[Rank], capacity_bytes: int | None = None) -> Before:
    """What the run keeps: residuals by stage from its fullest measured rank, the mean of those for stages without one."""
    residuals: dict[int, int] = {}
    steady: dict[int, int] = {}
    for stage, row in expected.stages.items():
        fullest = max((rank for rank in ranks if rank.stage == stage), key=lambda rank: rank.max_allocated_bytes or -1, default=None)
        if fullest is None or fullest.max_allocated_bytes is None:
            continue
        residuals[stage] = fullest.max_allocated_bytes - row.peak_allocated_bytes
        if fullest.allocated_bytes is not None:
            steady[stage] = fullest.allocated_bytes - row.steady_allocated_bytes
    outside = max((rank.outside_bytes for rank in ranks if rank.outside_bytes is not None), default=None)
    capacity = capacity_bytes or min((rank.capacity_bytes for rank in ranks if rank.capacity_bytes is not None), default=None)
    return Before(residuals, outside, capacity, steady)


def plan(expected: Expected, before: Before, changes: Mapping[str, Any]) -> Plan:
    """Each stage with `changes` made. Raises LedgerError for an illegal layout, a size that does not divide, or a run without a ledger."""
    if not expected.stages or expected.microbatches is None:
        raise LedgerError(expected.reason or "the run's ledger is not known", todo="give a log with an argument dump")
    refuse_misspelt(expected.args, native_args(changes))
    args = _changed(expected.args, changes)
    sizes = parallel_sizes(args)
    microbatches = _microbatches(expected, args, sizes.dp)
    rows = expect_stages(args, microbatches=microbatches, env=expected.environment, gpu=expected.gpu)
    stages = tuple(_stage(row, expected, before, len(rows)) for row in rows)
    top = max(stages, key=lambda one: one.peak_bytes)
    was = max(row.peak_allocated_bytes + _residual(before, row).peak for row in expected.stages.values())
    named = {name: getattr(sizes, name) for name in ("world_size", "tp", "pp", "cp", "ep", "etp", "dp")}
    said = tuple(dict.fromkeys(one for row in rows for one in row.assumptions))
    return Plan(dict(changes), microbatches, named, stages, top.stage, top.peak_bytes, was, was - top.peak_bytes, _worst(stages), said)


def _changed(args: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the change made; sizes that follow from others are left to be worked out anew."""
    made = {**args, **native_args(changes)}
    if any(name in changes for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "world_size")):
        made["data_parallel_size"] = None
    if made.get("expert_tensor_parallel_size") == args.get("tensor_model_parallel_size") and "expert_tensor_parallel_size" not in changes:
        made["expert_tensor_parallel_size"] = made.get("tensor_model_parallel_size")
    if "pipeline_model_parallel_size" in changes:
        made["transformer_pipeline_model_parallel_size"] = None
    if _derived_width(args) and "kv_channels" not in changes and any(name in changes for name in ("hidden_size", "num_attention_heads")):
        made["kv_channels"] = None
    return made


def _derived_width(args: Mapping[str, Any]) -> bool:
    """Whether the width of a head is the one that Megatron works out where it is not given; a dump prints it either way."""
    hidden, heads = args.get("hidden_size"), args.get("num_attention_heads")
    return isinstance(hidden, int) and isinstance(heads, int) and heads > 0 and args.get("kv_channels") == hidden // heads


def _microbatches(expected: Expected, args: Mapping[str, Any], dp: int) -> int:
    """As Megatron's calculator: global batch / (micro-batch x data-parallel size); the run's own number where the batch is not told."""
    if not isinstance(args.get("global_batch_size"), int) or not isinstance(args.get("micro_batch_size"), int):
        return expected.microbatches or 1
    batch, micro = whole(args, "global_batch_size"), whole(args, "micro_batch_size")
    if batch % (micro * dp):
        raise LedgerError(f"global_batch_size {batch} is no multiple of micro_batch_size {micro} x data-parallel size {dp}",
                          todo=f"a multiple of {micro * dp} would fit")
    return batch // (micro * dp)


def _residual(before: Before, row: RankExpectation) -> Residual:
    """The residual of one of the run's stages; the mean of the measured ones where it was not measured."""
    return residual_of(row, _of_stage(before.residuals, row.pp) or 0, _of_stage(before.steady_residuals, row.pp))


def _of_stage(residuals: Mapping[int, int], stage: int) -> int | None:
    mean = round(sum(residuals.values()) / len(residuals)) if residuals else None
    return residuals.get(stage, mean)


def _stage(row: RankExpectation, expected: Expected, before: Before, stages: int) -> PlannedStage:
    """One stage with the residual of the stage that played its part (first, last, middle)."""
    old = max(expected.stages)
    twin = expected.stages[0 if row.pp == 0 else old if row.pp == stages - 1 else min(row.pp, max(old - 1, 0))]
    found = _residual(before, twin)
    was = twin.peak_allocated_bytes + found.peak if len(expected.stages) == stages else None
    now = kept(found, twin, row)
    peak, high, steady = row.peak_allocated_bytes + now.peak, row.peak_high_bytes + now.peak, row.steady_allocated_bytes + now.steady
    low = min(max(row.peak_low_bytes + now.peak, row.steady_low_bytes + now.steady, 0), peak)
    return PlannedStage(row.pp, peak, low, high, steady, now.peak, was, None if was is None else was - peak,
                        fit(low, high, before), row.peak_classes, row.peak_instant)


def fit(low: int, high: int, before: Before) -> Fit:
    """Whether a peak between `low` and `high` fits beside what lies outside torch."""
    if before.capacity_bytes is None:
        return "unknown"
    left = before.capacity_bytes - (before.outside_bytes or 0)
    return "fits" if high <= left else "does not fit" if low > left else "may fit"


def _worst(stages: Sequence[PlannedStage]) -> Fit:
    order: tuple[Fit, ...] = ("unknown", "does not fit", "may fit", "fits")
    return min((one.fits for one in stages), key=order.index)


def saver(expected: Expected, before: Before) -> Saver:
    """What a change saves on the fullest rank, or why it is refused; null where the ledger is not known."""
    def saved(change: Mapping[str, Any]) -> int | str | None:
        try:
            return plan(expected, before, change).saved_bytes if expected.stages else None
        except LedgerError as error:
            return error.what
    return saved


def sensitivity(seen: Seen, expected: Expected, before: Before) -> tuple[Sensitivity, ...]:
    """Every action of the catalogue that the plan can simulate, largest saving first."""
    rows = [_sensitivity(name, seen, expected, before) for name, action in ACTIONS.items() if action.change(seen)]
    return tuple(sorted(rows, key=lambda one: (one.saved_bytes is None, -(one.saved_bytes or 0))))


def _sensitivity(name: str, seen: Seen, expected: Expected, before: Before) -> Sensitivity:
    action = ACTIONS[name]
    change, hindered = action.change(seen), action.hindered(seen)
    answer = hindered or saver(expected, before)(change)
    saved, refused = (None, answer) if isinstance(answer, str) else (answer, None)
    return Sensitivity(name, action.sentence, dict(change), saved, refused, action.computation, action.communication, action.complexity,
                       action.fails_when)
