"""The terms of a formula as lines for a terminal: name and size, then the expression in symbols and with the run's numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from analysis.theory.terms import Part, Term, symbols_of

GIB = 2**30
WIDTH = 98
_PARTS: tuple[Part, ...] = ("weight_and_optimizer", "activation")


def term_lines(found: Sequence[Term], indent: str = "", *, least: float = 0.0) -> Iterator[str]:
    """Each part with its sum, and under it its terms, the largest first; those below the share `least` on one line, the symbols at the end."""
    for part in _PARTS:
        own = sorted((term for term in found if term.part == part), key=lambda term: -term.bytes)
        total = math.fsum(term.bytes for term in own)
        if own:
            yield _sized(indent, part, total)
        small = [term for term in own if term.bytes < least * total]
        for term in own[:len(own) - len(small)]:
            yield _sized(f"{indent}  ", term.name, term.bytes)
            yield from _wrapped(f"{term.symbols} = {term.numbers}", f"{indent}    ")
        if small:
            yield _sized(f"{indent}  ", " and ".join(term.name for term in small), math.fsum(term.bytes for term in small))
    if found:
        meanings = ", ".join(f"{name} {meaning}" for name, meaning in symbols_of(found).items())
        yield from _wrapped(meanings, indent)


def _sized(indent: str, name: str, size: float) -> str:
    return f"{indent + name.replace('_', ' '):<40}{size:>20,.0f} B {size / GIB:>10.3f} GiB"


def _wrapped(text: str, indent: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False, break_long_words=False)
