"""docs/glossary.md is what `analysis.glossary` says today; its links lead somewhere, and no term stands twice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from analysis.glossary import GROUPS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_glossary_page_is_current():
    spec = importlib.util.spec_from_file_location("make_glossary", DOCS / "make_glossary.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "glossary.md").read_text(encoding="utf-8") == module.markdown(), "run `make docs`"


def test_every_link_leads_to_a_page():
    assert [term.more for group in GROUPS for term in group.terms if term.more and not (DOCS / term.more).is_file()] == []


def test_no_term_stands_twice():
    names = [name.strip() for group in GROUPS for term in group.terms for name in term.name.split(",")]
    assert len(names) == len(set(names))
