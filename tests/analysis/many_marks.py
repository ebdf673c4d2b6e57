"""Every chart function on so many rows as it is given, each with one row that sticks out, for the test that bounds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from typing import Any

import numpy as np

from analysis.charts import diff as diff_charts
from analysis.charts import fleet as fleet_charts
from analysis.charts import ledger as ledger_charts
from analysis.charts import plan as plan_charts
from analysis.charts import ranks as charts
from analysis.charts import steps as step_charts
from analysis.charts import theory as theory_charts
from analysis.charts.communication import communication_bars
from analysis.charts.picture import Picture
from analysis.communication.rows import RankCommunication
from analysis.database import from_rows
from analysis.diff.rows import Change, Size
from analysis.overview import overview
from analysis.plan.change import Plan, PlannedStage, Sensitivity
from analysis.reconcile import PARTS, Gap, Ledger
from analysis.rows import Comparison, Overview, Rank, Riser, Source, Stage
from analysis.snapshot import charts as snapshot_charts
from analysis.snapshot.layout import Pool
from analysis.snapshot.levels import Peak
from analysis.snapshot.risers import Riser as SnapshotRiser
from analysis.snapshot.rules import CATEGORIES
from analysis.snapshot.timeline import Timeline
from analysis.snapshot.treemap import tiles
from analysis.steps.fullest import Fullest, Move
from analysis.theory.leftout import LeftOut
from analysis.theory.logits import Part
from analysis.theory.terms import Term
from tests.analysis.made import GIB, dense_run
from tests.analysis.test_reconcile import run_of

HERE = Source("run.log", 7)
WORST = 70 * GIB
"""The size that sticks out, a third of the way in; the others are below 2 GiB."""


def sizes(count: int) -> list[int]:
    found = [GIB + at % 1000 for at in range(count)]
    found[count // 3] = WORST
    return found


@cache
def _dense() -> Overview:
    return overview(from_rows(dense_run()), "file")


@cache
def _with_a_ledger() -> Ledger:
    found = run_of().ledger
    assert found is not None
    return found


def _ranks(count: int) -> list[Rank]:
    first = _dense().ranks[0]
    return [replace(first, rank=at, stage=at % 8, max_reserved_bytes=size) for at, size in enumerate(sizes(count))]


def _stages(count: int) -> list[Stage]:
    first = _dense().stages[0]
    return [replace(first, stage=at, max_reserved_bytes=size) for at, size in enumerate(sizes(count))]


def _ledger(count: int) -> Picture:
    ledger = _with_a_ledger()
    first = ledger.expected.stages[0]
    stages = {at: replace(first, pp=at, peak_classes={"weights": size}, peak_allocated_bytes=size) for at, size in enumerate(sizes(count))}
    return ledger_charts.ledger_bars(replace(ledger, expected=replace(ledger.expected, stages=stages)))


def _gaps(count: int) -> Picture:
    nothing = dict.fromkeys(PARTS)
    return ledger_charts.gap_bars([Gap(at, at, "expected", 0, size, size, {**nothing, "unexplained": size}, {})
                                   for at, size in enumerate(sizes(count))])


def _cells(count: int) -> Picture:
    """As `step_heat` gives them: never more than 5,000, of which all may be near."""
    kept = min(count, 5_000)
    rows = [{"first_rank": at // 100, "last_rank": at // 100, "first_iteration": at % 100, "last_iteration": at % 100, "headroom_bytes": size,
             "worst_rank": at // 100, "worst_iteration": at % 100, "near": True, "exact": True} for at, size in enumerate(sizes(kept))]
    return step_charts.step_map(rows)


def _fullest(count: int) -> Picture:
    moved = tuple(Move(at, at - 1, at % 9, size) for at, size in enumerate(sizes(count)))
    return step_charts.fullest_line(Fullest("", "", count, 0, 9, count, (), moved))


def _risers(count: int) -> list[Riser]:
    return [Riser(at % 16, at, size, size, "need" if at % 2 else None, size, (), HERE) for at, size in enumerate(sizes(count))]


def _stairs(count: int) -> Picture:
    """As `step_levels` gives them: never more than five readings a stretch."""
    levels = [{"iteration": at, "held_bytes": size, "max_allocated_bytes": size} for at, size in enumerate(sizes(min(count, 2_000)))]
    return step_charts.staircase(levels, _risers(count))


def _plan(count: int) -> Picture:
    stages = tuple(PlannedStage(at, size, size, size, size, 0, size, 0, "fits", {}, "x") for at, size in enumerate(sizes(count)))
    return plan_charts.plan_bars(Plan({}, 1, {}, stages, 0, WORST, 0, 0, "fits", ()))


def _sensitivities(count: int) -> list[Sensitivity]:
    return [Sensitivity(f"a{at}", f"change {at}", {}, size * (1 if at % 2 else -1), None, "", "", "", "") for at, size in enumerate(sizes(count))]


def _spread(count: int) -> Picture:
    quantiles = ("least", "low", "quarter", "middle", "three_quarters", "high", "most")
    return fleet_charts.ratio_boxes([{"family": f"f{at}", "against": against, "stages": size, "bytes": size, **dict.fromkeys(quantiles, 1.0)}
                                     for at, size in enumerate(sizes(count)) for against in ("over printed", "over expected")])


def _near(count: int) -> Picture:
    day = date(2020, 1, 1)
    return fleet_charts.near_bars([{"day": day + timedelta(days=at), "near_class": one, "ranks": 1, "bytes": WORST} for at in range(count)
                                   for one in ("stable", "clear")])


def _errors(count: int) -> Picture:
    rows = [{"stage": at, "stages": count, "oom_case": "A"} for at in range(count)] + [{"stage": count // 3, "stages": count, "oom_case": "A"}] * 5
    return fleet_charts.error_bars(rows)


def _communication(count: int) -> Picture:
    return communication_bars([RankCommunication(at, f"rank {at}", 1, size, size, size, {}, None, None, None, None, None, None, size, None, HERE)
                               for at, size in enumerate(sizes(count))])


def _timeline(count: int) -> Picture:
    """As `timeline` gives it: (classes + 2) times its instants are below 5,000."""
    kept = min(count, (5_000 - 2) // (len(CATEGORIES) + 2))
    level = np.array(sizes(kept), np.int64)
    found = Timeline(np.arange(kept, dtype=np.int64) * 10, CATEGORIES, np.stack([level] * len(CATEGORIES)), level)
    return snapshot_charts.timeline_chart(found, Peak(WORST, kept // 3 * 10), 80 * GIB)


def _segments(count: int) -> Picture:
    return snapshot_charts.segment_map([{"segment": f"s{at % 20}", "start": at, "stop": at + 1, "class": "weights", "bytes": size, "name": ""}
                                        for at, size in enumerate(sizes(count))])


def _pools(count: int) -> Picture:
    return snapshot_charts.pool_bars([Pool(at, "large", "", False, 1, size, size, 0, size, 0, 0, 0) for at, size in enumerate(sizes(count))], 0)


def _snapshot_stairs(count: int) -> Picture:
    risers = [SnapshotRiser(at, at, size, size, size, 0, 0, 0, 0, 0, "need") for at, size in enumerate(sizes(count))]
    return snapshot_charts.staircase(np.array([0, *sizes(count)], np.int64), risers)


FUNCTIONS: dict[str, Callable[[int], Picture]] = {
    "heat_map": lambda count: charts.heat_map(_ranks(count)),
    "stage_bars": lambda count: charts.stage_bars(_stages(count)),
    "theory_bars": lambda count: charts.theory_bars([Comparison(at, 0, f"p{at}", 1, "peak", size, 1.0, HERE)
                                                     for at, size in enumerate(sizes(count))]),
    "left_out_bars": lambda count: charts.left_out_bars([LeftOut(f"e{at}", size, "last", "") for at, size in enumerate(sizes(count))]),
    "ledger_bars": _ledger, "gap_bars": _gaps, "step_map": _cells, "fullest_line": _fullest,
    "staircase": _stairs, "riser_dots": lambda count: step_charts.riser_dots(_risers(count)),
    "plan_bars": _plan, "tornado": lambda count: plan_charts.tornado(_sensitivities(count)),
    "ratio_boxes": _spread, "near_bars": _near, "error_bars": _errors,
    "explained_bars": lambda count: diff_charts.explained_bars([Change("argument", f"n{at}", "1", "2", size, None)
                                                                for at, size in enumerate(sizes(count))]),
    "measured_bars": lambda count: diff_charts.measured_bars([Size(f"stage {at}", "max_allocated_bytes", 0, size)
                                                              for at, size in enumerate(sizes(count))]),
    "class_bars": lambda count: diff_charts.class_bars([Size(f"stage {at}", "weights", 0, size) for at, size in enumerate(sizes(count))]),
    "communication_bars": _communication,
    "term_bars": lambda count: theory_charts.term_bars([Term("activation", f"t{at}", "", "", size) for at, size in enumerate(sizes(count))]),
    "last_stage_bars": lambda count: theory_charts.last_stage_bars([Part(f"p{at}", "peak", size, size)
                                                                    for at, size in enumerate(sizes(count))], (1, 2)),
    "timeline_chart": _timeline, "segment_map": _segments, "pool_bars": _pools, "snapshot_staircase": _snapshot_stairs,
    "treemap": lambda count: snapshot_charts.treemap(tiles([(f"n{at}", "weights", size) for at, size in enumerate(sizes(count))], count)),
}
"""Each chart function on `count` rows. Those of one bar a class are bounded by the classes there are: `composition_bar`, `compared_bars`."""
BOUNDED_BY_CLASSES = ("composition_bar", "compared_bars", "empty_timeline")


def drawn(spec: dict[str, Any]) -> int:
    """Marks of a chart: of each view with a mark the rows of its data, filters left aside."""
    def rows(view: dict[str, Any], inherited: dict[str, Any] | None) -> int:
        data = view.get("data", inherited)
        if "layer" in view:
            return sum(rows(one, data) for one in view["layer"])
        assert data is not None
        return len(data["values"] if "values" in data else spec["datasets"][data["name"]])

    return rows(spec, None)
