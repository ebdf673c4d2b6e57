"""What pages share of findings: the icon of each severity, and a name for each finding that a link can hold."""

from __future__ import annotations

from collections import Counter

from analysis.rows import Overview

SEVERITY_ICONS = {"error": ":material/dangerous:", "warning": ":material/warning:", "note": ":material/info:"}


def finding_names(found: Overview) -> list[str]:
    """The rule of each finding, numbered from the second on where one rule found several."""
    seen: Counter[str] = Counter()
    names = []
    for one in found.findings:
        seen[one.id] += 1
        names.append(one.id if seen[one.id] == 1 else f"{one.id}.{seen[one.id]}")
    return names
