"""Which generations print this very text for these arguments, with the unknowns (padded vocabulary, micro-batches, ranks) solved for.

The dump lacks the padded vocabulary and the micro-batches. The weights are linear in the vocabulary and printed to 0.01 MiB, so the
text itself fixes it; micro-batches matter only below PP, and data-parallel sizes are few. A candidate counts only if the whole
text comes out, digit by digit: solving cannot make a wrong generation right, it can only leave more than one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from analysis.theory.arguments import Args, native_args, padded_vocabulary, whole
from analysis.theory.formula_arguments import FormulaArguments, formula_arguments
from analysis.theory.generations import GENERATIONS, Generation
from analysis.theory.megatron import MIB, Report, branch_of, report
from analysis.theory.parameters import Crash, count_parameters, weight_and_optimizer_bytes
from analysis.theory.shapes import printed_lines, within
from analysis.theory.text import Block

_SEARCHED_DP = (*range(1, 65), *range(72, 1025, 8), 2048, 4096, 8192, 16384)
_MOST_MICROBATCHES = 1024
_PRINTED_HALF_STEP = 0.00501


@dataclass(frozen=True, slots=True)
class Match:
    """One generation that prints the text: with which arguments, and which of them were solved for."""

    generation: Generation
    said: Report
    arguments: FormulaArguments
    microbatches: int | None
    solved: dict[str, Any]
    whole: bool


@dataclass(frozen=True, slots=True)
class Unknowns:
    """Candidates for what the arguments do not give: micro-batches, data-parallel sizes; `step` is the vocabulary's, None where it is known."""

    microbatches: tuple[int | None, ...]
    data_parallel: tuple[int | None, ...]
    vocabulary_step: int | None


def matches(block: Block, args: Args, microbatches: int | None) -> list[Match]:
    """Every match of the block; lines may be missing only where no generation prints the block as a whole.

    Raises LedgerError for arguments with which nothing can be computed.
    """
    args = native_args(args)
    unknown = unknowns(block, args, microbatches)
    found = list(_search(block, args, unknown))
    if not found and unknown.vocabulary_step:
        found = list(_search(block, args, replace(unknown, vocabulary_step=whole(args, "tensor_model_parallel_size", 1))))
    entire = [match for match in found if match.whole]
    return entire if entire and not block.lone_footprint else found


def unknowns(block: Block, args: Args, microbatches: int | None) -> Unknowns:
    """What has to be searched for these arguments."""
    step = None
    if padded_vocabulary(args) is None:
        step = whole(args, "make_vocab_size_divisible_by", 128) * whole(args, "tensor_model_parallel_size", 1)
    return Unknowns(_microbatches(block, args, microbatches), _data_parallel(args), step)


def _microbatches(block: Block, args: Args, given: int | None) -> tuple[int | None, ...]:
    """The given number, or the one in flight as printed, or every one that would make a difference."""
    pp = whole(args, "pipeline_model_parallel_size", 1)
    if given is not None:
        return (given,)
    if pp == 1 or args.get("virtual_pipeline_model_parallel_size") is not None:
        return (None,)
    if printed := block.figure("in_flight"):
        return (max(int(printed[0]), 1),)
    return (None, *range(1, min(pp, _MOST_MICROBATCHES)))


def _data_parallel(args: Args) -> tuple[int | None, ...]:
    if args.get("world_size") is not None or args.get("data_parallel_size") is not None:
        return (None,)
    if not args.get("use_distributed_optimizer"):
        return (1,)
    return _SEARCHED_DP


def _search(block: Block, args: Args, unknown: Unknowns) -> Iterator[Match]:
    seen: set[str] = set()
    printed = block.figure("weight_and_optimizer")
    for dp in unknown.data_parallel:
        for generation, known in _with_vocabulary(block, args, dp, unknown.vocabulary_step):
            if printed and abs((_weights(generation, known) or 0.0) / MIB - printed[0]) > _PRINTED_HALF_STEP:
                continue
            for microbatches in unknown.microbatches:
                if generation.name in seen:
                    break
                if match := _match(block, generation, known, microbatches):
                    seen.add(generation.name)
                    yield replace(match, solved=_solved(args, match, unknown))


def _weights(generation: Generation, known: FormulaArguments) -> float | None:
    """The weights that would be printed, None where no number is: far cheaper than the whole text, and without them no text comes out."""
    if branch_of(generation, known) not in ("weights_only", "sp_selective", "without_sp"):
        return None
    try:
        return weight_and_optimizer_bytes(generation, known, count_parameters(generation, known))
    except Crash:
        return None


def _with_vocabulary(block: Block, args: Args, dp: int | None, step: int | None) -> Iterator[tuple[Generation, FormulaArguments]]:
    """Each generation with full arguments; an unknown vocabulary gives those that fit its printed weights."""
    given = dict(args) if dp is None else {**args, "data_parallel_size": dp}
    if step is None:
        known, _ = formula_arguments(given)
        yield from ((generation, known) for generation in GENERATIONS)
        return
    base, _ = formula_arguments({**given, "padded_vocab_size": step})
    for generation in GENERATIONS:
        for size in _vocabularies(block, generation, base, step):
            yield generation, replace(base, padded_vocab_size=size)


def _vocabularies(block: Block, generation: Generation, base: FormulaArguments, step: int) -> Iterable[int]:
    """Multiples of `step` for which the printed weights come out; the weights are a straight line in the vocabulary."""
    printed = block.figure("weight_and_optimizer")
    one, two = _weights(generation, base), _weights(generation, replace(base, padded_vocab_size=2 * step))
    if one is None:
        return (step,)
    if printed is None or two is None or two <= one:
        return ()
    low, high = (1 + ((printed[0] + half) * MIB - one) / (two - one) for half in (-_PRINTED_HALF_STEP, _PRINTED_HALF_STEP))
    return (step * count for count in range(max(math.ceil(low), 1), min(math.floor(high), math.ceil(low) + 64) + 1))


def _solved(args: Args, match: Match, unknown: Unknowns) -> dict[str, Any]:
    """The unknowns that the text needed, with the values it fixes."""
    solved: dict[str, Any] = {}
    if match.said.weight_and_optimizer_bytes is None:
        return solved
    if unknown.vocabulary_step:
        solved["padded_vocab_size"] = match.arguments.padded_vocab_size
    if unknown.data_parallel != (None,) and args.get("use_distributed_optimizer"):
        solved["data_parallel_size"] = match.arguments.data_parallel_size
    if len(unknown.microbatches) > 1 and match.said.activation:
        solved["num_microbatches"] = match.microbatches
    return solved


def _match(block: Block, generation: Generation, known: FormulaArguments, microbatches: int | None) -> Match | None:
    """The whole text in verbose or quiet mode, or the block's lines within it."""
    for verbose in (True, False):
        said = report(generation, known, microbatches, verbose=verbose)
        if printed_lines(said.printed_text) == block.texts:
            return Match(generation, said, known, microbatches, {}, True)
    said = report(generation, known, microbatches)
    lines = printed_lines(said.printed_text) if said.raises is None else (said.raises,)
    if block.texts and within(block.texts, lines):
        return Match(generation, said, known, microbatches, {}, lines == block.texts)
    return None
