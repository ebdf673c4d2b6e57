"""The staircase's two lines: every step while they fit, and beyond no extreme of reserved or of the peak lost."""

from __future__ import annotations

from analysis.database import from_rows
from analysis.steps.step_levels import COLUMNS, step_levels

GIB = 2**30


def levels(held, peaks, scope="interval"):
    rows = [{"rank": rank, "iteration": step + 1, "scope": scope, "line": step + 10, "allocated_bytes": GIB, "max_allocated_bytes": peak + rank,
             "reserved_bytes": level, "max_reserved_bytes": max(held[:step + 1][-50:])}
            for rank in (0, 7) for step, (level, peak) in enumerate(zip(held, peaks, strict=True))]
    return step_levels(from_rows({"rank_memory": rows}), "file", 0, 7)


def test_few_steps_are_all_there_of_the_rank_asked_for():
    found = levels([30 * GIB, 34 * GIB, 31 * GIB], [28 * GIB, 29 * GIB, 27 * GIB])
    assert [tuple(one.values()) for one in found] == [(1, 30 * GIB, 28 * GIB + 7), (2, 34 * GIB, 29 * GIB + 7), (3, 31 * GIB, 27 * GIB + 7)]


def test_a_maximum_that_never_resets_is_the_level_held():
    found = levels([30 * GIB, 34 * GIB, 31 * GIB], [28 * GIB, 29 * GIB, 29 * GIB], "cumulative")
    assert [one["held_bytes"] for one in found] == [30 * GIB, 34 * GIB, 34 * GIB]


def test_spikes_of_both_lines_and_both_ends_survive_thinning():
    steps = 6 * COLUMNS + 5
    held, peaks = [40 * GIB + step for step in range(steps)], [30 * GIB] * steps
    held[1_111], held[1_500], peaks[2_222] = 70 * GIB, 20 * GIB, 39 * GIB
    found = {one["iteration"]: one for one in levels(held, peaks)}
    assert len(found) <= 5 * COLUMNS < steps
    assert {1, steps, 1_112, 1_501, 2_223} <= set(found)
    assert (found[1_112]["held_bytes"], found[1_501]["held_bytes"], found[2_223]["max_allocated_bytes"]) == (70 * GIB, 20 * GIB, 39 * GIB + 7)


def test_a_rank_that_was_not_measured_has_none():
    assert step_levels(from_rows({"rank_memory": []}), "file", 0, 7) == []
