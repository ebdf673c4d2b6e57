"""Where a printed footprint and the arguments of its run do not agree, each with the line and the argument that show it.

Some arguments are printed before Megatron changes them, some logs join two runs, and a fork may divide by another unit. An argument that
must be set aside before any generation prints the text is named with its value and with what the text wants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.theory.arguments import Args, padded_vocabulary
from analysis.theory.consistency import contradictions
from analysis.theory.formula_arguments import formula_arguments
from analysis.theory.generations import GENERATIONS
from analysis.theory.megatron import MIB, report
from analysis.theory.solve import Match
from analysis.theory.text import Block
from ingest.errors import LedgerError


@dataclass(frozen=True, slots=True)
class Disagreement:
    """`kind` branch, argument, mutated_argument, units, sum or arguments; `line` of the text and `argument_line` of the dump show it."""

    kind: str
    sentence: str
    argument: str | None = None
    value: Any = None
    line: int | None = None
    argument_line: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """Arguments with one of them set aside or changed."""

    args: dict[str, Any]
    microbatches: int | None
    argument: str
    value: Any

    def disagreement(self, block: Block, match: Match) -> Disagreement:
        """What the text wants instead."""
        last = block.lines[-1].number
        if self.argument == "num_microbatches":
            return Disagreement("argument", f"the text is printed with {match.microbatches} micro-batches in flight, not {self.value}", self.argument,
                                self.value, block.line_of("in-flight") or last)
        wanted = match.solved.get(self.argument, self.args.get(self.argument))
        if wanted is None:
            wanted = getattr(match.arguments, self.argument, None)
        said = f"the arguments say {self.argument} is {self.value}; the text comes out with {wanted}"
        return Disagreement("argument", said, self.argument, self.value, last)


def relaxed(args: Args, microbatches: int | None, *, solvable: bool) -> Iterator[Attempt]:
    """One argument at a time set aside: switches are turned, and sizes solved for where the text has lines enough to fix them (`solvable`)."""
    given = dict(args)
    if microbatches is not None:
        yield Attempt(given, None, "num_microbatches", microbatches)
    vocabulary = padded_vocabulary(args)
    if vocabulary is not None and solvable:
        yield Attempt({**given, "padded_vocab_size": None, "vocab_size": None}, microbatches, "padded_vocab_size", vocabulary)
    for name in ("sequence_parallel", "use_distributed_optimizer", "group_query_attention", "swiglu", "untie_embeddings_and_output_weights"):
        yield Attempt({**given, name: not given.get(name)}, microbatches, name, given.get(name))
    for value in ("selective", None):
        if given.get("recompute_granularity") != value:
            yield Attempt({**given, "recompute_granularity": value}, microbatches, "recompute_granularity", given.get("recompute_granularity"))
    size = "data_parallel_size" if given.get("data_parallel_size") else "world_size"
    if solvable and given.get(size):
        yield Attempt({**given, "world_size": None, "data_parallel_size": None}, microbatches, size, given[size])


def disagreements(block: Block, args: Args, microbatches: int | None, matched: Sequence[Match], branch: str) -> list[Disagreement]:
    """Everything that does not agree."""
    found = [*_branch(block, args, branch), *_mutated(args), *_sums(block), *_arguments(args)]
    if not matched:
        found += _nearest(block, args, microbatches)
    return found


def with_lines(found: Sequence[Disagreement], lines: Mapping[str, int]) -> list[Disagreement]:
    """Each with the line where its argument was printed, if that is known."""
    return [replace(one, argument_line=lines.get(one.argument or "")) for one in found]


def _branch(block: Block, args: Args, branch: str) -> Iterator[Disagreement]:
    """The way the arguments should have gone, against the way the text went."""
    with_sp = bool(args.get("sequence_parallel")) and args.get("recompute_granularity") == "selective"
    if branch in (("without_sp", "weights_only") if with_sp else ("sp_selective",)):
        said = f"sequence_parallel {args.get('sequence_parallel')} and recompute_granularity {args.get('recompute_granularity')}"
        sentence = f"arguments say {said}, the text is of the branch {branch}"
        yield Disagreement("branch", sentence, "sequence_parallel", args.get("sequence_parallel"), block.lines[-1].number)


def _mutated(args: Args) -> Iterator[Disagreement]:
    groups, heads = args.get("num_query_groups"), args.get("num_attention_heads")
    if not args.get("group_query_attention") and groups is not None and groups != heads:
        yield Disagreement("mutated_argument", f"num_query_groups is printed as {groups}; without grouped-query attention the formula uses {heads}, "
                           "num_attention_heads", "num_query_groups", groups)


def _sums(block: Block) -> Iterator[Disagreement]:
    """Figures of one block that must add up."""
    for total, parts, step in (("total", ("weight_and_optimizer", "activation"), 0.0151),
                               ("total_billions", ("layers_billions", "mtp_billions", "embedding_billions"), 0.0201)):
        whole, figures = block.figure(total), [block.figure(part) for part in parts]
        known = [figure[0] for figure in figures if figure]
        if whole and figures[0] and figures[-1] and abs(whole[0] - sum(known)) > step:
            yield Disagreement("sum", f"{total} {whole[0]:g} is not the sum of its parts, {sum(known):g}: torn or merged lines", line=whole[1])


def _arguments(args: Args) -> Iterator[Disagreement]:
    if (args.get("tensor_model_parallel_size") or 1) == 1 and args.get("sequence_parallel"):
        yield Disagreement("arguments", "sequence_parallel is True without tensor parallelism; Megatron sets it to False", "sequence_parallel", True)
    for one in contradictions(args):
        yield Disagreement("arguments", one.sentence, one.argument, one.value)


def _nearest(block: Block, args: Args, microbatches: int | None) -> Iterator[Disagreement]:
    """The generation whose weights come nearest, or a unit that would explain them."""
    printed = block.figure("weight_and_optimizer")
    try:
        known, _ = formula_arguments(args)
    except LedgerError:
        return
    said = [(report(generation, known, microbatches).weight_and_optimizer_bytes, generation.name) for generation in GENERATIONS]
    weights = [(bytes_, name) for bytes_, name in said if bytes_]
    if printed is None or not weights:
        return
    for bytes_, name in weights:
        if abs(bytes_ / 1e6 - printed[0]) < 0.00501:
            yield Disagreement("units", f"the printed figure is {name}'s in units of 1,000,000 bytes; Megatron's MB is 1,048,576", line=printed[1])
            return
    bytes_, name = min(weights, key=lambda one: abs(one[0] - printed[0] * MIB))
    said_here = f"nearest is {name}: it would print weight and optimizer={bytes_ / MIB:.2f} MB, the text has {printed[0]:.2f}"
    yield Disagreement("argument", said_here, line=printed[1])
