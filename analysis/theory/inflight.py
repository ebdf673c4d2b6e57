"""How many micro-batches are alive on a stage at its peak, and of which chunks.

Source: `schedules.py` of Megatron-Core, walked. A unit is one chunk of one micro-batch. The textbook penalty of interleaving,
1 + (p-1)/(p v), is rank 0's alone; the last stage holds p - (p-1)/v stages' worth, not one micro-batch. Where chunks
differ in size the count at the peak is not enough, so the schedule itself is walked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.errors import LedgerError


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pipeline schedule: PP stages, chunks a stage, micro-batches a step, micro-batches a group of one virtual stage."""

    pp: int
    chunks: int
    microbatches: int
    group: int
    overlap_experts: bool = False


def schedule(pp: int, chunks: int, microbatches: int, group: int | None = None, *, overlap_experts: bool = False) -> Schedule:
    """A checked schedule; `group` is microbatch_group_size_per_vp_stage (default PP). Raises LedgerError where Megatron refuses."""
    if microbatches < 1:
        raise LedgerError(f"num_microbatches is {microbatches}; at least 1 would fit")
    group = pp if group is None else group
    if chunks > 1:
        if not pp <= group <= microbatches:
            raise LedgerError(f"argument microbatch_group_size_per_vp_stage is {group}; from PP {pp} up to num_microbatches {microbatches} would fit")
        if 0 < microbatches % group < pp:
            raise LedgerError(f"num_microbatches is {microbatches}: the last group of {microbatches % group} is smaller than PP {pp}; "
                              f"a multiple of {group}, or a rest of at least {pp}, would fit")
    return Schedule(pp, chunks, microbatches, group, overlap_experts)


def peak_units(plan: Schedule, stage: int) -> int:
    """Chunk-micro-batches alive at the peak of a stage."""
    if plan.pp == 1:
        return min(1 + int(plan.overlap_experts), plan.microbatches) * plan.chunks
    return min(_warm_up(plan, stage) + 1, plan.microbatches * plan.chunks)


def peak_stages(plan: Schedule, stage: int) -> float:
    """The same in units of a whole stage's activation."""
    return peak_units(plan, stage) / plan.chunks


def dual_pipe(pp: int) -> tuple[int, int]:
    """DualPipe, which Megatron-LM does not have: stage units alive on every rank (1F1B's first stage has `pp`), and copies of the parameters."""
    return pp + 1, 2


def heaviest_mix(plan: Schedule, stage: int, chunk_bytes: Sequence[float]) -> tuple[float, tuple[int, ...]]:
    """Largest bytes alive over the schedule when chunk c of one micro-batch keeps `chunk_bytes[c]`, and the counts by chunk then."""
    alive, best, mix = [0] * plan.chunks, -1.0, (0,) * plan.chunks
    for chunk, step in _events(plan, stage):
        alive[chunk] += step
        total = sum(count * size for count, size in zip(alive, chunk_bytes, strict=True))
        if total > best:
            best, mix = total, tuple(alive)
    return best, mix


def _warm_up(plan: Schedule, stage: int) -> int:
    """Forwards before the first backward's own forward."""
    extra = int(plan.overlap_experts)
    if plan.chunks == 1:
        return plan.pp - stage - 1 + extra
    return 2 * (plan.pp - 1 - stage) + (plan.chunks - 1) * plan.group + extra


def _events(plan: Schedule, stage: int) -> list[tuple[int, int]]:
    """(chunk, +1 forward or -1 backward) in the order of the stage's schedule."""
    total = plan.microbatches * plan.chunks
    forwards = _table(plan)
    backwards = [plan.chunks - 1 - chunk for chunk in forwards]
    warm_up = peak_units(plan, stage) - 1 if plan.pp > 1 else peak_units(plan, stage) // plan.chunks - 1
    warm_up = max(min(warm_up, total), 0)
    events = [(chunk, 1) for chunk in forwards[:warm_up]]
    for step in range(total - warm_up):
        events += [(forwards[warm_up + step], 1), (backwards[step], -1)]
    return events + [(chunk, -1) for chunk in backwards[total - warm_up:]]


def _table(plan: Schedule) -> list[int]:
    """Chunk of the k-th forward: groups of micro-batches run through every chunk before the next group."""
    chunks: list[int] = []
    for start in range(0, plan.microbatches, plan.group):
        size = min(plan.group, plan.microbatches - start)
        chunks += [chunk for chunk in range(plan.chunks) for _ in range(size)]
    return chunks


def walk(plan: Schedule, stage: int) -> list[tuple[int, int]]:
    """(chunk, +1 forward or -1 backward) in the order in which a stage runs them."""
    return _events(plan, stage)
