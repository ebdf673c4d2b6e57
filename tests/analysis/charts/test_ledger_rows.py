"""What is drawn of the ledger loses no byte and no class."""

from __future__ import annotations

from analysis.charts.ledger_rows import MEMBERS, fullest, part_rows, shown_classes, stage_rows
from tests.analysis.test_reconcile import run_of


def test_no_byte_is_lost_when_classes_are_drawn_together():
    for row in run_of().ledger.expected.stages.values():
        assert sum(shown_classes(row.peak_classes).values()) == row.peak_allocated_bytes
        assert sum(shown_classes(row.classes).values()) == row.steady_allocated_bytes


def test_a_class_without_a_place_is_other():
    assert shown_classes({"weights": 3, "something_new": 2, "step": 0}) == {"weights": 3, "other": 2}


def test_names_stand_once():
    names = [name for members in MEMBERS.values() for name in members]
    assert len(names) == len(set(names))


def test_rows_follow_the_stages():
    ledger = run_of().ledger
    assert list(dict.fromkeys(row["stage"] for row in stage_rows(ledger))) == ["0", "1", "2", "3"]
    top = fullest(ledger)
    assert [one.stage for one in top] == [0, 1, 2, 3]
    assert sum(row["bytes"] for row in part_rows(top)) == sum(one.gap_bytes for one in top)
