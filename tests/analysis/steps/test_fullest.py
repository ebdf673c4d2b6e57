"""The fullest rank from step to step: one that stays, one that moves, ranks that are alike, and maxima that hide it."""

from __future__ import annotations

from analysis.overview import overview
from analysis.report.keys import as_json, as_markdown
from analysis.report.text import as_text
from analysis.steps.attempt_steps import attempt_steps
from analysis.steps.fullest import ALIKE_BYTES, EVERY, HIGH, fullest
from tests.analysis.made import GIB, shown
from tests.analysis.steps.test_generated_limits import _connection


def rows(peaks, scope="interval"):
    """`peaks` by rank: GiB of each step."""
    return [{"rank": rank, "iteration": step + 1, "scope": scope, "valid": True, "line": step + 1, "allocated_bytes": GIB, "reserved_bytes": 60 * GIB,
             "max_reserved_bytes": 60 * GIB, "max_allocated_bytes": int(peak * GIB)}
            for rank, those in enumerate(peaks) for step, peak in enumerate(those) if peak]


def found(peaks, scope="interval", loads=()):
    connection = _connection(rows(peaks, scope), loads)
    with attempt_steps(connection, "file", 0):
        return fullest(connection)


def test_a_rank_that_is_always_the_fullest():
    one = found([[30, 31, 33], [29, 30, 32]])
    assert (one.moves, one.steps, [(rank.rank, rank.steps, rank.share) for rank in one.ranks]) == (0, 3, [(0, 3, 1.0)])
    assert one.sentence == "always rank 0 was the fullest, in all 3 steps"
    assert one.rule == EVERY


def test_the_fullest_rank_moves():
    one = found([[30, 20, 20, 30], [20, 30, 30, 20], [10, 10, 10, 10]])
    assert one.moves == 2
    assert [(move.iteration, move.rank_before, move.rank) for move in one.moved] == [(1, None, 0), (2, 0, 1), (4, 1, 0)]
    assert [(rank.rank, rank.share) for rank in one.ranks] == [(0, 0.5), (1, 0.5)]
    assert one.sentence == "the fullest rank moved 2 times over 4 steps: rank 0 in 50%, rank 1 in 50%"


def test_ranks_as_full_as_each_other_are_no_move():
    little = ALIKE_BYTES / GIB / 2
    one = found([[30, 30 + little, 30], [30 + little, 30, 30 + little]])
    assert one.moves == 0
    assert "ranks 0-1, alike within 20 MiB" in one.sentence


def test_a_maximum_that_was_never_reset_hides_the_fullest():
    """Rank 1 tops at 40 GiB in its first step; whatever rank 0 does below that, rank 1 may have been fuller."""
    one = found([[30, 31, 32, 45], [40, 40, 40, 40]], "cumulative")
    assert (one.steps, one.unknown_steps, one.moves) == (2, 2, 1)
    assert "in 2 more a maximum that was never reset hides which" in one.sentence
    assert [move.iteration for move in one.moved] == [1, 4]


def test_only_steps_of_high_load_count_where_the_load_varies():
    peaks = [[30] * 20, [29] * 20]
    peaks[1][7] = peaks[1][13] = 50
    load = [("file", 1, step + 1, GIB * 2 if step in (7, 13) else GIB) for step in range(20)]
    one = found(peaks, loads=load)
    assert (one.steps, one.moves, one.rule) == (2, 0, HIGH)
    assert one.sentence == "always rank 1 was the fullest, in all 2 steps of high load"


def test_a_step_that_few_ranks_reached_is_not_compared():
    assert found([[30, 30, 30, 0], [20, 20, 20, 0], [10, 10, 10, 90]]).steps == 3
    assert found([[30, 30]]) is None


def test_every_face_tells_it():
    seen = overview(shown({"rank_memory": rows([[30, 20], [20, 30]])}), "made")
    assert as_json(seen)["fullest"]["moves"] == 1
    for text in (as_text(seen), as_markdown(seen)):
        assert "the fullest rank moved once over 2 steps" in " ".join(text.split())
    alone = overview(shown({"rank_memory": rows([[30, 20]])}), "made")
    assert as_json(alone)["fullest"] == {}
    assert "two ranks" in alone.not_measurable["fullest"]
