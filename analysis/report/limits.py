"""The parts of a text report on limits: ranks near theirs, the reserved staircase, out-of-memory errors with case and tips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.coverage import shown_ranks
from analysis.report.lines import places, wrapped
from analysis.rows import Oom, Overview, Riser
from analysis.steps.outlook import outlook
from analysis.verdict import size_text

RANKS_SHOWN = 16


def near_lines(overview: Overview) -> Iterator[str]:
    """Ranks near their limit, with how often and the chance of a step; the reasons they share once."""
    near = sorted((one for one in overview.near_limit if one.kind), key=lambda one: (-(one.near_steps or 0), one.rank or 0))
    if not near:
        return
    yield f"  near the limit, within {size_text(near[0].margin_bytes)} of it:"
    for one in near[:RANKS_SHOWN]:
        chance = "" if one.low is None or one.high is None else f", {one.low:.0%} to {one.high:.0%} of steps at 95 %"
        kind = {"hard": "in use", "cache": "cached"}[one.kind or "hard"]
        yield f"    rank {one.rank:>5}  {one.near:<12} {kind:<7} {one.near_steps} of {one.steps} steps{chance}"
    for reason in dict.fromkeys(one.reason for one in near[:RANKS_SHOWN] if not one.reason.startswith("near in ")):
        yield from wrapped(reason, "    ", "      ")
    if len(near) > RANKS_SHOWN:
        yield f"    and {len(near) - RANKS_SHOWN} more ranks"


def outlook_lines(overview: Overview) -> Iterator[str]:
    """The chance that a rank comes near or dies in as many steps again, or why that is not said."""
    ahead = outlook(overview)
    if not ahead.ranks or not any(one.own_steps for one in overview.near_limit):
        return
    yield f"\nThe next {ahead.steps} steps, if they are like those seen"
    told = sorted((one for one in ahead.ranks if one.refused is None), key=lambda one: (-(one.near_low or 0), -(one.near_high or 0), one.rank))
    alike: dict[str, list[int]] = {}
    for one in told:
        alike.setdefault(f"near the limit {one.near_low:.0%} to {one.near_high:.0%} (95 %), a peak above all seen {one.higher_peak:.0%}",
                         []).append(one.rank)
    for text, ranks in list(alike.items())[:RANKS_SHOWN]:
        yield from wrapped(f"{_ranks(ranks)}: {text}", "  ", "    ")
    refused: dict[str, list[int]] = {}
    for one in ahead.ranks:
        refused.setdefault(one.refused or "", []).append(one.rank)
    for reason, ranks in refused.items():
        if reason:
            yield from wrapped(f"{_ranks(ranks)}: not said, {reason}", "  ", "    ")
    if ahead.tail and ahead.tail.chance is not None:
        yield from wrapped(f"stage {ahead.tail_stage}, a rank and step: live bytes pass {size_text(ahead.tail.limit_bytes)} with chance "
                           f"{ahead.tail.low:.1e} to {ahead.tail.high:.1e} (peaks over threshold, {ahead.tail.excesses} excesses)", "  ", "    ")


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {shown_ranks(tuple(sorted(ranks)))}"


def phase_lines(overview: Overview) -> Iterator[str]:
    """The largest peak of each phase that is no plain training step, beside the training peak of its rank."""
    told = [one for one in overview.phase_peaks if one.exact or (one.over_bytes is not None and one.over_bytes < 0)]
    if told:
        yield "\nPeaks by phase, beside training"
    for one in told:
        yield from wrapped(one.sentence, "  ", "    ")
        yield from places((one.source,), "    ")


def staircase_lines(overview: Overview) -> Iterator[str]:
    """The steps that raised reserved, ranks that rose alike in one line; the largest first, back in the order of steps."""
    if not overview.risers:
        return
    yield "\nReserved staircase: steps that raised what the allocator holds"
    alike: dict[tuple[int, str | None, tuple[str, ...]], list[Riser]] = {}
    for one in overview.risers:
        alike.setdefault((one.iteration, one.kind, one.coincided), []).append(one)
    least = max(one.rise_bytes for one in overview.risers) // 20
    tall = [group for group in alike.values() if max(one.rise_bytes for one in group) >= least]
    largest = sorted(tall, key=lambda group: -max(one.rise_bytes for one in group))[:RANKS_SHOWN]
    for group in sorted(largest, key=lambda group: group[0].iteration):
        yield from wrapped(_riser(group), "  ", "    ")
    if len(alike) > len(largest):
        yield f"  and {len(alike) - len(largest)} smaller"
    yield from places((largest[0][0].source,))


def _riser(group: Sequence[Riser]) -> str:
    first, most = group[0], max(one.rise_bytes for one in group)
    least = min(one.rise_bytes for one in group)
    sizes = size_text(most) if size_text(least) == size_text(most) else f"{size_text(least)} to {size_text(most)}"
    kind = "no peak to compare" if first.kind is None else f"{first.kind}: the peak {'rose' if first.kind == 'need' else 'did not rise'} with it"
    ranks = tuple(sorted(one.rank for one in group))
    when = f"; with {', '.join(first.coincided)}" if first.coincided else ""
    return f"iteration {first.iteration}, rank{'s' * (len(ranks) > 1)} {shown_ranks(ranks)}: +{sizes}, {kind}{when}"


def oom_lines(overview: Overview) -> Iterator[str]:
    """Each error: its numbers, the case and why, and which tips of the message help."""
    if not overview.ooms:
        return
    yield "\nOut of memory"
    for one in overview.ooms[:RANKS_SHOWN]:
        who = f"rank {one.rank}" if one.rank is not None else one.rank_label or "rank not told"
        numbers = ", ".join(f"{name.removesuffix('_bytes').replace('_', ' ')} {size_text(size)}" for name, size in one.numbers.items())
        yield from wrapped(f"{who}: {numbers or 'no number in the message'}", "  ", "    ")
        yield from wrapped(f"case {one.case}: {one.reason}" + (f"; in {one.frame}" if one.frame else ""), "    ", "    ")
        yield from _more(one)
        yield from places((one.source,), "    ")
    if len(overview.ooms) > RANKS_SHOWN:
        yield f"  and {len(overview.ooms) - RANKS_SHOWN} more"


def _more(one: Oom) -> Iterator[str]:
    if one.snapshot:
        yield from wrapped(f"snapshot, joined by {one.snapshot.joined}: {one.snapshot.said}", "    ", "      ")
        yield from places((one.snapshot.source,), "    ")
    elif "snapshot" in one.missing:
        yield from wrapped("which kind of cache it was is not in the message: a memory snapshot of that rank tells", "    ", "      ")
    if one.first_failure:
        yield "    the first rank of the job that failed"
    for tip in one.tips:
        yield from wrapped(f"{tip.setting}: {tip.status}, {tip.reason}", "    ", "      ")
