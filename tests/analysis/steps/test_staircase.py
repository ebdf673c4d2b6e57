"""Risers planted in generated series of reserved memory, and what coincided with them."""

from __future__ import annotations

import pytest

from analysis.database import from_rows
from analysis.steps.attempt_steps import attempt_steps
from analysis.steps.staircase import staircase

GIB, MIB = 2**30, 2**20


def _series(held, peaks, scope="interval", rank=0):
    top = [max(peaks[:at + 1]) for at in range(len(peaks))] if scope == "cumulative" else peaks
    return [{"rank": rank, "iteration": step + 1, "scope": scope, "line": step + 10, "allocated_bytes": 5 * GIB,
             "max_allocated_bytes": int(peak * GIB),
             "reserved_bytes": int(level * GIB), "max_reserved_bytes": int(max(held[:step + 1]) * GIB)}
            for step, (level, peak) in enumerate(zip(held, top, strict=True))]


def _risers(rows, **tables):
    connection = from_rows({"rank_memory": rows, **tables})
    with attempt_steps(connection, "file", 0):
        return staircase(connection, "file", 0)


@pytest.mark.parametrize("scope", ["interval", "cumulative"])
def test_need_and_fragmentation_are_told_apart(scope):
    found = _risers(_series([30, 30, 34, 34, 37, 37], [28, 28, 32, 31, 31, 30], scope))
    assert [(one.iteration, one.kind, one.rise_bytes, one.peak_rise_bytes, one.source.line) for one in found] == [
        (3, "need", 4 * GIB, 4 * GIB, 12), (5, "fragmentation", 3 * GIB, 0, 14)]


def test_a_rise_that_is_given_back_at_once_is_no_riser():
    assert _risers(_series([30, 36, 30, 30], [28, 28, 28, 28])) == ()


def test_small_rises_and_the_first_reading_are_none():
    assert _risers(_series([30, 30.01, 30.01], [28, 28, 28])) == ()


def test_the_last_step_may_rise():
    assert [one.iteration for one in _risers(_series([30, 30, 33], [28, 28, 31]))] == [3]


def test_what_coincided_is_named():
    rows = _series([30, 33, 33, 36, 36, 40], [28, 31, 31, 31, 31, 31])
    found = _risers(rows, job_events=[{"iteration": 3, "event": "checkpoint_saved"}],
                    iterations=[{"iteration": step, "skipped": int(step == 1), "phase": "train"} for step in range(1, 7)],
                    memory_stats=[{"rank": 0, "iteration": step, "num_alloc_retries": int(step >= 6), "num_ooms": 0} for step in range(1, 7)])
    assert [(one.iteration, one.coincided) for one in found] == [
        (2, ("first optimizer step",)), (4, ("checkpoint save",)), (6, ("the allocator freed its cache and retried",))]


def test_without_a_peak_the_kind_is_not_told():
    rows = [{**row, "max_allocated_bytes": None, "allocated_bytes": None} for row in _series([30, 33, 33], [1, 1, 1])]
    assert [one.kind for one in _risers(rows)] == [None]


def test_each_rank_has_its_own():
    rows = _series([30, 33, 33], [28, 31, 31]) + _series([30, 30, 35], [28, 28, 28], rank=7)
    assert [(one.rank, one.iteration, one.kind) for one in _risers(rows)] == [(0, 2, "need"), (7, 3, "fragmentation")]
