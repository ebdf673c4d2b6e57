"""What pages share of findings: the icon of each severity, a name for each that a link can hold, and the worst ones as links."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from analysis.rows import Overview
from app_pages._address import of_run
from app_pages._shared import safe

SEVERITY_ICONS = {"error": ":material/dangerous:", "warning": ":material/warning:", "note": ":material/info:"}


def finding_names(found: Overview) -> list[str]:
    """The rule of each finding, numbered from the second on where one rule found several."""
    seen: Counter[str] = Counter()
    names = []
    for one in found.findings:
        seen[one.id] += 1
        names.append(one.id if seen[one.id] == 1 else f"{one.id}.{seen[one.id]}")
    return names


def worst(found: Overview, count: int) -> None:
    """The worst findings, each with a link to its lines and to what to try."""
    for name, one in list(zip(finding_names(found), found.findings, strict=True))[:count]:
        text, link = st.columns((7, 1), vertical_alignment="top", gap="small")
        text.markdown(f"{SEVERITY_ICONS[one.severity]} {safe(one.sentence)}")
        link.page_link("app_pages/findings.py", label="Open finding", icon="", help="Its lines, and what to try",
                       query_params=of_run(found.run, found.run_index, finding=name))
    if len(found.findings) > count:
        st.page_link("app_pages/findings.py", label=f"All {len(found.findings)} findings", icon=":material/checklist:",
                     query_params=of_run(found.run, found.run_index))
