"""What lies in the largest segments at an instant, as rectangles: blocks by class, free stretches between them.

Neighbours of one class share a rectangle when there are more than a picture can show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.snapshot.charts import FREE
from analysis.snapshot.layout import Layout
from analysis.snapshot.rules import CATEGORIES
from analysis.snapshot.trace import Ints
from analysis.snapshot.view import Device

MIB = 2**20
SEGMENTS, MARKS = 40, 4_000

Row = dict[str, Any]


def segment_rows(device: Device, event: int, most: int = SEGMENTS) -> list[Row]:
    """Rectangles of the largest segments after an event, the largest segment first."""
    layout, lives = device.layout_after(event), device.lives
    live = np.flatnonzero(lives.live_after(event))
    live = live[np.argsort(lives.address[live])]
    largest = np.argsort(-layout.size, kind="stable")[:most]
    share = max(1, MARKS // max(len(largest), 1) // 2)
    return [row for at in largest.tolist() for row in _segment(device, layout, at, live, share)]


def _segment(device: Device, layout: Layout, at: int, live: Ints, most: int) -> list[Row]:
    lives, start, size = device.lives, int(layout.address[at]), int(layout.size[at])
    first, last = np.searchsorted(lives.address[live], (start, start + size))
    inside = live[first:last]
    stretches = _merged([(int(lives.address[row]) - start, int(lives.low[row]), CATEGORIES[device.classes.category[row]], int(lives.stack[row]))
                         for row in inside.tolist()], most)
    name = f"{start & 2**64 - 1:#x} {layout.kind[at]}"
    rows, reached = [], 0
    for offset, length, category, stack in stretches:
        if offset > reached:
            rows.append(_row(name, reached, offset, FREE, ""))
        rows.append(_row(name, offset, min(offset + length, size), category, device.stacks.owner(stack) if stack >= 0 else ""))
        reached = max(reached, offset + length)
    return rows + ([_row(name, reached, size, FREE, "")] if reached < size else [])


def _merged(blocks: list[tuple[int, int, str, int]], most: int) -> list[tuple[int, int, str, int]]:
    """Blocks as they are, or where there are too many neighbours of one class as one (named by the first)."""
    if len(blocks) <= most:
        return blocks
    merged: list[tuple[int, int, str, int]] = []
    for offset, length, category, stack in blocks:
        if merged and merged[-1][2] == category:
            merged[-1] = (merged[-1][0], offset + length - merged[-1][0], category, merged[-1][3])
        else:
            merged.append((offset, length, category, stack))
    return merged[:most]


def _row(segment: str, start: int, stop: int, category: str, name: str) -> Row:
    return {"segment": segment, "start": start / MIB, "stop": stop / MIB, "class": category, "bytes": stop - start, "name": name}
