"""The rank x step picture: one cell a rank and step while they fit, the worst of its neighbours beyond."""

from __future__ import annotations

from analysis.database import from_rows
from analysis.overview import ranks_of
from analysis.steps.step_heat import CELLS, COLUMNS, ROWS, step_heat
from tests.analysis.made import GIB, memory


def heat(ranks, steps, peak):
    rows = [memory(rank, line=1, iteration=step + 1, scope="interval", peak=peak(rank, step), reserved=40, device_total_bytes=80 * GIB,
                   device_used_bytes=44 * GIB) for rank in range(ranks) for step in range(steps)]
    connection = from_rows({"rank_memory": rows})
    return step_heat(connection, "file", 0, ranks_of(connection, "file", 0))


def test_small_runs_have_a_cell_a_rank_and_step():
    cells = heat(2, 3, lambda rank, step: 75 if (rank, step) == (1, 2) else 30 + rank)
    assert len(cells) == 6
    assert [(one["first_rank"], one["first_iteration"]) for one in cells if one["near"]] == [(1, 3)]
    assert cells[0]["headroom_bytes"] == (80 - 4 - 30) * GIB


def test_a_spike_survives_in_its_neighbourhood():
    cells = heat(3 * ROWS, 2 * COLUMNS + 1, lambda rank, step: 75 if (rank, step) == (100, 77) else 30)
    assert len(cells) <= CELLS
    (near,) = [one for one in cells if one["near"]]
    assert (near["worst_rank"], near["worst_iteration"]) == (100, 78)
    assert near["first_rank"] <= 100 <= near["last_rank"]


def test_without_headroom_there_is_no_picture():
    connection = from_rows({"rank_memory": [memory(0, line=1)]})
    assert step_heat(connection, "file", 0, ranks_of(connection, "file", 0)) == []
