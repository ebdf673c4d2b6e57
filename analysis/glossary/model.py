"""What a term of the glossary is, and the name by which an address or a page of the documentation points at it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One term, or several that explain one another, with commas; `more` is a page below `docs/`, empty where nothing goes further."""

    name: str
    meaning: str
    more: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Each of its names."""
        return tuple(name.strip() for name in self.name.split(","))

    @property
    def slugs(self) -> tuple[str, ...]:
        """Each name as a link has it: `soft headroom` is `soft-headroom`."""
        return tuple(slug(name) for name in self.names)


@dataclass(frozen=True, slots=True)
class Group:
    """Terms that belong together."""

    title: str
    terms: tuple[Term, ...]


def slug(name: str) -> str:
    """A name as a link has it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
