"""The glossary page shows every term, and finds a word."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis.glossary import GROUPS, term
from app_pages._words import told

PAGES = sorted((Path(__file__).resolve().parents[1] / "app_pages").glob("*.py"))
PAGE = str(next(path for path in PAGES if path.name == "glossary.py"))


def test_it_shows_every_term():
    page = AppTest.from_file(PAGE, default_timeout=60).run()
    assert not page.exception
    told = "\n".join(part.value for part in page.markdown)
    assert [term.name for group in GROUPS for term in group.terms if term.name not in told] == []


def test_it_finds_a_word_and_says_where_there_is_none():
    page = AppTest.from_file(PAGE, default_timeout=60).run()
    page.text_input(key="glossary").set_value("Roofline").run()
    told = "\n".join(part.value for part in page.markdown)
    assert "bandwidth" in told
    assert "expandable" not in told
    page.text_input(key="glossary").set_value("no such word").run()
    assert "No term" in page.info[0].value


def test_a_link_shows_its_term_above_the_others():
    page = AppTest.from_file(PAGE, default_timeout=60)
    page.query_params["term"] = "hard-headroom"
    page.run()
    assert not page.exception
    assert page.markdown[0].value.startswith("**hard headroom**: Capacity minus outside minus peak active")
    assert page.caption[0].value == "More in docs/methods/headroom.md"


def test_a_link_to_no_term_says_so_as_text():
    page = AppTest.from_file(PAGE, default_timeout=60)
    page.query_params["term"] = "**bold** <b>"
    page.run()
    assert not page.exception
    assert "no term here" in page.warning[0].value
    assert "**bold**" not in page.warning[0].value


def test_each_word_that_a_page_explains_is_a_term():
    calls = [call for path in PAGES for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("section", "told")]
    words = [part.value for call in calls for part in call.args[getattr(call.func, "id", "") == "section":] if isinstance(part, ast.Constant)]
    assert len(words) >= 25
    assert [word for word in words if term(word) is None] == []
    assert "[Glossary](glossary?term=soft-headroom)" in told("soft headroom")
    with pytest.raises(KeyError):
        told("no such word")
