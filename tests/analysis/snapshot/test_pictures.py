"""The reduced timeline, the treemap, the segment map and the charts: no peak lost, areas true, marks bounded."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from analysis.snapshot import charts
from analysis.snapshot.compare import compare, paired
from analysis.snapshot.segment_rows import segment_rows
from analysis.snapshot.timeline import MARKS, m4
from analysis.snapshot.trace import from_columns
from analysis.snapshot.treemap import squarified, tiles
from analysis.snapshot.view import Device, devices
from tests.analysis.snapshot.made import MIB, Maker
from tests.analysis.snapshot.test_levels import busy


def device_of(maker: Maker) -> Device:
    return devices(from_columns(maker.columns()))[0]


def test_m4_keeps_every_columns_first_lowest_highest_and_last() -> None:
    level = np.random.default_rng(1).integers(0, 10**9, 12_345)
    kept = m4(level, 100)
    assert len(kept) <= 402
    assert (np.diff(kept) > 0).all()
    for part in np.split(np.arange(len(level)), np.linspace(0, len(level), 101).astype(int)[1:-1]):
        inside = kept[(kept >= part[0]) & (kept <= part[-1])]
        assert set(inside.tolist()) >= {part[0], part[-1]}
        assert level[inside].max() == level[part].max()
        assert level[inside].min() == level[part].min()
    assert m4(level[:50], 100).tolist() == list(range(50))


def test_classes_of_the_timeline_add_up_and_keep_the_peak() -> None:
    device = device_of(busy(3, steps=3_000))
    found = device.timeline()
    assert found.of_class.sum(axis=0).tolist() == device.levels.requested[found.event + 1].tolist()
    assert device.peak.event in found.event
    assert found.reserved.tolist() == device.levels.reserved[found.event + 1].tolist()
    part = device.timeline(100, 140)
    assert part.event.tolist() == list(range(100, 141))


def test_marks_are_bounded() -> None:
    maker = Maker()
    maker.segment(2**36)
    for at in range(9_000):
        maker.alloc(MIB, (f"/w/{'model' if at % 2 else 'loss'}.py:1 {'forward' if at % 2 else 'cross_entropy'}",))
    device = device_of(maker)
    found = device.timeline()
    assert len(found.event) * (len(found.categories) + 2) + 2 <= MARKS
    assert len(segment_rows(device, device.peak.event)) <= MARKS


def test_a_treemaps_areas_are_its_bytes() -> None:
    shares = [(f"stack {at}", "weights" if at % 3 else "input", size) for at, size in enumerate((500, 400, 300, 120, 80, 30, 5, 1))]
    found = tiles(shares)
    assert {one.name: round(one.width * one.height * 1436) for one in found} == {name: size for name, _, size in shares}
    assert all(one.x >= -1e-9 and one.x + one.width <= 1 + 1e-9 and one.y + one.height <= 1 + 1e-9 for one in found)
    few = tiles(shares, most=3)
    assert sum(one.bytes for one in few) == 1436
    assert [one.bytes for one in few if one.name == "other stacks"] == [120 + 30, 80 + 5 + 1] or len(few) == 5
    assert squarified([], (0, 0, 1, 1)) == []


def test_the_segment_map_covers_each_segment_once() -> None:
    device = device_of(busy(5))
    rows = segment_rows(device, device.peak.event)
    for name in {row["segment"] for row in rows}:
        inside = [(row["start"], row["stop"]) for row in rows if row["segment"] == name]
        assert inside[0][0] == 0
        assert all(stop == start for (_, stop), (start, _) in pairwise(inside))
    assert sum(row["bytes"] for row in rows if row["class"] != charts.FREE) == device.levels.low[device.peak.event + 1]


@pytest.mark.parametrize("by_time", [False, True])
def test_every_chart_is_a_whole_specification(by_time: bool) -> None:
    device, other = device_of(busy(1)), device_of(busy(2))
    times = device.trace.events.time_us if by_time else None
    peak = device.peak.event
    drawn = [charts.timeline_chart(device.timeline(), device.peak, 80 * 2**30, times),
             charts.composition_bar([(one.name, one.bytes) for one in device.by_class(peak)]),
             charts.treemap(tiles([(one.name, one.category, one.bytes) for _, one in device.by_stack(peak)])),
             charts.segment_map(segment_rows(device, peak)), charts.pool_bars(device.layout.pools(), 0),
             charts.staircase(device.levels.reserved, device.risers), charts.compared_bars(compare(device, other), "a", "b")]
    assert all(one.chart.to_dict()["$schema"] and one.alt for one in drawn)


def test_lone_devices_are_compared_whatever_their_index_and_others_by_it() -> None:
    one, two, three = (device_of(Maker(device=index)) if index < 0 else _lone(index) for index in (0, 1, 2))
    assert paired((one,), (two,)) == [(one, two)]
    assert paired((one, two), (two, three)) == [(two, two)]


def _lone(index: int) -> Device:
    maker = Maker(device=index)
    maker.segment(MIB)
    return device_of(maker)
