"""What each page has to say of a sample run: from what was planted in it (`sample_data/truth`) and from the JSON of its report.

A page that is not listed here is still opened on every sample; what it says is then up to its own tests.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.conftest import ROOT

TRUTH = ROOT / "sample_data" / "truth"
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample run: its name, its report and what was planted."""

    run: str
    report: dict[str, Any]
    truth: dict[str, Any]


def truth_of(run: str) -> dict[str, Any]:
    """What was planted in a run; nothing known where it has no file."""
    own = TRUTH / f"{run}.json"
    return dict(json.loads(own.read_text())) if own.is_file() else dict(json.loads((TRUTH / "oom_cases.json").read_text()).get(run, {}))


def _overview(one: Sample) -> Iterator[str]:
    known = one.report["coverage"]
    yield one.report["run"]["verdict"]["sentence"]
    yield f"{len(known['measured'])} of {known['world_size']}"
    for row in one.report["ranks"]:
        yield f"{row['max_allocated_bytes'] / GIB:.2f}"
    if "case" in one.truth:
        yield f"case {one.truth['case']}: "
        yield "" if one.truth["iteration"] is None else f"iteration {one.truth['iteration']}"


def _findings(one: Sample) -> Iterator[str]:
    yield from (finding["sentence"] for finding in one.report["findings"])


def _ledger(one: Sample) -> Iterator[str]:
    for row in one.report["gap"]["rows"]:
        yield f"{row['max_allocated_bytes'] / GIB:.2f}"
        yield f"{row['expected_peak_bytes'] / GIB:.2f}"


def _steps(one: Sample) -> Iterator[str]:
    yield from (f"{near}: {count}" for near, count in Counter(row["class"] for row in one.report["near_limit"]).items())
    if one.run == "moe_16ranks":
        yield from (f"{near}: {count}" for near, count in Counter(one.truth["classes"].values()).items())
    yield from (f"{row['rise_bytes'] / GIB:.2f}" for row in one.report["staircase"])


def _theory(one: Sample) -> Iterator[str]:
    printed, branch = one.report["theory"], one.report["branch"]
    if branch is None:
        yield "there is no branch to tell"
        return
    yield printed["text"].splitlines()[-1] if printed else one.report["not_measurable"]["theory"]
    yield f"Branch applied: {branch['branch']}"


def _plan(one: Sample) -> Iterator[str]:
    sizes = one.report["run"]
    yield "Fullest stage"
    yield f"TP {sizes['tp']}, PP {sizes['pp']}"


def _communication(one: Sample) -> Iterator[str]:
    found = one.report["communication"]
    yield from (f"{row['estimate_bytes'] / GIB:.2f}" for row in found["ranks"]) if found else (one.report["not_measurable"]["communication"],)


def _rejects(one: Sample) -> Iterator[str]:
    count = one.report["rejects"]["count"]
    yield f"{count:,} stretches" if count else "Every stretch that looked like a record was read."


FIGURES: dict[str, Callable[[Sample], Iterator[str]]] = {
    "overview": _overview, "findings": _findings, "ledger": _ledger, "steps": _steps, "theory": _theory, "plan": _plan,
    "communication": _communication, "rejects": _rejects,
}
"""By page of a run."""
