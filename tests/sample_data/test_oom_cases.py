"""The out-of-memory samples: their accounts make the planted case so, the files show the accounts, and the report finds the case."""

from __future__ import annotations

import gzip
import json
import pickle
from itertools import accumulate
from pathlib import Path

import pytest

from sample_data import oom_cases
from sample_data.ledger import MIB
from tests.sample_data.test_make import SAMPLES
from tests.sample_data.test_snapshots import opcodes

TRUTH = json.loads((SAMPLES / "truth" / "oom_cases.json").read_text())
PARTS = ("whole", "split", "pending", "private", "others")
WITH_SNAPSHOT = sorted(run for run in TRUTH if TRUTH[run]["snapshot"])
ON_DEVICE = sorted(run for run in TRUTH if TRUTH[run]["account_bytes"])


@pytest.fixture(params=sorted(TRUTH))
def report(request, report_of):
    """A run of the truth and its report."""
    return request.param, report_of(request.param)


def test_each_case_has_a_sample():
    assert sorted(one["case"] for one in TRUTH.values()) == ["A", "B1", "B2", "B3", "C", "D", "E", "F", "G"]


def test_the_planted_case_is_what_the_report_says(report):
    run, found = report
    planted = TRUTH[run]
    assert [(one["case"], one["rank"], one["iteration"]) for one in found["oom"]] == [(planted["case"], planted["rank"], planted["iteration"])]
    assert found["run"]["verdict"]["level"] == "oom"


HELPS = {"A": "smaller_micro_batch", "B1": "expandable_segments", "B2": "one_stream", "B3": "one_graph_pool", "C": "other_process",
         "D": "chunk_operation", "E": "empty_cache", "F": "host_buffers", "G": "raise_cap"}
TURNED_BY_SETTINGS = {"B1", "E"}


def test_the_first_action_is_that_of_the_case_and_no_other_case_s_is_given(report):
    run, found = report
    case = TRUTH[run]["case"]
    (finding,) = [one for one in found["findings"] if one["id"].startswith("oom_")]
    assert finding["id"] == f"oom_{case.lower()}"
    names = [one["action"] for one in finding["actions"]]
    assert names[0] == HELPS[case]
    assert case in TURNED_BY_SETTINGS or not {"expandable_segments", "gc_threshold", "empty_cache"} & set(names)


def test_the_report_shows_the_numbers_of_the_account(report):
    run, found = report
    account, (told,) = TRUTH[run]["account_bytes"], found["oom"]
    if account is None or told["kind"] == "nccl":
        return
    numbers, unused = told["numbers"], account["whole"] + account["split"] + account["pending"]
    assert numbers["requested_bytes"] == pytest.approx(account["requested"], rel=0.01)
    assert numbers["allocated_bytes"] == pytest.approx(account["live"] + account["private"], rel=0.001)
    if "reserved_unallocated_bytes" in numbers:
        assert numbers["reserved_unallocated_bytes"] == pytest.approx(unused, rel=0.01)
    assert numbers.get("allowed_bytes", 0) == pytest.approx(account["allowed"] or 0, rel=0.001)


@pytest.mark.parametrize("run", ON_DEVICE)
def test_only_the_planted_part_would_have_let_it_fit(run):
    account, turned = TRUTH[run]["account_bytes"], set(TRUTH[run]["turned_by"])
    reserved = sum(account[name] for name in ("live", "whole", "split", "pending", "private"))
    assert account["free"] + reserved + account["outside"] + account["others"] == account["capacity"]
    whole = 2 * MIB
    need = -(-account["requested"] // whole) * whole if account["requested"] >= 10 * MIB else 20 * MIB
    capped = account["allowed"] is not None
    fits = {name for name in PARTS if not capped and account["free"] + account[name] >= need}
    if capped:
        assert reserved + need > account["allowed"]
        assert account["free"] >= need
        fits.add("allowed")
    assert fits == turned
    if TRUTH[run]["case"] == "D":
        resident = 33 * 2**30
        assert account["requested"] > account["capacity"] - resident - account["outside"]


@pytest.mark.parametrize("run", WITH_SNAPSHOT)
def test_the_snapshot_holds_what_the_account_says(run):
    raw = gzip.decompress((SAMPLES / run / TRUTH[run]["snapshot"]).read_bytes())
    loaded, account = pickle.loads(raw), TRUTH[run]["account_bytes"]  # this project wrote it
    assert opcodes(raw) == opcodes(pickle.dumps(loaded, 4))
    found = dict.fromkeys(("live", "split", "pending", "private"), 0)
    for segment in loaded["segments"]:
        ends = [*accumulate((block["size"] for block in segment["blocks"]), initial=segment["address"])]
        assert [*(block["address"] for block in segment["blocks"]), segment["address"] + segment["total_size"]] == ends
        free = "private" if segment["segment_pool_id"] != (0, 0) else "split"
        for block in segment["blocks"]:
            found[{"active_allocated": "live", "active_pending_free": "pending", "inactive": free}[block["state"]]] += block["size"]
    assert found == {name: account[name] for name in found}
    last = loaded["device_traces"][0][-1]
    assert (last["action"], last["size"], last["device_free"]) == ("oom", account["requested"], account["free"])


def test_a_segment_without_a_block_in_use_was_given_back_before_the_request_failed():
    for run in WITH_SNAPSHOT:
        loaded = pickle.loads(gzip.decompress((SAMPLES / run / TRUTH[run]["snapshot"]).read_bytes()))
        assert not [one for one in loaded["segments"] if one["segment_pool_id"] == (0, 0) and one["active_size"] == 0]
        assert oom_cases.CASES[run]().account.whole == 0


def test_every_finding_links_to_a_line_that_exists_and_the_error_to_its_own(report):
    _, found = report
    for one in [place for finding in found["findings"] for place in finding["evidence"]] + found["oom"][0]["evidence"]:
        path = Path(one["artifact"])
        if path.suffix == ".log":
            assert 1 <= one["line"] <= len(path.read_text().splitlines())
    told = [one for one in found["oom"][0]["evidence"] if one["artifact"].endswith(".log")]
    line = Path(told[0]["artifact"]).read_text().splitlines()[told[0]["line"] - 1]
    assert any(word in line for word in ("out of memory", "Failed to CUDA calloc", "oom_kill"))
