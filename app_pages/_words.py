"""What a heading says of the field's words in it: their meaning when the reader points at it, and the way to the glossary."""

from __future__ import annotations

from analysis.glossary import slug, term


def told(*names: str) -> str:
    """The meanings of terms of the glossary, each with a link to it; the names are ours, so one that is not there is a defect."""
    parts = []
    for name in names:
        found = term(name)
        if found is None:
            raise KeyError(f"{name!r} is no term of the glossary")
        parts.append(f"**{name}**: {found.meaning} [Glossary](glossary?term={slug(name)})")
    return "\n\n".join(parts)
