"""The verdicts on steps as tables: the same answers as the report, asked by SQL."""

from __future__ import annotations

from analysis.database import from_rows, locked
from analysis.query.ask import ask
from tests.analysis.made import GIB
from tests.analysis.steps.test_outlook import alternating
from tests.analysis.steps.test_phase_peaks import reading


def asked(rows, query):
    return ask(locked(from_rows(rows, run="made")), query).rows


def test_classes_fullest_ranks_and_phases_are_tables():
    peaks = alternating(30)
    memory = [{**reading(step + 1, 1, step + 1, rank=rank), "max_allocated_bytes": int((peak - 10 * rank) * GIB), "device_total_bytes": 80 * GIB,
               "device_used_bytes": 64 * GIB} for rank in (0, 1) for step, peak in enumerate(peaks)]
    memory.append({**reading(31, 79, 31, phase="evaluation"), "device_total_bytes": 80 * GIB, "device_used_bytes": 64 * GIB})
    rows = {"rank_memory": memory}
    assert asked(rows, "SELECT rank, class FROM rank_classes ORDER BY rank") == ((0, "occasional"), (1, "clear"))
    assert asked(rows, "SELECT rank, share, moves FROM fullest_ranks") == ((0, 1.0, 0),)
    assert asked(rows, "SELECT phase, rank, peak_bytes, exact FROM phase_peaks") == (("evaluation", 0, 79 * GIB, True),)
