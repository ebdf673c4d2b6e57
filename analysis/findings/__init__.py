"""Findings: rules as small declared objects that turn an overview into sentences with evidence and actions.

Every rule of `RULES` looks at the same `Seen`; their findings come back worst first. docs/findings.md is generated from the rules and the
catalogue of actions.
"""

from __future__ import annotations

from analysis.findings import communication, died, layout, measuring, near, settings, stages
from analysis.findings.model import SEVERITIES, Finding, Rule, Seen

RULES: tuple[Rule, ...] = (*died.RULES, *near.RULES, *stages.RULES, *settings.RULES, *communication.RULES, *layout.RULES,
                           *measuring.RULES)


def findings(seen: Seen) -> tuple[Finding, ...]:
    """What the rules find, errors before warnings before notes, in the order of the rules within."""
    found = [one for rule in RULES for one in rule.look(seen)]
    return tuple(sorted(found, key=lambda one: SEVERITIES.index(one.severity)))
