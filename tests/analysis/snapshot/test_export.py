"""Exports: times and annotations in order, a trace without times, separators inside frames."""

from __future__ import annotations

import json

import pytest

from analysis.snapshot.export import folded, perfetto
from analysis.snapshot.trace import from_columns
from analysis.snapshot.view import devices
from tests.analysis.snapshot.made import MIB, Maker


def _made():
    maker = Maker()
    maker.segment(20 * MIB)
    first = maker.alloc(3 * MIB, ("a;b.py:1 f", "main.py:2 g"))
    maker.alloc(2 * MIB, ("c.py:3 h", "main.py:2 g"))
    maker.free(first)
    return maker


def test_a_frame_with_a_separator_stays_one_frame():
    lines = list(folded(devices(from_columns(_made().columns()))))
    assert sorted(int(line.rpartition(" ")[2]) for line in lines) == [2 * MIB, 3 * MIB]
    stack = next(line for line in lines if line.endswith(f" {3 * MIB}\n")).rpartition(" ")[0].split(";")
    assert stack[0] == "device 0"
    assert stack[2:] == ["main.py:2 g", "a,b.py:1 f"]


def test_counters_follow_the_true_levels():
    maker = _made()
    events = json.loads("".join(perfetto(devices(from_columns(maker.columns())))))["traceEvents"]
    counters = [event for event in events if event["name"] == "requested by class"]
    assert [sum(event["args"].values()) for event in counters][1:] == maker.truth
    assert [event["ts"] for event in counters] == sorted(event["ts"] for event in counters)


@pytest.mark.parametrize("found", [()])
def test_nothing_is_an_empty_trace(found):
    assert json.loads("".join(perfetto(found))) == {"displayTimeUnit": "ms", "traceEvents": []}
    assert list(folded(found)) == []
