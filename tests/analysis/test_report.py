"""The report's faces: fixed JSON keys, aligned text, and artifacts' text that stays harmless."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from analysis.capacity import given_capacity
from analysis.overview import overview
from analysis.report.keys import KEYS, as_json, as_markdown
from analysis.report.text import as_text
from tests.analysis.made import GIB, dense_run, shown

FIXED = {"run", "coverage", "theory", "branch", "stages", "ranks", "logits", "gap", "near_limit", "high_load_steps", "staircase", "oom",
         "communication", "findings"}


def of(rows, **options):
    return overview(shown(rows, "r", "r.log"), "r", **options)


GOLDEN = Path(__file__).with_name("golden") / "dense_run.txt"


def test_text_of_a_run():
    """As kept in `golden`; HBMLEDGER_REGENERATE=1 writes it anew, to be read before it is committed."""
    text = as_text(of(dense_run(), capacity=given_capacity("40GiB")))
    if os.environ.get("HBMLEDGER_REGENERATE"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    assert max(map(len, text.splitlines())) <= 100


def test_a_peak_that_never_moves_leaves_no_number_that_json_does_not_have():
    sizes = {"allocated_bytes": 1, "max_allocated_bytes": 30, "reserved_bytes": 32, "max_reserved_bytes": 32, "device_used_bytes": 36,
             "device_total_bytes": 80}
    flat = {"rank": 0, "scope": "interval", **{name: size * GIB for name, size in sizes.items()}}
    rows = {"rank_memory": [{**flat, "iteration": step, "line": step} for step in range(1, 9)]}
    (near,) = json.loads(json.dumps(as_json(of(rows)), allow_nan=False))["near_limit"]
    assert (near["class"], near["correlation"]) == ("clear", None)


@pytest.mark.parametrize("rows", [{}, dense_run(), {"oom_events": [{"rank": None}]}, {"rank_memory": [{"rank": 3, "valid": True}]},
                                  {"rejects": [{"reason": "cut", "text": "x"}]}])
def test_the_fixed_keys_are_always_there(rows):
    found = json.loads(json.dumps(as_json(of(rows))))
    assert set(found) >= FIXED == set(KEYS)
    assert {"logits", "gap", "high_load_steps", "staircase", "communication"} <= set(found["not_measurable"])
    assert as_text(of(rows)).startswith("r, attempt 0\n")
    assert as_markdown(of(rows)).startswith("# r attempt 0\n")


def test_rows_of_the_fixed_face():
    rows = dense_run()
    rows["oom_events"] = [{"rank": 12, "requested_bytes": GIB, "line": 5}]
    found = as_json(of(rows, capacity=given_capacity("40GiB")))
    near = next(one for one in found["near_limit"] if one["rank"] == 13)
    assert {"rank", "class", "kind", "near_steps", "steps", "low", "high", "headroom_hard_bytes", "headroom_soft_bytes"} <= set(near)
    assert (near["class"], near["headroom_soft_bytes"]) == ("clear", 7 * GIB)
    assert found["oom"][0]["evidence"] == [{"artifact": "r.log", "line": 5}]
    assert (found["oom"][0]["case"], found["oom"][0]["numbers"]) == ("unknown", {"requested_bytes": GIB})
    assert found["run"]["pp"] == 4
    assert {rank["rank"] for rank in found["ranks"]} == {0, 1, 4, 5, 8, 9, 12, 13}


def test_text_of_artifacts_stays_harmless():
    rows = dense_run()
    rows["rank_memory"][0]["artifact"] = "\x1b[31m|<script>\n`x`"
    rows["runs"][0]["framework"] = "\x1b]0;title\x07"
    assert "\x1b" not in as_text(of(rows))
    assert "<script>" not in as_markdown(of(rows))
    assert "\n`x`" not in as_markdown(of(rows))
