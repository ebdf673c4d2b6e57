"""The expected ledger of a run: bytes of each class on each rank, steady state and peak with 90 % intervals.

    from analysis.expected import expect
    rows = expect(arguments, microbatches=8, env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}, gpu="H100")

`arguments` are Megatron's own names, native or as a dump prints them; `ranks` limits the answer (default: every rank; an empty
tuple is refused). Each row is a frozen `RankExpectation`: coordinates, `classes` (they add up to `steady_allocated_bytes`), `peak_classes`
(they add up to `peak_allocated_bytes` at `peak_instant`), low and high of both, assumptions. `expect_stages` answers once a stage.
Illegal values raise LedgerError with one sentence; options without a price here stand among the assumptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from analysis.expected.environment import environment
from analysis.expected.model import prepared, read_model, read_options
from analysis.expected.rank import RankExpectation
from analysis.expected.stage import Run, StageBytes, stage_bytes
from analysis.theory.arguments import Args, whole
from analysis.theory.inflight import schedule
from analysis.theory.layout import Coordinates, coordinates, parallel_sizes
from analysis.theory.stages import stage_layout


def expect(arguments: Args, *, microbatches: int, env: Mapping[str, Any] | None = None, gpu: str | None = None, ranks: Iterable[int] | None = None,
           container: str | None = None) -> list[RankExpectation]:
    """Every rank's expectation, in the order of `ranks` (default: all). `container` is the name of the software environment, if known."""
    run = read_run(arguments, microbatches, env, gpu, container)
    wanted = range(run.sizes.world_size) if ranks is None else list(ranks)
    known: dict[int, StageBytes] = {}
    rows = []
    for rank in wanted:
        place = coordinates(rank, run.sizes)
        if place.pp not in known:
            known[place.pp] = stage_bytes(run, place.pp)
        rows.append(_row(run, known[place.pp], place.pp, rank, place))
    return rows


def expect_stages(arguments: Args, *, microbatches: int, env: Mapping[str, Any] | None = None, gpu: str | None = None,
                  container: str | None = None) -> list[RankExpectation]:
    """One expectation a pipeline stage; `rank` and the coordinates other than `pp` are None."""
    run = read_run(arguments, microbatches, env, gpu, container)
    return [_row(run, stage_bytes(run, stage), stage, None, None) for stage in range(run.sizes.pp)]


def last_rank(arguments: Args) -> int:
    """The rank that logs iterations and memory to TensorBoard."""
    return parallel_sizes(prepared(arguments)).world_size - 1


def read_run(arguments: Args, microbatches: int, env: Mapping[str, Any] | None, gpu: str | None, container: str | None) -> Run:
    """Read and check everything once."""
    args = prepared(arguments)
    sizes, layout = parallel_sizes(args), stage_layout(args)
    options = read_options(args)
    plan = schedule(sizes.pp, layout.chunks, microbatches, _group_size(args), overlap_experts=options.overlap_experts)
    return Run(read_model(args), options, sizes, layout, plan, environment(env, gpu, container))


def _group_size(args: Args) -> int | None:
    """Micro-batches that a virtual stage runs before the next one; the argument has a longer name on the command line."""
    for name in ("microbatch_group_size_per_vp_stage", "microbatch_group_size_per_virtual_pipeline_stage"):
        if args.get(name) is not None:
            return whole(args, name)
    return None


def _row(run: Run, stage: StageBytes, pp: int, rank: int | None, place: Coordinates | None) -> RankExpectation:
    steady = sum(stage.classes.values())
    top = max(stage.instants, key=lambda instant: instant.bytes)
    tp, cp, dp, ep = (place.tp, place.cp, place.dp, place.ep) if place else (None,) * 4
    return RankExpectation(rank, pp, tp, cp, dp, ep, stage.parameters, stage.classes,
                           dict(top.classes), steady, steady, steady, top.bytes, top.bytes, top.bytes, top.name, ())
