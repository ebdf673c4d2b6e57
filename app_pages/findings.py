"""Findings: what the rules say of one attempt, worst first, each with its lines and what to try, and what would not help here.

A link that names a finding opens it: above the others, with its lines in place of a button for them.
"""

from __future__ import annotations

import streamlit as st

from analysis.findings.model import SEVERITIES, Finding
from analysis.rows import Overview
from app_pages._address import known, note, place_of
from app_pages._findings import SEVERITY_ICONS, finding_names
from app_pages._header import run_page
from app_pages._origin import origin
from app_pages._shared import safe
from app_pages._table import size

LINES = 3


def show() -> None:
    """The page."""
    found = run_page("Findings")
    if not found.findings:
        st.success("No rule found anything. What was not measured is on the overview.", icon=":material/check:")
        return
    names = finding_names(found)
    at = place_of("finding", names)
    if at is not None:
        _finding(found.findings[at], names[at], opened=True)
        st.button(f"All {len(names)} findings", icon=":material/checklist:", on_click=note, kwargs={"finding": None})
        return
    chosen = _severities(found)
    for name, one in zip(names, found.findings, strict=True):
        if one.severity in chosen:
            _finding(one, name, opened=name == names[0])


def _severities(found: Overview) -> list[str]:
    known("severity", SEVERITIES)
    chosen = st.pills("Severity", SEVERITIES, default=SEVERITIES, selection_mode="multi", key="severity", bind="query-params")
    hidden = sum(one.severity not in chosen for one in found.findings)
    if hidden:
        st.caption(f"{hidden} of {len(found.findings)} findings are hidden: choose their severity to see them.")
    return list(chosen)


def _finding(one: Finding, name: str, *, opened: bool) -> None:
    """One finding; `opened` shows what to try, and where it was read."""
    with st.container(border=True):
        st.markdown(f"{SEVERITY_ICONS[one.severity]} **{safe(one.sentence)}**")
        st.caption(safe(f"{one.severity}, {one.confidence} · {one.id}"))
        if one.actions:
            _actions(one, name, opened)
        if one.useless:
            st.caption("Not here: " + safe("; ".join(f"{other.action.replace('_', ' ')}, {other.reason}" for other in one.useless)))
        if one.evidence:
            with st.expander("Where this was read", icon=":material/search:", expanded=opened):
                for source in one.evidence[:LINES]:
                    origin(source)


def _actions(one: Finding, name: str, opened: bool) -> None:
    place = st.expander("What to try first", icon=":material/build:", expanded=opened)
    place.dataframe([{"order": action.order, "try": action.sentence, "saves": size(action.saved_bytes), "computation": action.computation,
                      "communication": action.communication, "effort": action.complexity, "fails when": action.fails_when}
                     for action in one.actions], hide_index=True, key=f"actions {name}", placeholder="-")


show()
