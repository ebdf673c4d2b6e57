"""The glossary page shows every term, and finds a word."""

from __future__ import annotations

from pathlib import Path

from streamlit.testing.v1 import AppTest

from analysis.glossary import GROUPS

PAGE = str(Path(__file__).resolve().parents[1] / "app_pages" / "glossary.py")


def test_it_shows_every_term():
    page = AppTest.from_file(PAGE).run()
    assert not page.exception
    told = "\n".join(part.value for part in page.markdown)
    assert [term.name for group in GROUPS for term in group.terms if term.name not in told] == []


def test_it_finds_a_word_and_says_where_there_is_none():
    page = AppTest.from_file(PAGE).run()
    page.text_input(key="glossary").set_value("Roofline").run()
    told = "\n".join(part.value for part in page.markdown)
    assert "bandwidth" in told
    assert "expandable" not in told
    page.text_input(key="glossary").set_value("no such word").run()
    assert "No term" in page.info[0].value
