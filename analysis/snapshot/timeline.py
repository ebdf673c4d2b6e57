"""The level of each class over the trace, reduced to what a picture can show (M4).

A picture of a million events has some thousand columns. For each column the first, the last, the lowest and the highest instant are
kept, so that no peak is lost (Jugel and others, "M4: A Visualization-Oriented Time Series Data Aggregation", 2014); the classes are
sampled at those instants of the total, so that their stack adds up to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.snapshot.classes import Classes
from analysis.snapshot.lives import Lives
from analysis.snapshot.rules import CATEGORIES
from analysis.snapshot.trace import Ints

MARKS = 5_000


@dataclass(frozen=True, slots=True)
class Timeline:
    """Levels after the events in `event` (-1 is before the first), bytes: `of_class[c]` for each class in `categories`, and `reserved`."""

    event: Ints
    categories: tuple[str, ...]
    of_class: Ints
    reserved: Ints


def timeline(lives: Lives, classes: Classes, level: Ints, reserved: Ints, start: int = -1, stop: int | None = None, marks: int = MARKS) -> Timeline:
    """The classes that hold anything between two events, at no more than `marks` points in all.

    A picture draws each instant once a class, once as reserved and once to be pointed at, and marks the peak and the capacity.
    """
    last = len(level) - 2 if stop is None else min(stop, len(level) - 2)
    start = max(-1, min(start, last))
    shown = classes.category[(lives.birth <= last) & (lives.completed_at > start)]
    present = np.unique(shown).tolist()
    at = m4(level[start + 1:last + 2], max(1, ((marks - 2) // (len(present) + 2) - 2) // 4)) + start + 1
    of_class = np.stack([_level(lives, classes.category == code)[at] for code in present]) if present else np.zeros((0, len(at)), np.int64)
    return Timeline(at - 1, tuple(CATEGORIES[code] for code in present), of_class, reserved[at])


def m4(level: Ints, columns: int) -> Ints:
    """Rows of the first, lowest, highest and last value of each of so many columns, in order, each once."""
    count = len(level)
    if count <= 4 * columns:
        return np.arange(count, dtype=np.int64)
    edges = np.linspace(0, count, columns + 1).astype(np.int64)
    kept = {0, count - 1}
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = level[start:stop]
        kept.update((start, start + int(np.argmin(part)), start + int(np.argmax(part)), stop - 1))
    return np.array(sorted(kept), np.int64)


def _level(lives: Lives, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """The requested bytes of these lives after each event; row 0 is before the first."""
    change = np.zeros(lives.events + 2, np.int64)
    np.add.at(change, lives.birth[mine] + 1, lives.size[mine])
    np.subtract.at(change, lives.completed_at[mine] + 1, lives.size[mine])
    return np.cumsum(change)[:-1].astype(np.int64)
