"""What each page must show of each sample: from the truth the samples were made of, their logs and the command-line report, never from a page.

A fact is words of the page's text, or the content of a cell. A table's cell holds the whole number; what is drawn of it is rounded.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from cli import main
from tests.browser.visiting import gib_cell, number_cell, size
from tests.conftest import ROOT

TRUTH = ROOT / "sample_data" / "truth"
RUNS = ("dense_7b5_pp2", "moe_16ranks", "oom_run")
CASES: dict[str, Any] = json.loads((TRUTH / "oom_cases.json").read_text())
LOGS = {"dense_7b5_pp2": "dense_7b5_pp2/train.log", "moe_16ranks": "moe_16ranks/rank_0.log"}
LEVELS = ("stable", "occasional", "insufficient", "undetermined", "clear")
PRINTED = re.compile(r"weight and optimizer=(\S+) MB, activation=(\S+) MB")


class Facts(NamedTuple):
    """What a page must show."""

    words: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()


@cache
def report(lake: Path, run: str) -> Any:
    """What `hbmledger report --format json` says of a run."""
    told = io.StringIO()
    with redirect_stdout(told):
        assert main(["report", run, "--lake", str(lake), "--format", "json"]) == 0
    return json.loads(told.getvalue())


def truth(run: str) -> Any:
    """What was planted in a sample."""
    return json.loads((TRUTH / f"{run}.json").read_text())


def facts(lake: Path, page: str, run: str | None) -> Facts:
    """What a page must show of a run, or of the whole lake; nothing beyond its own heading where nobody said."""
    if run in CASES and page in _OF_A_CASE:
        return _OF_A_CASE[page](CASES[run])
    if run is None:
        return _OF_THE_LAKE[page](lake) if page in _OF_THE_LAKE else Facts()
    return _OF_A_RUN[page](report(lake, run), run) if page in _OF_A_RUN else Facts()


def _overview(told: Any, run: str) -> Facts:
    seen, fullest = told["coverage"], max(told["ranks"], key=lambda one: one["max_allocated_bytes"])
    if run in RUNS:
        counted = len(truth(run)["classes"])
        assert len(seen["measured"]) == counted
    return Facts((told["run"]["verdict"]["sentence"], f"{len(seen['measured'])} of {seen['world_size']}", told["branch"]["branch"]),
                 (gib_cell(fullest["max_allocated_bytes"]), gib_cell(fullest["allocated_bytes"])))


def _findings(told: Any, run: str) -> Facts:
    first = next((action for one in told["findings"][:1] for action in one["actions"] if action["saved_bytes"]), None)
    return Facts(tuple(one["sentence"] for one in told["findings"]), (size(first["saved_bytes"]),) if first else ())


def _ledger(told: Any, run: str) -> Facts:
    if not told["gap"]["rows"]:
        return Facts((told["not_measurable"]["gap"], "Every class of every stage"))
    top = max(told["gap"]["rows"], key=lambda one: one["max_allocated_bytes"] or 0)
    stage = next(one for one in told["gap"]["expected_stages"] if one["pp"] == top["stage"])
    assert stage["peak_allocated_bytes"] > 0
    sizes = [top["allocated_bytes"], top["max_allocated_bytes"], top["gap_bytes"], *top["parts"].values()]
    return Facts((f"Where the gap to the {top['against']}",), tuple(gib_cell(one) for one in sizes if one is not None))


def _steps(told: Any, run: str) -> Facts:
    if not told["near_limit"]:
        return Facts(("No rank's number is known: nothing can be counted.", told["not_measurable"]["fullest"]))
    counts = Counter(one["class"] for one in told["near_limit"])
    if run == "moe_16ranks":
        assert counts == Counter(truth(run)["classes"].values())
    high = [one["steps"] for one in told["high_load_steps"] if one["rank"] == 3]
    if run == "moe_16ranks":
        high = [truth(run)["high_load_steps"]["3"]]
    rises = [gib_cell(one["rise_bytes"]) for one in sorted(told["staircase"], key=lambda one: one["iteration"])[:2]]
    return Facts((" ".join(f"{level} {counts[level]}" for level in LEVELS),), (*rises, *(", ".join(map(str, steps)) for steps in high)))


def _theory(told: Any, run: str) -> Facts:
    if told["branch"] is None:
        return Facts(("No footprint was printed", told["not_measurable"]["theory"]))
    printed = PRINTED.findall((ROOT / "sample_data" / LOGS.get(run, f"{run}/train.log")).read_text())
    terms = told["branch"]["terms"]
    return Facts((told["branch"]["branch"], *(f"= {figure} MB" for figure in (printed[-1] if printed and terms else ()))),
                 tuple(number_cell(one["bytes"]) for one in terms[:3]) + tuple(gib_cell(one["bytes"]) for one in told["branch"]["left_out"]))


def _plan(told: Any, run: str) -> Facts:
    if told["stages"]:
        fullest = max(told["stages"], key=lambda one: one["max_allocated_bytes"])
        stage, peak_bytes = fullest["stage"], fullest["max_allocated_bytes"]
    else:
        expected = max(told["gap"]["expected_stages"], key=lambda one: one["peak_allocated_bytes"])
        stage, peak_bytes = expected["pp"], expected["peak_allocated_bytes"]
    return Facts((f"Fullest stage {stage} {size(peak_bytes)}", f"TP {told['run']['tp']}, PP {told['run']['pp']}"), (gib_cell(peak_bytes),))


def _communication(told: Any, run: str) -> Facts:
    if reason := told["not_measurable"].get("communication"):
        return Facts((reason,))
    ranks = told["communication"]["ranks"]
    return Facts(tuple(one["sentence"] for one in told["communication"]["warnings"]),
                 (gib_cell(ranks[0]["estimate_bytes"]), gib_cell(ranks[0]["outside_bytes"]), gib_cell(ranks[3]["unexplained_bytes"])))


def _rejects(told: Any, run: str) -> Facts:
    assert told["rejects"]["count"] == 0
    return Facts(("Every stretch that looked like a record was read.",))


def _snapshot(told: Any, run: str) -> Facts:
    if run != "dense_7b5_pp2":
        return Facts((f"{run} has no memory snapshot in this lake",))
    planted = truth("snapshot_0")
    classes = sorted(planted["requested_by_class"].values())[-3:]
    return Facts((f"Peak requested {size(planted['peaks']['requested']['bytes'])}", f"Peak reserved {size(planted['peaks']['reserved']['bytes'])}",
                  f"{planted['events']:,} events"), tuple(number_cell(one) for one in classes))


def _case_overview(case: Any) -> Facts:
    asked = (size(case["account_bytes"]["requested"]),) if case["account_bytes"] else ()
    return Facts(("ran out of memory", f"case {case['case']}:", *asked))


def _case_findings(case: Any) -> Facts:
    when = f" at iteration {case['iteration']}" if case["iteration"] else ""
    who = "A process whose rank is not told" if case["rank"] is None else f"Rank {case['rank']}"
    return Facts((f"{who} ran out of memory{when}",))


def _case_snapshot(case: Any) -> Facts:
    if not case["snapshot"]:
        return Facts(("has no memory snapshot in this lake",))
    return Facts((case["snapshot"], "Out of memory"))


def _start(lake: Path) -> Facts:
    return Facts(("HBM Ledger", "dense_7b5_pp2", "moe_16ranks", "4 of 256 ranks", "15 of 16 ranks"))


def _fleet(lake: Path) -> Facts:
    errors = len(CASES) + len(truth("oom_run")["oom"])
    return Facts((f"Attempts {len(CASES) + len(RUNS)}", f"Out of memory {errors}", "Near the limit 1", "Clear 1"), ("oom_run", "moe_16ranks", "3"))


def _glossary(lake: Path) -> Facts:
    return Facts(tuple(re.findall(r"^\* \*\*(.+?)\*\*", (ROOT / "docs/glossary.md").read_text(), flags=re.MULTILINE)))


_OF_A_RUN: dict[str, Callable[[Any, str], Facts]] = {
    "overview": _overview, "findings": _findings, "ledger": _ledger, "steps": _steps, "theory": _theory, "plan": _plan,
    "communication": _communication, "rejects": _rejects, "snapshot": _snapshot}
_OF_A_CASE: dict[str, Callable[[Any], Facts]] = {"overview": _case_overview, "findings": _case_findings, "snapshot": _case_snapshot}
_OF_THE_LAKE: dict[str, Callable[[Path], Facts]] = {"start": _start, "fleet": _fleet, "glossary": _glossary}


def peak(told: Any) -> int:
    """The largest peak of a report's ranks."""
    sizes: Iterable[int] = (one["max_allocated_bytes"] for one in told["ranks"] if one["max_allocated_bytes"])
    return max(sizes)
