"""Charts hold the figures they were given, stay below the limit of marks, and keep the worst rank where ranks share a mark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from analysis import charts
from analysis.database import from_rows
from analysis.overview import overview
from analysis.rows import Rank
from analysis.theory.leftout import LeftOut
from tests.analysis.made import GIB, dense_run


@pytest.fixture(scope="module")
def found() -> Any:
    return overview(from_rows(dense_run()), "file")


def values(chart: Any) -> list[dict[str, Any]]:
    """Every row drawn by a chart or its layers."""
    spec = chart.to_dict()
    data = [spec.get("data"), *(layer.get("data") for layer in spec.get("layer", ()))]
    return [row for one in data if one for row in one.get("values", ())] + [row for rows in spec.get("datasets", {}).values() for row in rows]


def many(found: Any, count: int) -> list[Rank]:
    """As many ranks on four stages; rank r has r bytes of headroom below 2 GiB."""
    return [replace(found.ranks[0], rank=number, stage=number % 4, soft_headroom_bytes=2 * GIB - number) for number in range(count)]


def test_map_shows_the_measure_that_most_ranks_have(found: Any) -> None:
    assert charts.heat_measure(found.ranks)[0] == "max_reserved_bytes"
    assert charts.heat_measure(many(found, 3))[0] == "soft_headroom_bytes"


def test_map_has_a_mark_a_rank_with_bytes_and_place(found: Any) -> None:
    rows = charts.heat_rows(found.ranks, "max_reserved_bytes")
    assert [(row["stage"], row["who"], row["bytes"]) for row in rows][:3] == [("0", "0", 32 * GIB), ("0", "1", 32 * GIB), ("1", "4", 28 * GIB)]
    assert rows[0]["place"] == str(found.ranks[0].source)
    assert len(charts.heat_map(found.ranks).to_dict()["layer"]) == 2


@pytest.mark.parametrize("count", [4_999, 5_000, 5_001, 20_000, 100_003])
def test_no_map_is_above_the_limit_and_the_worst_rank_is_always_there(found: Any, count: int) -> None:
    ranks = many(found, count)
    rows = charts.heat_rows(ranks, "soft_headroom_bytes")
    assert len(rows) <= charts.MARKS
    assert min(row["bytes"] for row in rows) == 2 * GIB - (count - 1)
    assert {row["stage"] for row in rows} == {"0", "1", "2", "3"}


def test_ranks_without_the_measure_have_no_mark(found: Any) -> None:
    assert charts.heat_rows(found.ranks, "soft_headroom_bytes") == []
    charts.heat_map([]).to_dict()


def test_stage_bars_hold_the_fullest_rank_and_the_limit_where_known(found: Any) -> None:
    rows = values(charts.stage_bars(found.stages))
    assert {row["bytes"] for row in rows if row["stage"] == "3"} == {int(11.5 * GIB), 23 * GIB, 31 * GIB}
    limited = [replace(one, capacity_bytes=80 * GIB) for one in found.stages]
    assert 80 * GIB in {row["bytes"] for row in values(charts.stage_bars(limited))}


def test_left_out_is_ranked_by_size_whatever_its_sign() -> None:
    effects = [LeftOut("small", 1, "last", ""), LeftOut("too much", -5 * GIB, "first", ""), LeftOut("large", 2 * GIB, "last", "")]
    rows = values(charts.left_out_bars(effects))
    assert [row["what"] for row in rows] == ["too much", "large", "small"]
    assert [row["kind"] for row in rows] == ["the formula says too much", "the run needs more", "the run needs more"]
