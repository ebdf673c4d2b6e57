"""Write `docs/glossary.md` from `analysis.glossary`. `python docs/make_glossary.py`; a test holds the page to the list."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.glossary import GROUPS, Group, Term


def markdown() -> str:
    """The page."""
    head = "# Glossary\n\nThe words of the field as the app, the reports and these pages use them; written by `docs/make_glossary.py`.\n"
    return "\n".join([head, *map(_group, GROUPS)])


def _group(group: Group) -> str:
    return "\n".join([f"## {group.title}", "", *map(_term, group.terms), ""])


def _term(term: Term) -> str:
    more = f" [More]({term.more})." if term.more else ""
    return f"* **{term.name}**: {term.meaning}{more}"


if __name__ == "__main__":
    Path(__file__).with_name("glossary.md").write_text(markdown(), encoding="utf-8")
