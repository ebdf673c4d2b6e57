"""Write `docs/glossary.md` from `analysis.glossary`. `python -m docs.make_glossary`; a test holds the page to the list."""

from __future__ import annotations

from pathlib import Path

from analysis.glossary import GROUPS, Group, Term

TARGET = Path(__file__).with_name("glossary.md")
_HEAD = """\
# Glossary

The words of the field as the app, the reports and these pages use them; written by `docs/make_glossary.py`. A link to one is
`glossary.md#soft-headroom`, on the app's page `/glossary?term=soft-headroom`.
"""


def markdown() -> str:
    """The page."""
    return "\n".join([_HEAD, *map(_group, GROUPS)])


def _group(group: Group) -> str:
    return "\n".join([f"## {group.title}", "", *map(_term, group.terms), ""])


def _term(term: Term) -> str:
    anchors = "".join(f'<a id="{name}"></a>' for name in term.slugs)
    more = f" [More]({term.more})." if term.more else ""
    return f"* {anchors}**{term.name}**: {term.meaning}{more}"


if __name__ == "__main__":
    TARGET.write_text(markdown(), encoding="utf-8")
