"""Which names among the arguments that a person wrote are no arguments of Megatron's and move nothing: they may be misspelt.

`recompute_granularty: full` would be answered as no recomputation, without a word. `argument_names.txt` lists what the releases' argument
parsers and the fields of their configurations are called, up to d98e8a64, beside a few of DeepSpeed's and of the files that describe tests. A
release has names that the list does not: a stranger is told, never refused, and only where the answer without it is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from analysis.expected.model import prepared
from analysis.theory.arguments import Args

MOST = 20
"""Names that are asked about; each asks the ledger."""


@cache
def argument_names() -> frozenset[str]:
    """Every name that is known."""
    return frozenset(files("analysis").joinpath("expected", "argument_names.txt").read_text(encoding="utf-8").split())


def strangers(args: Args, answer: Callable[[Args], Any]) -> Iterator[str]:
    """A sentence for each name that Megatron does not have and without which `answer` is the same."""
    known = prepared(args)
    return without_effect([name for name in known if name not in argument_names()], known, answer, of="Megatron's")


def without_effect(names: Sequence[str], given: Args, answer: Callable[[Args], Any], *, of: str) -> Iterator[str]:
    """A sentence for each of these names, not found among the arguments `of` something, without which the answer to what is given is the same."""
    whole = answer(given) if names else None
    for name in names[:MOST]:
        if answer({other: given[other] for other in given if other != name}) == whole:
            yield f"{name} is no argument of {of} and moves nothing in the ledger; check its name"
