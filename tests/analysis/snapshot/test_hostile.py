"""Columns that no allocator would write: every answer is still given, as JSON, text and pictures, without a warning."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from analysis.snapshot import charts
from analysis.snapshot.compare import compare
from analysis.snapshot.report import as_json, compared_json
from analysis.snapshot.segment_rows import segment_rows
from analysis.snapshot.text import as_text
from analysis.snapshot.trace import from_columns
from analysis.snapshot.treemap import tiles
from analysis.snapshot.view import devices
from ingest.parsers.snapshot.columns import ACTIONS, ANNOTATIONS, BLOCKS, EVENTS, FRAMES, SEGMENTS, STACKS, STATES, SnapshotColumns

TEXTS = ("small", "large", "0,0", "0,1", "START", "END", "Optimizer.step#A", "x", "a.py", "forward", "backward", "")
SETTINGS: tuple[dict[str, Any], ...] = (
    {}, {"max_split_size": "x", "roundup_power2_divisions": {"1": "a", "2": 3, "q": 1}},
    {"roundup_power2_divisions": {"1": 8}, "max_split_size": 1000},
    {"expandable_segments": True})


def absurd(seed: int) -> SnapshotColumns:
    """Any action at any address with any size."""
    chance = random.Random(seed)
    pick = chance.choice

    def number() -> int:
        return pick((0, 1, 512, 10**6, 2**40, -5, 2**62, -2**63, 2**63 - 1)) if chance.random() < 0.1 else chance.randrange(2**24)

    events = [{"device": pick((0, 0, 0, 3)), "action": chance.randrange(len(ACTIONS) + 2), "address": pick((0, 4096, 8192, -4096, 2**20, number())),
               "size_bytes": number(), "stream": pick((0, 7, -1)), "time_us": pick((None, 5, 9, number())), "stack": pick((None, 0, 1, 2)),
               "pool": pick((None, 2, 3)), "metadata": None, "context": None} for _ in range(pick((0, 1, 2, 30, 200)))]
    segments = [{"device": pick((0, 3)), "address": pick((4096, number())), "size_bytes": number(), "stream": pick((0, 7)),
                 "kind": pick((0, 1, None)), "pool": pick((None, 2, 3)), "expandable": pick((None, True, False)),
                 "stack": pick((None, 0))} for _ in range(pick((0, 1, 5)))]
    blocks = [{"segment": chance.randrange(len(segments)), "address": number(), "size_bytes": number(), "requested_bytes": pick((None, number())),
               "state": chance.randrange(len(STATES) + 1), "stack": pick((None, 0, 2))} for _ in range(20 * bool(segments))]
    notes = [{"device": pick((None, 0, -1, 3)), "stage": pick((4, 5, None)), "name": pick((6, 7, None)), "time_us": pick((None, 6, number()))}
             for _ in range(4)]
    table = pa.Table.from_pylist
    frames = table([{"name": 9, "filename": 8, "line": None}, {"name": None, "filename": None, "line": -3}], FRAMES)
    return SnapshotColumns(
        "absurd", 0, 4, table(sorted(events, key=lambda event: event["device"]), EVENTS), table(segments, SEGMENTS), table(blocks, BLOCKS),
        table(notes, ANNOTATIONS), table([{"frames": []}, {"frames": [0]}, {"frames": [1, 0]}], STACKS), frames, pa.array(TEXTS),
        actions=(*ACTIONS, "annotate", "weird"), states=(*STATES, "active_new"), settings=pick(SETTINGS))


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 200))])
def test_absurd_columns_are_answered(seed: int) -> None:
    found = devices(from_columns(absurd(seed)))
    assert json.dumps(as_json(found))
    for device in found:
        assert max(map(len, as_text(device, "x").splitlines())) < 400
        peak = device.peak.event
        assert charts.timeline_chart(device.timeline(), device.peak, None, device.trace.events.time_us).chart.to_dict()
        assert charts.treemap(tiles([(one.name, one.category, one.bytes) for _, one in device.by_stack(peak)])).chart.to_dict()
        for event in (-1, (len(device.trace.events) - 1) // 2, peak):
            assert segment_rows(device, event) is not None
            assert device.moment(event).phase
        assert json.dumps(compared_json(compare(found[0], device)))
