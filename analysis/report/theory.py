"""The last stage's head and the formula's other branch as lines of a report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.report.lines import wrapped
from analysis.rows import Overview
from analysis.theory.branch import Card
from analysis.theory.last_stage import LastStage
from analysis.verdict import size_text


def other_branch_lines(card: Card) -> Iterator[str]:
    """What the branch that was not taken says."""
    other = card.other_branch
    if other is None:
        return
    if other.total_bytes is None:
        yield from wrapped(f"the other branch ({other.branch}) prints no activation", "  ")
        return
    said = f"the other branch ({other.branch}) would have said activation {size_text(other.activation_bytes)}, total {size_text(other.total_bytes)}"
    yield from wrapped(said, "  ", "    ")


def last_stage_lines(overview: Overview) -> Iterator[str]:
    """Verdict, prediction with its parts, and what stays after a step; nothing where the run is not a pipeline or nothing was measured."""
    found = overview.logits
    if found is None or found.neighbour_stage is None:
        return
    yield "\nLast stage: output weight, logits and loss"
    yield from wrapped(f"{found.verdict.replace('_', ' ')}: {found.reason}", "  ", "    ")
    for part in found.parts:
        if part.low_bytes or part.high_bytes:
            yield f"    {part.name.replace('_', ' ') + ', ' + part.when:<44}{range_text(part.low_bytes, part.high_bytes):>30}"
    yield from _steady(found)
    if found.assumptions:
        yield from wrapped("assumed: " + "; ".join(found.assumptions), "  ", "    ")


def range_text(low: int | None, high: int | None) -> str:
    """A range of bytes for a reader, one size where both ends read alike."""
    first, second = size_text(low), size_text(high)
    return first if first == second else f"{first} to {second}"


def _steady(found: LastStage) -> Iterator[str]:
    if found.steady_difference_bytes is not None:
        measured, expected = size_text(found.steady_difference_bytes), range_text(found.steady_low_bytes, found.steady_high_bytes)
        said = f"after a step the last stage keeps {measured} more than stage {found.neighbour_stage}; weights and optimizer say {expected}"
        yield from wrapped(said, "  ", "    ")
