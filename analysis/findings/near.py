"""Rules on nearness: ranks near their limit in steps of high load, reserved memory that climbs, peaks that no training step made, retries."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from analysis.coverage import shown_ranks
from analysis.findings.catalogue import advise
from analysis.findings.model import Finding, Rule, Seen, Severity
from analysis.rows import Near, Rank, Riser, Source
from analysis.steps.fullest import EVERY
from analysis.steps.phase_peaks import LEAST_OVER_RATIO
from analysis.verdict import size_text

_DIAGNOSIS = "methods/headroom.md"
_ASIDE = re.compile(r"checkpoint|load|eval|valid|init|setup", re.IGNORECASE)
"""Phases that are no training step; of other labels that people print nothing is known."""
_TALL = 0.02
"""A staircase is worth a sentence from 2 % of capacity on."""


def _ranks(seen: Seen, near: list[Near]) -> tuple[tuple[int, ...], list[Rank]]:
    numbers = tuple(sorted(one.rank for one in near if one.rank is not None))
    return numbers, [rank for rank in seen.overview.ranks if rank.rank in numbers]


def _named(numbers: tuple[int, ...]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {shown_ranks(numbers)}"


def _places(ranks: list[Rank]) -> tuple[Source, ...]:
    return tuple(rank.peak_source for rank in ranks[:3])


def _hard(seen: Seen) -> Iterator[Finding]:
    groups: dict[str, list[Near]] = defaultdict(list)
    died = {one.rank for one in seen.overview.ooms}
    for one in seen.overview.near_limit:
        if one.kind == "hard" and not (one.rank in died and one.steps == 1):
            groups[one.near].append(one)
    for name, severity in (("stable", "error"), ("occasional", "warning"), ("insufficient", "warning")):
        near = groups.get(name, [])
        if not near:
            continue
        numbers, ranks = _ranks(seen, near)
        worst = min(near, key=lambda one: one.headroom_hard_bytes if one.headroom_hard_bytes is not None else 0)
        advice, useless = advise(seen, _symptom(seen, ranks))
        counted = f"{worst.near_steps} of {worst.steps} steps" if worst.steps else "a step"
        how = {"stable": f"in almost every step that counts ({counted})", "occasional": f"now and then ({counted})",
               "insufficient": "at least once; too few steps are known to say how often"}[name]
        left = "" if worst.headroom_hard_bytes is None else f", the worst with {size_text(worst.headroom_hard_bytes)} left"
        yield Finding(f"near_limit_{name}", _severity(severity), "proven" if name != "insufficient" else "possible",
                      f"{_named(numbers).capitalize()}: live bytes come within the margin of the limit {how}{left}.{_moves(seen)}",
                      _places(ranks), advice, useless)


def _moves(seen: Seen) -> str:
    """That the next one near may be another card than the last."""
    top = seen.overview.fullest
    if top is None or not top.moves:
        return ""
    last, what = top.moved[-1], "steps" if top.rule == EVERY else "steps of high load"
    return (f" The fullest rank moves: {top.moves} time{'s' * (top.moves > 1)} over {top.steps} {what}, "
            f"at step {last.iteration} from rank {last.rank_before} to another card, rank {last.rank}.")


def _severity(name: str) -> Severity:
    return "error" if name == "error" else "warning"


def _symptom(seen: Seen, ranks: list[Rank]) -> str:
    """Which class leads: what stays between steps, or what a step adds on top."""
    kept = [(rank.allocated_bytes or 0, (rank.peak_bytes or 0) - (rank.allocated_bytes or 0)) for rank in ranks]
    return "resident" if kept and sum(state for state, _ in kept) > 2 * sum(hump for _, hump in kept) else "activations"


def _cache(seen: Seen) -> Iterator[Finding]:
    near = [one for one in seen.overview.near_limit if one.kind == "cache"]
    if near:
        numbers, ranks = _ranks(seen, near)
        advice, useless = advise(seen, "fragmentation")
        yield Finding("near_limit_cached", "note", "proven", f"{_named(numbers).capitalize()}: only cached memory comes near the limit. Expect "
                      "retries and slower steps, not death.", _places(ranks), advice, useless)


def _climbing(seen: Seen) -> Iterator[Finding]:
    for kind, severity, symptom in (("fragmentation", "warning", "fragmentation"), ("need", "note", "activations")):
        risers = [one for one in seen.overview.risers if one.kind == kind]
        total: dict[int, int] = defaultdict(int)
        for one in risers:
            total[one.rank] += one.rise_bytes
        capacity = {rank.rank: rank.capacity_bytes for rank in seen.overview.ranks}
        tall = {rank: size for rank, size in total.items() if size >= _TALL * (capacity.get(rank) or 2**62)}
        if not tall:
            continue
        top = max(tall, key=lambda rank: tall[rank])
        steps = [one for one in risers if one.rank == top]
        advice, useless = advise(seen, symptom)
        why = "while the peak of live bytes stayed: free blocks are not reused" if kind == "fragmentation" else "together with the peak of live bytes"
        yield Finding(f"staircase_{kind}", "warning" if severity == "warning" else "note", "proven",
                      f"Reserved memory climbed on {len(tall)} rank{'s' * (len(tall) > 1)}, by {size_text(tall[top])} on rank {top} in {len(steps)} "
                      f"step{'s' * (len(steps) > 1)}, {why}{_with(steps)}.", tuple(one.source for one in steps[:3]), advice, useless)


def _with(steps: list[Riser]) -> str:
    names = list(dict.fromkeys(what for one in steps for what in one.coincided))
    return f"; coincided with {', '.join(names)}" if names else ""


def _masked(seen: Seen) -> Iterator[Finding]:
    for rank in seen.overview.ranks:
        if rank.peak_phase and _ASIDE.search(rank.peak_phase):
            yield Finding("peak_outside_training", "note", "proven", f"The peak of {rank.name} dates from {rank.peak_phase.replace('_', ' ')}, not "
                          "from a training step; a maximum that is never reset hides the steps behind it.", (rank.peak_source,))
            return


def _phases(seen: Seen) -> Iterator[Finding]:
    """A phase whose own peak stands above every training step of its rank: the run can survive training and die there."""
    above = [one for one in seen.overview.phase_peaks
             if one.exact and one.over_bytes is not None and one.over_bytes >= LEAST_OVER_RATIO * (one.training_bytes or 0)]
    if above:
        told = "; ".join(one.sentence for one in above)
        yield Finding("phase_above_training", "note", "proven" if all(one.told_by == "label" for one in above) else "likely",
                      f"Not every peak is a training step's: {told}.", tuple(one.source for one in above[:3]))


def _touched(seen: Seen) -> Iterator[Finding]:
    near = [one for one in seen.overview.near_limit if one.touched_steps]
    if near:
        numbers, ranks = _ranks(seen, near)
        most = max(near, key=lambda one: one.touched_steps or 0)
        advice, useless = advise(seen, "fragmentation")
        sentence = (f"The allocator of {_named(numbers)} had to free its cache and retry, on rank {most.rank} in {most.touched_steps} "
                    f"step{'s' * (most.touched_steps != 1)}: each retry stalls the device.")
        yield Finding("allocator_retries", "warning", "proven", sentence, _places(ranks), advice, useless)


RULES = (
    Rule("near_limit", "Live bytes near the limit: stable, occasional, or seen too little", _DIAGNOSIS, _hard),
    Rule("near_limit_cached", "Cached memory alone near the limit", _DIAGNOSIS, _cache),
    Rule("staircase", "Reserved memory climbs: need or fragmentation", _DIAGNOSIS, _climbing),
    Rule("peak_outside_training", "The peak dates from checkpoint, evaluation or start, and hides training steps", _DIAGNOSIS, _masked),
    Rule("phase_above_training", "A phase that is no plain training step peaks above training", _DIAGNOSIS, _phases),
    Rule("allocator_retries", "The allocator freed its cache and retried", _DIAGNOSIS, _touched),
)
