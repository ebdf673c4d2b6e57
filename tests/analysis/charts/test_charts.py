"""Charts hold the figures they were given, stay below the limit of marks, and keep the worst rank where ranks share a mark."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import replace
from typing import Any

import pytest

import analysis
from analysis.charts import plan as plan_charts
from analysis.charts import ranks as charts
from analysis.charts.heat import MARKS, WIDE, heat_measure, heat_rows
from analysis.charts.picture import Picture, table_of
from analysis.database import from_rows
from analysis.overview import overview
from analysis.plan.change import Sensitivity
from analysis.rows import Rank
from analysis.theory.leftout import LeftOut
from tests.analysis.made import GIB, dense_run
from tests.analysis.many_marks import BOUNDED_BY_CLASSES, FUNCTIONS, WORST, drawn


@pytest.fixture(scope="module")
def found() -> Any:
    return overview(from_rows(dense_run()), "file")


def many(found: Any, count: int) -> list[Rank]:
    """As many ranks on four stages; rank r has r bytes of headroom below 2 GiB."""
    return [replace(found.ranks[0], rank=number, stage=number % 4, soft_headroom_bytes=2 * GIB - number) for number in range(count)]


def test_map_shows_the_measure_that_most_ranks_have(found: Any) -> None:
    assert heat_measure(found.ranks)[0] == "max_reserved_bytes"
    assert heat_measure(many(found, 3))[0] == "soft_headroom_bytes"


def test_map_has_a_mark_a_rank_with_bytes_and_place(found: Any) -> None:
    rows = heat_rows(found.ranks, "max_reserved_bytes")
    assert [(row["stage"], row["who"], row["bytes"]) for row in rows][:3] == [("0", "0", 32 * GIB), ("0", "1", 32 * GIB), ("1", "4", 28 * GIB)]
    assert rows[0]["place"] == str(found.ranks[0].source)
    labelled = charts.heat_map(found.ranks).chart.to_dict()["layer"]
    assert [layer["mark"]["type"] for layer in labelled[:3]] == ["rect", "rect", "text"]
    assert all(layer["mark"]["color"].startswith("#") for layer in labelled[2:])


@pytest.mark.parametrize("count", [4_999, 5_001, 20_000])
def test_no_map_is_above_the_limit_and_the_worst_rank_is_always_there(found: Any, count: int) -> None:
    ranks = many(found, count)
    rows = heat_rows(ranks, "soft_headroom_bytes")
    assert len(rows) <= MARKS
    assert min(row["bytes"] for row in rows) == 2 * GIB - (count - 1)
    assert {row["stage"] for row in rows} == {"0", "1", "2", "3"}


def test_ranks_without_the_measure_have_no_mark(found: Any) -> None:
    assert heat_rows(found.ranks, "soft_headroom_bytes") == []
    charts.heat_map([]).chart.to_dict()


def test_stage_bars_hold_the_fullest_rank_and_the_limit_where_known(found: Any) -> None:
    rows = charts.stage_bars(found.stages).rows
    assert {row["bytes"] for row in rows if row["stage"] == "3"} == {int(11.5 * GIB), 23 * GIB, 31 * GIB}
    limited = [replace(one, capacity_bytes=80 * GIB) for one in found.stages]
    assert 80 * GIB in {row["bytes"] for row in charts.stage_bars(limited).rows}


def test_left_out_is_ranked_by_size_whatever_its_sign() -> None:
    effects = [LeftOut("small", 1, "last", ""), LeftOut("too much", -5 * GIB, "first", ""), LeftOut("large", 2 * GIB, "last", "")]
    rows = charts.left_out_bars(effects).rows
    assert [row["what"] for row in rows] == ["too much", "large", "small"]
    assert [row["kind"] for row in rows] == ["the formula says too much", "the run needs more", "the run needs more"]


def chart_functions() -> dict[str, Any]:
    """Every public function of `analysis` that gives a picture, by module and name."""
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(analysis.__path__, "analysis.") if "charts" in one.name]
    return {f"{module.__name__}.{name}": one for module in modules for name, one in vars(module).items()
            if inspect.isfunction(one) and one.__module__ == module.__name__ and not name.startswith("_")
            and inspect.signature(one).return_annotation == "Picture"}


def test_every_chart_function_is_held_to_the_limit() -> None:
    renamed = {"analysis.snapshot.charts.staircase": "snapshot_staircase"}
    names = {renamed.get(name, name.rpartition(".")[2]) for name in chart_functions()}
    assert names == {*FUNCTIONS, *BOUNDED_BY_CLASSES}


@pytest.mark.parametrize("count", [3, 5_001])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_chart_is_above_the_limit_and_the_largest_is_kept_and_thinning_is_told(name: str, count: int) -> None:
    found: Picture = FUNCTIONS[name](count)
    spec = found.chart.to_dict()
    assert 0 < drawn(spec) <= MARKS
    assert found.alt
    values = [value for row in found.rows for value in row.values()]
    assert {"step_map": WORST, "error_bars": 6, "near_bars": 1}.get(name, WORST) in values or -WORST in values
    thinned_before = {"timeline_chart", "step_map", "staircase"}
    assert bool(found.said) == (count > 3) or name in thinned_before
    assert table_of(found.rows).num_rows == len(found.rows)


def placed(found: Any, ranks: list[int], world: int, stages: int, stride: int) -> list[dict[str, Any]]:
    """The map of a run of which these ranks were seen."""
    sizes = replace(found.configuration, world_size=world, pp=stages, pp_stride=stride)
    seen = [replace(found.ranks[0], rank=one, stage=one // stride % stages, max_reserved_bytes=GIB + one) for one in ranks]
    return heat_rows(seen, "max_reserved_bytes", sizes=sizes)


def test_a_rank_that_was_not_seen_keeps_its_place(found: Any) -> None:
    rows = placed(found, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15], 16, 2, 8)
    last = {row["position"]: row for row in rows if row["stage"] == "1"}
    assert [last[at]["who"] for at in range(8)] == ["8", "9", "10", "11", "12", "13", "14", "15"]
    assert [at for at in range(8) if not last[at]["seen"]] == [5]
    assert (last[5]["bytes"], last[5]["text"]) == (None, "not seen")
    assert last[6]["bytes"] == GIB + 14


def test_places_follow_a_layout_whose_stages_alternate(found: Any) -> None:
    rows = placed(found, [0, 5], 8, 2, 2)
    assert [(row["stage"], row["position"], row["who"]) for row in rows if row["stage"] == "1"] == [
        ("1", 0, "2"), ("1", 1, "3"), ("1", 2, "6"), ("1", 3, "7")]
    assert [(row["stage"], row["position"]) for row in rows if row["seen"]] == [("0", 0), ("0", 3)]


def test_four_thousand_ranks_share_places_that_show_the_fullest_seen(found: Any) -> None:
    rows = placed(found, [0, 1, 2, 3, 4095], 4096, 8, 512)
    assert len(rows) == 8 * WIDE
    assert [(row["who"], row["seen"], row["of"]) for row in rows if row["seen"]] == [
        ("3, the fullest of 4 seen here", 4, 4), ("4095, the fullest of 1 seen here", 1, 4)]
    assert rows[1]["who"] == "4 to 7"


def test_sizes_that_do_not_hold_place_nobody(found: Any) -> None:
    wrong = replace(found.configuration, world_size=16, pp=4, pp_stride=2)
    rows = heat_rows(found.ranks, "max_reserved_bytes", sizes=wrong)
    assert len(rows) == len(found.ranks)
    assert all(row["seen"] == 1 for row in rows)


def test_the_tornado_has_both_signs_and_the_largest_first() -> None:
    def change(sentence: str, saved: int | None) -> Sensitivity:
        return Sensitivity("a", sentence, {}, saved, None, "", "", "", "")

    found = [change("small (why)", 3), change("dear", -5 * GIB), change("good", 7 * GIB), change("nothing", 0), change("refused", None)]
    assert [(row["what"], row["kind"], row["bytes"]) for row in plan_charts.tornado(found).rows] == [
        ("good", "saves", -7 * GIB), ("dear", "costs", 5 * GIB), ("small", "saves", -3)]


def test_rows_of_several_types_become_a_table() -> None:
    found = table_of([{"rank": 3, "what": "a"}, {"rank": "last", "bytes": 7}])
    assert found.to_pylist() == [{"rank": "3", "what": "a", "bytes": None}, {"rank": "last", "what": None, "bytes": 7}]
