"""docs/glossary.md is what `analysis.glossary` says today; no term stands twice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from analysis.glossary import GROUPS, term

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_glossary_page_is_current():
    spec = importlib.util.spec_from_file_location("make_glossary", DOCS / "make_glossary.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "glossary.md").read_text(encoding="utf-8") == module.markdown(), "run `make docs`"


def test_no_term_stands_twice():
    slugs = [slug for group in GROUPS for one in group.terms for slug in one.slugs]
    assert len(slugs) == len(set(slugs))


def test_the_terms_people_ask_for_are_there():
    wanted = (
        "active parameters", "total parameters", "CTA criterion for fusion", "roofline", "swamping", "allocated", "reserved", "active",
        "inactive split", "hard headroom", "soft headroom", "stable", "occasional", "insufficient", "interleaved schedule", "in flight", "SP",
        "selective recompute", "ZeRO", "distributed optimizer", "MTP", "ETP", "EDP", "outside torch", "expandable segments")
    assert [name for name in wanted if term(name) is None] == []


def test_a_term_is_found_by_each_of_its_names():
    assert term("soft headroom") is term("Soft-Headroom") is not None
    assert term("occasional") is term("clear")
    assert term("nothing") is None


def test_each_meaning_is_a_sentence():
    assert [one.name for group in GROUPS for one in group.terms if not one.meaning.endswith(".") or len(one.meaning) > 330] == []
