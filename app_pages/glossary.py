"""Glossary: the field's words as the pages use them. A link to one (`/glossary?term=soft-headroom`) shows it above the others."""

from __future__ import annotations

import streamlit as st

from analysis.glossary import GROUPS, Group, Term, term
from app_pages._shared import safe, section


def show() -> None:
    """The page."""
    st.header("Glossary", anchor=False)
    _linked(st.query_params.get("term", "")[:200])
    wanted = st.text_input("Find a word", placeholder="headroom", key="glossary", bind="query-params").strip().lower()
    found = [Group(group.title, terms) for group in GROUPS if (terms := tuple(one for one in group.terms if _holds(one, wanted)))]
    if not found:
        st.info("No term holds these words.", icon=":material/search_off:")
    for group in found:
        section(group.title)
        st.markdown("\n".join(f"* **{one.name}**: {one.meaning}" for one in group.terms))


def _linked(name: str) -> None:
    """The term that the link names, and where the documentation says more."""
    if not name:
        return
    found = term(name)
    if found is None:
        st.warning(f"The link names {safe(name)}, which is no term here.", icon=":material/link_off:")
        return
    with st.container(border=True):
        st.markdown(f"**{found.name}**: {found.meaning}")
        if found.more:
            st.caption(f"More in docs/{found.more}")


def _holds(one: Term, wanted: str) -> bool:
    return wanted in one.name.lower() or wanted in one.meaning.lower()


show()
