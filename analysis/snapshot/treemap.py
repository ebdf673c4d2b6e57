"""A treemap by the squarified method: areas in proportion to bytes, sides as equal as they get.

Bruls, Huizing and van Wijk, "Squarified Treemaps", 2000. Classes share the unit square, the stacks of a class share its rectangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LETTERS, LINES = 110, 14
"""Letters and lines of text that fit into the unit square."""

Rectangle = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Tile:
    """One stack of one class in the unit square; `label` is empty where there is no room for it."""

    name: str
    category: str
    bytes: int
    x: float
    y: float
    width: float
    height: float

    @property
    def label(self) -> str:
        """The last words of the name, cut to the tile; empty where fewer than eight letters fit."""
        name, room = self.name.rpartition("/")[2], int(self.width * LETTERS)
        if room < 8 or self.height * LINES < 1:
            return ""
        return name if len(name) <= room else name[:room - 1] + "…"


def tiles(shares: Sequence[tuple[str, str, int]], most: int = 300) -> tuple[Tile, ...]:
    """A tile for each (name, class, bytes); what is beyond `most` becomes one tile of its class."""
    kept = sorted((share for share in shares if share[2] > 0), key=lambda share: -share[2])
    classes: dict[str, list[tuple[str, int]]] = {}
    for rank, (name, category, size) in enumerate(kept):
        inside = classes.setdefault(category, [])
        if rank < most:
            inside.append((name, size))
        elif inside and inside[-1][0] == "other stacks":
            inside[-1] = ("other stacks", inside[-1][1] + size)
        else:
            inside.append(("other stacks", size))
    order = sorted(classes, key=lambda category: -sum(size for _, size in classes[category]))
    outer = squarified([sum(size for _, size in classes[category]) for category in order], (0.0, 0.0, 1.0, 1.0))
    return tuple(Tile(name, category, size, *place) for category, room in zip(order, outer, strict=True)
                 for (name, size), place in zip(classes[category], squarified([size for _, size in classes[category]], room), strict=True))


def squarified(sizes: Sequence[int], room: Rectangle) -> list[Rectangle]:
    """A rectangle (x, y, width, height) inside `room` for each size, in their order; sizes are best given from the largest."""
    x, y, width, height = room
    total, placed, at = sum(sizes), [], 0
    scale = width * height / total if total else 0.0
    areas = [size * scale for size in sizes]
    while at < len(areas):
        side = min(width, height)
        stop = at + 1
        while stop < len(areas) and _worst(areas[at:stop + 1], side) <= _worst(areas[at:stop], side):
            stop += 1
        depth = sum(areas[at:stop]) / side if side else 0.0
        along = y if width >= height else x
        for area in areas[at:stop]:
            length = area / depth if depth else 0.0
            placed.append((x, along, depth, length) if width >= height else (along, y, length, depth))
            along += length
        x, y, width, height = (x + depth, y, width - depth, height) if width >= height else (x, y + depth, width, height - depth)
        at = stop
    return placed


def _worst(areas: Sequence[float], side: float) -> float:
    """The largest ratio of sides in a row of these areas along `side`."""
    total = sum(areas)
    if not total or not side:
        return float("inf")
    return max(max(side * side * area / (total * total), total * total / (side * side * area)) if area else float("inf") for area in areas)
