"""What a block's shape alone proves: which generations print such lines, and in which branch.

The catalogue is not written down: it is what the model of the formula itself prints, with the numbers taken out, over the
few arguments that change which lines appear. So it cannot drift from the model. A block with lines missing (a grep, a
torn log) is held against every catalogued shape that contains its lines in order; where both branches do, nothing is decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product

from analysis.theory.formula_arguments import FormulaArguments, formula_arguments
from analysis.theory.generations import GENERATIONS
from analysis.theory.megatron import Branch, report
from analysis.theory.text import Block, normal, shape

Speaker = tuple[str, Branch]
"""A generation's name, and the branch it was in."""

_SMALL = {"hidden_size": 8, "num_layers": 4, "num_attention_heads": 2, "seq_length": 8, "micro_batch_size": 1,
          "padded_vocab_size": 8, "world_size": 4}


@cache
def catalogue() -> dict[tuple[str, ...], frozenset[Speaker]]:
    """Every shape that can be printed, and who prints it."""
    shapes: dict[tuple[str, ...], set[Speaker]] = {}
    for a, generation, verbose in product(_variants(), GENERATIONS, (True, False)):
        said = report(generation, a, 1, verbose=verbose)
        lines = printed_lines(said.printed_text) or ((said.raises,) if said.raises else ())
        if lines:
            shapes.setdefault(shape(lines), set()).add((generation.name, said.branch))
    return {lines: frozenset(speakers) for lines, speakers in shapes.items()}


def speakers(block: Block) -> frozenset[Speaker]:
    """Who may have printed this block, by its lines alone."""
    seen = shape(block.texts)
    whole = catalogue().get(seen, frozenset())
    if whole and not block.lone_footprint:
        return whole
    return frozenset(speaker for lines, known in catalogue().items() if within(seen, lines) for speaker in known)


def printed_lines(text: str | None) -> tuple[str, ...]:
    """A printed text as its lines, blanks normalised and empty lines left out."""
    return tuple(normal(line) for line in (text or "").splitlines() if line.strip())


def within(part: Iterable[str], whole: Iterable[str]) -> bool:
    """Whether the lines of `part` stand in `whole` in this order."""
    rest = iter(whole)
    return all(any(line == other for other in rest) for line in part)


def _variants() -> list[FormulaArguments]:
    """Arguments that between them make every line appear and disappear."""
    found = []
    for pp, vpp, mtp, sp, hybrid in product((1, 2), (None, 2), (None, 1), (True, False), (False, True)):
        found.append(formula_arguments({
            **_SMALL, "pipeline_model_parallel_size": pp, "virtual_pipeline_model_parallel_size": vpp, "mtp_num_layers": mtp, "sequence_parallel": sp,
            "recompute_granularity": "selective", "is_hybrid_model": hybrid, "hybrid_layer_pattern": "M*" if hybrid else None})[0])
    return found
