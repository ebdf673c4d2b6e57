"""The field's own words, as the pages and reports use them: a sentence or two each, with the page of the documentation that goes further.

`docs/glossary.md` is written from these lists by `docs/make_glossary.py`, and the app shows the same lists: one text, so that a term never means
two things. Words of ours are not here, but for those that a verdict or a table is made of.
"""

from __future__ import annotations

from functools import cache

from analysis.glossary.layout import COMMUNICATION, LAYOUT
from analysis.glossary.limits import LIMITS, OUT_OF_MEMORY, RECORDS
from analysis.glossary.memory import ALLOCATOR, FILLS, THEORIES
from analysis.glossary.model import Group, Term, slug
from analysis.glossary.speed import PRECISION, SPEED

__all__ = ["GROUPS", "Group", "Term", "slug", "term"]

GROUPS: tuple[Group, ...] = (
    Group("What the allocator says", ALLOCATOR),
    Group("Limits and verdicts", LIMITS),
    Group("Out of memory", OUT_OF_MEMORY),
    Group("Two theories", THEORIES),
    Group("Ranks, stages and schedules", LAYOUT),
    Group("What fills a device", FILLS),
    Group("Communication", COMMUNICATION),
    Group("Runs, records and history", RECORDS),
    Group("Speed, where it meets memory", SPEED),
    Group("Symptoms of precision, not of memory", PRECISION),
)


@cache
def _by_slug() -> dict[str, Term]:
    return {name: one for group in GROUPS for one in group.terms for name in one.slugs}


def term(name: str) -> Term | None:
    """The term of this name, or of this name as a link has it; null where there is none."""
    return _by_slug().get(slug(name))
