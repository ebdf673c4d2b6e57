"""The branch card: which program printed a theoretical footprint, proven from its text and, where known, its arguments.

Evidence comes in this order: the marker line, the shape of the lines, the arguments, and arithmetic over every generation with
its unknowns solved for. Only arithmetic that reproduces the whole text, digit by digit, narrows generations that share a shape; the
date of the log or a version string would not (releases were cut from branches). What the text does not decide stays undecided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from analysis.theory.activation import with_sp, without_sp
from analysis.theory.arguments import Args, native_args
from analysis.theory.disagreement import Disagreement, disagreements, relaxed, with_lines
from analysis.theory.formula_arguments import formula_arguments
from analysis.theory.generations import BY_NAME, GENERATIONS
from analysis.theory.leftout import LeftOut, left_out, said_for
from analysis.theory.megatron import MARKERS, Branch, report
from analysis.theory.shapes import speakers
from analysis.theory.solve import Match, matches
from analysis.theory.terms import Term, activation_terms, terms
from analysis.theory.text import Block, blocks

Confidence = Literal["proven", "solved", "contradicted", "shape", "none"]
"""proven: the whole text, with every argument given; solved: with unknowns solved for or lines missing; contradicted: only once an argument is
set aside, or not at all; shape: the lines alone decide the branch; none: undecided."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason: marker, shape, arguments or arithmetic; `line` is 1-based in the text, None where no line shows it."""

    kind: Literal["marker", "shape", "arguments", "arithmetic"]
    sentence: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class OtherBranch:
    """What the formula's other branch says for the same arguments, with its terms; bytes are None where it prints none."""

    branch: Branch
    activation_bytes: float | None
    total_bytes: float | None
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """The branch that was applied, the generations that print this very text, the releases that carry them, and why.

    `terms` are the formula's addends as the newest of these generations counts them; each part's sum is `weight_and_optimizer_bytes` or
    `activation_bytes`, the value behind the printed digits.
    """

    branch: Branch | Literal["undecided"]
    generations: tuple[str, ...]
    releases: tuple[str, ...]
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    contradictions: tuple[Disagreement, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    other_branch: OtherBranch | None = None
    solved: dict[str, Any] = field(default_factory=dict)
    weight_and_optimizer_bytes: float | None = None
    activation_bytes: float | None = None
    terms: tuple[Term, ...] = ()


def branch_card(text: str, args: Args | None = None, microbatches: int | None = None, *, argument_lines: Mapping[str, int] | None = None) -> Card:
    """Judge the last block of a text; `argument_lines` says where an argument was printed.

    Without arguments the branch is what the lines decide, else `undecided`. Raises LedgerError where arguments are given that
    nothing can be computed with.
    """
    found = blocks(text)
    if not found:
        return _nothing_printed(args)
    block = found[-1]
    if block.foreign:
        evidence = Evidence("shape", f"{block.foreign!r} is no line of Megatron-LM: another program printed this footprint", block.lines[-1].number)
        return Card("undecided", (), (), "none", (evidence,))
    shaped = _by_shape(block, len(found))
    if args is None:
        return shaped
    native = native_args(args)
    matched, set_aside = _matched(block, native, microbatches)
    noted = with_lines([*set_aside, *disagreements(block, native, microbatches, matched, _branch(matched) or shaped.branch)], argument_lines or {})
    if not matched:
        return _unmatched(shaped, noted)
    return _from_matches(block, native, shaped, matched, set_aside, noted)


def _nothing_printed(args: Args | None) -> Card:
    """No footprint at all: which generations are silent for these arguments; a log that was filtered looks the same, so nothing is decided."""
    evidence = [Evidence("shape", "no line of a theoretical footprint: none was printed, or it was not logged")]
    silent: tuple[str, ...] = ()
    if args is not None:
        given = {name: value for name, value in args.items() if value is not None}
        known, _ = formula_arguments({"padded_vocab_size": 1, "data_parallel_size": 1, **given})
        silent = tuple(one.name for one in GENERATIONS if report(one, known, None).printed_text is None)
        evidence.append(Evidence("arguments", f"for these arguments nothing is printed by {', '.join(silent)}" if silent else
                                 "for these arguments every generation prints one"))
    return Card("undecided", silent, _releases(silent), "none", tuple(evidence))


def _matched(block: Block, args: Args, microbatches: int | None) -> tuple[list[Match], list[Disagreement]]:
    """Matches as asked, else with the one argument set aside that keeps the text from coming out."""
    found = matches(block, args, microbatches)
    if found:
        return found, []
    for attempt in relaxed(args, microbatches, solvable=len(block.lines) > 1):
        if found := matches(block, attempt.args, attempt.microbatches):
            return found, [attempt.disagreement(block, found[0])]
    return [], []


def _by_shape(block: Block, number_of_blocks: int) -> Card:
    """The card of the lines alone."""
    known = speakers(block)
    branches = {branch for _, branch in known}
    evidence = [Evidence("marker", f"marker line of the branch {branch}", line) for text, branch in MARKERS.items()
                if (line := block.line_of(text)) and (text in block.texts)]
    generations = tuple(generation.name for generation in GENERATIONS if generation.name in {name for name, _ in known})
    if not known:
        evidence.append(Evidence("shape", "no generation of Megatron-LM prints these lines", block.lines[0].number))
    else:
        evidence.append(Evidence("shape", f"lines of this shape are printed by {', '.join(generations)}, in branch {' or '.join(sorted(branches))}",
                                 block.lines[0].number))
    if number_of_blocks > 1:
        evidence.append(Evidence("shape", f"the text has {number_of_blocks} blocks; the last one is judged", block.lines[0].number))
    decided = branches.pop() if len(branches) == 1 else "undecided"
    return Card(decided, generations, _releases(generations), "none" if decided == "undecided" else "shape", tuple(evidence))


def _from_matches(block: Block, args: Args, shaped: Card, matched: list[Match], set_aside: list[Disagreement], noted: list[Disagreement]) -> Card:
    names = {match.generation.name for match in matched}
    generations = tuple(generation.name for generation in GENERATIONS if generation.name in names)
    newest = matched[-1]
    how = "the whole text" if newest.whole else f"the {len(block.lines)} line(s) that are here"
    evidence = [*shaped.evidence, Evidence("arithmetic", f"{how} comes out of {', '.join(generations)} for these arguments, of no other generation",
                                           block.lines[-1].number)]
    if newest.solved:
        evidence.append(Evidence("arithmetic", "solved from the text: " + ", ".join(f"{name} = {value}" for name, value in newest.solved.items())))
    branch = _branch(matched)
    said = said_for(newest.generation, newest.said, newest.arguments, args, newest.microbatches)
    confidence: Confidence = "contradicted" if set_aside else "solved" if newest.solved or not newest.whole else "proven"
    return Card(branch or "undecided", generations, _releases(generations), confidence if branch else "none", tuple(evidence), tuple(noted),
                tuple(left_out(said)), _other(newest), newest.solved, newest.said.weight_and_optimizer_bytes, newest.said.activation_bytes,
                terms(newest.generation, newest.arguments, newest.microbatches, newest.said))


def _unmatched(shaped: Card, noted: list[Disagreement]) -> Card:
    """No generation prints this text for these arguments: the lines alone speak, and the arguments are in doubt."""
    evidence = (*shaped.evidence, Evidence("arithmetic", "no generation prints these numbers for these arguments"))
    confidence: Confidence = "none" if shaped.branch == "undecided" else "contradicted"
    return Card(shaped.branch, shaped.generations, shaped.releases, confidence, evidence, tuple(noted))


def _branch(matched: list[Match]) -> Branch | None:
    branches = {match.said.branch for match in matched}
    return branches.pop() if len(branches) == 1 else None


def _releases(generations: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(release for name in generations for release in BY_NAME[name].releases)


def _other(match: Match) -> OtherBranch | None:
    """The branch not taken: the formula with SP, or what stands outside it in this generation."""
    said, weights = match.said, match.said.weight_and_optimizer_bytes
    if weights is None:
        return None
    if said.branch != "sp_selective":
        return _other_branch(match, "sp_selective", weights, with_sp(match.generation, match.arguments, match.microbatches).total_bytes)
    if match.generation.outside != "without_sp":
        return OtherBranch(match.generation.outside, None, None)
    return _other_branch(match, "without_sp", weights, without_sp(match.arguments, match.microbatches).total_bytes)


def _other_branch(match: Match, branch: Branch, weights: float, activation: float) -> OtherBranch:
    found = activation_terms(match.generation, match.arguments, match.microbatches, branch, activation)
    return OtherBranch(branch, activation, weights + activation, found)
