"""Glossary: the field's words as the pages use them."""

from __future__ import annotations

import streamlit as st

from analysis.glossary import GROUPS, Group, Term
from app_pages._shared import section


def show() -> None:
    """The page."""
    st.header("Glossary", anchor=False)
    wanted = st.text_input("Find a word", placeholder="headroom", key="glossary", bind="query-params").strip().lower()
    found = [Group(group.title, terms) for group in GROUPS if (terms := tuple(term for term in group.terms if _holds(term, wanted)))]
    if not found:
        st.info("No term holds these words.", icon=":material/search_off:")
    for group in found:
        section(group.title)
        st.markdown("\n".join(f"* **{term.name}**: {term.meaning}" for term in group.terms))


def _holds(term: Term, wanted: str) -> bool:
    return wanted in term.name.lower() or wanted in term.meaning.lower()


show()
