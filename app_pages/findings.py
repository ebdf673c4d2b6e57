"""Findings: what the rules say of one attempt, worst first, each with its lines and what to try, and what would not help here."""

from __future__ import annotations

import streamlit as st

from analysis.findings.model import Finding
from analysis.verdict import size_text
from app_pages._header import run_page
from app_pages._origin import origin
from app_pages._shared import safe

_ICONS = {"error": ":material/dangerous:", "warning": ":material/warning:", "note": ":material/info:"}


def show() -> None:
    """The page."""
    found = run_page("Findings")
    if not found.findings:
        st.success("No rule found anything. What was not measured is on the overview.", icon=":material/check:")
        return
    counted = {name: sum(one.severity == name for one in found.findings) for name in _ICONS}
    told = [name for name, count in counted.items() if count]
    chosen = st.pills("Severity", told, default=told, selection_mode="multi", format_func=lambda name: f"{_ICONS[name]} {name} · {counted[name]}")
    for number, one in enumerate(found.findings):
        if one.severity in chosen:
            _finding(one, number)


def _finding(one: Finding, number: int) -> None:
    with st.container(border=True):
        st.markdown(f"{_ICONS[one.severity]} **{safe(one.sentence)}**")
        st.caption(safe(f"{one.severity}, {one.confidence} · {one.id}"))
        if one.actions:
            place = st.expander("What to try first", icon=":material/build:", expanded=number == 0)
            place.dataframe([{"order": action.order, "try": action.sentence, "saves": size_text(action.saved_bytes),
                              "computation": action.computation, "communication": action.communication, "effort": action.complexity,
                              "fails when": action.fails_when}
                             for action in one.actions], hide_index=True, key=f"actions {number}", placeholder="-")
        if one.useless:
            st.caption("Not here: " + safe("; ".join(f"{other.action.replace('_', ' ')}, {other.reason}" for other in one.useless)))
        if one.evidence:
            with st.popover("Where this was read", icon=":material/search:", type="tertiary"):
                for source in one.evidence[:3]:
                    origin(source)


show()
