"""The expected ledger of a run: bytes of each class on each rank, steady state and peak with 90 % intervals.

    from analysis.expected import expect
    rows = expect(arguments, microbatches=8, env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}, gpu="H100")

`arguments` are Megatron's own names, native or as a dump prints them; `ranks` limits the answer (default: every rank). Each
row is a frozen `RankExpectation`: coordinates, `classes` (they add up to `steady_allocated_bytes`), `peak_classes` (they add up to
`peak_allocated_bytes` at `peak_instant`), low and high of both, assumptions. `expect_stages` answers once a stage.
Illegal values raise LedgerError with one sentence; options without a price here stand among the assumptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from analysis.expected.assumptions import assumptions, doubts
from analysis.expected.calibration import LEAST_HISTORY, History, interval, kinds
from analysis.expected.environment import environment
from analysis.expected.model import prepared, read_model
from analysis.expected.options import read_options
from analysis.expected.rank import RankExpectation
from analysis.expected.run import Run
from analysis.expected.stage import stage_bytes
from analysis.theory.arguments import Args, whole
from analysis.theory.consistency import refuse_shapes
from analysis.theory.inflight import schedule
from analysis.theory.layout import coordinates, parallel_sizes
from analysis.theory.stages import stage_layout


def expect(arguments: Args, *, microbatches: int, env: Mapping[str, Any] | None = None, gpu: str | None = None, ranks: Iterable[int] | None = None,
           container: str | None = None, history: History | None = None, steps: int | None = None,
           communication: Callable[[Run, int], int] | None = None) -> list[RankExpectation]:
    """Every rank's expectation, in the order of `ranks` (default: all).

    `container` is the name of the software environment, if known; `steps` how many steps the measurement covers, if few: a peak
    of the first step alone has no moments beside its activations. `communication` gives the bytes that communication holds inside
    torch's allocator on a stage.
    """
    args = prepared(arguments)
    run = replace(read_run(args, microbatches, env, gpu, container), first_step=steps == 1, communication=communication)
    known: dict[int, RankExpectation] = {}
    rows = []
    for rank in range(run.sizes.world_size) if ranks is None else ranks:
        place = coordinates(rank, run.sizes)
        if place.pp not in known:
            known[place.pp] = _stage(args, run, place.pp, history)
        rows.append(replace(known[place.pp], rank=rank, tp=place.tp, cp=place.cp, dp=place.dp, ep=place.ep))
    return rows


def expect_stages(arguments: Args, *, microbatches: int, env: Mapping[str, Any] | None = None, gpu: str | None = None,
                  container: str | None = None, history: History | None = None, steps: int | None = None,
                  communication: Callable[[Run, int], int] | None = None) -> list[RankExpectation]:
    """One expectation a pipeline stage; `rank` and the coordinates other than `pp` are None."""
    args = prepared(arguments)
    run = replace(read_run(args, microbatches, env, gpu, container), first_step=steps == 1, communication=communication)
    return [_stage(args, run, stage, history) for stage in range(run.sizes.pp)]


def microbatches_of(arguments: Args) -> int | None:
    """Micro-batches a step where batch sizes give them: global over micro-batch and data-parallel size; None where they do not, or grow."""
    args = prepared(arguments)
    if args.get("rampup_batch_size") or any(args.get(name) is None for name in ("global_batch_size", "micro_batch_size")):
        return None
    count, rest = divmod(whole(args, "global_batch_size"), whole(args, "micro_batch_size") * parallel_sizes(args).dp)
    return count if count and not rest else None


def last_rank(arguments: Args) -> int:
    """The rank that logs iterations and memory to TensorBoard."""
    return parallel_sizes(prepared(arguments)).world_size - 1


def read_run(arguments: Args, microbatches: int, env: Mapping[str, Any] | None, gpu: str | None, container: str | None) -> Run:
    """Read and check everything once."""
    args = prepared(arguments)
    sizes, layout, options = parallel_sizes(args), stage_layout(args), read_options(args)
    refuse_shapes(args)
    plan = schedule(sizes.pp, layout.chunks, microbatches, _group_size(args), overlap_experts=options.overlap_experts)
    return Run(read_model(args), options, sizes, layout, plan, environment(env, gpu, container))


def _group_size(args: Args) -> int | None:
    """Micro-batches that a virtual stage runs before the next one; the argument has a longer name on the command line."""
    for name in ("microbatch_group_size_per_vp_stage", "microbatch_group_size_per_virtual_pipeline_stage"):
        if args.get(name) is not None:
            return whole(args, name)
    return None


def _stage(args: Args, run: Run, pp: int, history: History | None) -> RankExpectation:
    """One stage's answer, for all its ranks."""
    stage = stage_bytes(run, pp)
    steady = sum(stage.classes.values())
    top = max(stage.instants, key=lambda instant: instant.bytes)
    kind = kinds(run.model, run.options, run.sizes.pp)
    around = interval(kind, run.env, instant=top.name, unpriced=doubts(args), history=history)
    steady_low, steady_high, peak_low, peak_high = around.around(steady, top.bytes)
    said = tuple(assumptions(args, run.model, run.options, run.env, run.kernel))
    if history and len(history) >= LEAST_HISTORY:
        said += (f"intervals calibrated on {len(history)} runs of yours",)
    return RankExpectation(None, pp, None, None, None, None, stage.parameters, stage.classes, dict(top.classes), steady, steady_low, steady_high,
                           top.bytes, peak_low, peak_high, top.name, said)
