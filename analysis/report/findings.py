"""The findings of a report as text: worst first, each with its lines and the first actions, and what would not help."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings.model import Advice, Finding
from analysis.report.lines import places, wrapped
from analysis.rows import Overview
from analysis.verdict import size_text

ACTIONS_SHOWN = 4


def finding_lines(overview: Overview) -> Iterator[str]:
    """The section of a text report; empty where no rule found anything. Actions that an earlier finding listed are not listed again."""
    if overview.findings:
        yield "\nFindings"
    listed: set[tuple[str, ...]] = set()
    for one in overview.findings:
        yield from wrapped(f"{one.severity}: {one.sentence}", "  ", "    ")
        yield from places(one.evidence[:1], "    ")
        names = tuple(advice.action for advice in one.actions)
        if names and names in listed:
            yield "    the same actions as above"
        else:
            yield from _actions(one)
        listed.add(names)


def _actions(one: Finding) -> Iterator[str]:
    for advice in one.actions[:ACTIONS_SHOWN]:
        yield from wrapped(f"{advice.order}. {advice.sentence}{_worth(advice)}", "    ", "       ")
    if len(one.actions) > ACTIONS_SHOWN:
        yield f"    and {len(one.actions) - ACTIONS_SHOWN} more"
    if one.useless:
        reasons = "; ".join(f"{useless.action.replace('_', ' ')} ({useless.reason})" for useless in one.useless)
        yield from wrapped(f"not here: {reasons}", "    ", "      ")


def _worth(advice: Advice) -> str:
    saved = "" if advice.saved_bytes is None else f" saves {size_text(advice.saved_bytes)};"
    paid = [f"computation: {advice.computation}"] if advice.computation != "none" else []
    paid += [f"communication: {advice.communication}"] if advice.communication != "none" else []
    return f":{saved} {'; '.join(paid) if paid else 'costs neither computation nor communication'}"
