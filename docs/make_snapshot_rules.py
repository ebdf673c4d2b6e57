"""Write the rules of `analysis.snapshot.rules` into docs/methods/snapshot.md: `python docs/make_snapshot_rules.py`. A test holds the page to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analysis.snapshot.rules import NO_STACK, PHASES, PLUMBING, RULES, Rule

TARGET = Path(__file__).parent / "methods" / "snapshot.md"
START = "<!-- rules: written by docs/make_snapshot_rules.py, do not edit below -->"


def page(text: str) -> str:
    """The page with its rules as they are declared now."""
    return text[:text.index(START)] + "\n".join([START, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    yield from ("", "### Stacks", "", "| # | class | rule | why | source |", "|---|---|---|---|---|")
    yield from (f"| {at} | {rule.category} | {rule.name} | {rule.evidence} | {rule.source} |" for at, rule in enumerate(RULES, 1))
    yield from ("", "### Without a stack", "", "| class | rule | why |", "|---|---|---|")
    yield from (f"| {rule.category} | {rule.name} | {rule.evidence} |" for rule in NO_STACK)
    yield from ("", "### Patterns", "", "```text")
    for at, rule in enumerate(RULES, 1):
        yield f"{at} {rule.name}"
        yield from (f"    {line}" for line in _conditions(rule))
    yield from ("```", "", "Skipped as plumbing:", "", "```text", PLUMBING, "```", "", "Phases of an event:", "", "```text")
    yield from (f"{name}\n    {pattern}" for name, pattern in PHASES)
    yield "```"


def _conditions(rule: Rule) -> Iterator[str]:
    for name, words in (("frame", "a frame"), ("outer", "and a frame further out"), ("without", "and none further in"), ("never", "and none at all")):
        if pattern := getattr(rule, name):
            yield f"{words}: {pattern}"
    if rule.first_line:
        yield "and the smallest line of that function that allocates, where several do"


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    print(TARGET)
