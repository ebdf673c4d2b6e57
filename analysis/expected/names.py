"""Which names among the arguments that a person wrote are no arguments of Megatron's and move nothing: they may be misspelt.

`recompute_granularty: full` would be answered as no recomputation, without a word. `argument_names.txt` lists what the releases' argument
parsers and the fields of their configurations are called, up to d98e8a64, beside a few of DeepSpeed's and of the files that describe tests. A
release has names that the list does not: a stranger is told, never refused, and only where the answer without it is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

from analysis.expected.model import prepared
from analysis.theory.arguments import Args

MOST = 20
"""Strangers that are asked about and told; each asks the ledger."""


@cache
def argument_names() -> frozenset[str]:
    """Every name that is known."""
    return frozenset(files("analysis").joinpath("expected", "argument_names.txt").read_text(encoding="utf-8").split())


def strangers(args: Args, answer: Callable[[Args], Any]) -> Iterator[str]:
    """A sentence for each unknown name without which `answer` is the same."""
    known = prepared(args)
    unknown = islice((name for name in known if name not in argument_names()), MOST)
    for name in unknown:
        if answer({other: known[other] for other in known if other != name}) == answer(known):
            yield f"{name} is no argument of Megatron's and moves nothing in the ledger; check its name"
