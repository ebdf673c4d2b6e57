"""Write docs/findings.md from the rules and the catalogue of actions: `python docs/make_findings.py`. A test holds the file to it."""

from __future__ import annotations

from pathlib import Path

from analysis.findings import RULES
from analysis.findings.catalogue import ACTIONS, SYMPTOMS

TARGET = Path(__file__).with_name("findings.md")
_HEAD = """\
# Findings

Generated from `analysis/findings` by `docs/make_findings.py`; do not edit.

A finding is one sentence about an attempt of a run, with a severity (error, warning, note), a confidence (proven, likely, possible), the lines
that show it, and actions. `hbmledger report` lists them worst first; `hbmledger check` turns them into an exit code: 0 clear, 1 a finding at
or above `--fail-on`, 2 not judged, which a run is too that was seen near its limit in too few steps to say how often. Bytes saved are those of the
plan on the fullest rank; an action that is in force already, or would save nothing here, is named with the reason instead of being advised.
"""


def markdown() -> str:
    """The whole page."""
    rules = [f"| `{rule.id}` | {rule.title} | [{rule.source}]({rule.source}) |" for rule in RULES]
    symptoms = [f"| {symptom.replace('_', ' ')} | {', '.join(names).replace('_', ' ')} |" for symptom, names in SYMPTOMS.items()]
    actions = [f"| {one.id.replace('_', ' ')} | {one.sentence} | {one.computation} | {one.communication} | {one.complexity} | {one.fails_when} |"
               for one in ACTIONS.values()]
    return "\n".join([_HEAD, "## Rules\n", "| rule | finds | method |", "|---|---|---|", *rules, "",
                      "## What to try first\n", "| symptom | in this order |", "|---|---|", *symptoms, "",
                      "## Actions\n", "| action | does | computation | communication | complexity | fails when |", "|---|---|---|---|---|---|",
                      *actions, ""])


if __name__ == "__main__":
    TARGET.write_text(markdown(), encoding="utf-8")
    print(TARGET)
