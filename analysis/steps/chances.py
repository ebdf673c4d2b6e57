"""What a count says about a chance: the 95 % interval, the bound for what was never seen, and how many steps correlated steps are worth.

Wilson's interval (E. B. Wilson, JASA 22, 1927) holds its rate for few trials, where the usual normal one does not; of none in n the exact upper
bound is 1 - 0.05^(1/n), about 3/n. Steps that follow each other look alike: with lag-one correlation r they are worth n (1 - r) / (1 + r)
(the first-order autoregressive case), and only that many are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import TYPE_CHECKING

from ingest.allocator import LARGE_SEGMENT_BYTES

if TYPE_CHECKING:
    from analysis.rows import Source

_Z = 1.959964
_DRIFT = 3.5


def wilson(hits: float, of: float) -> tuple[float, float]:
    """The 95 % interval of a chance seen `hits` times in `of` (not necessarily whole numbers, `of` at least 1); for none or all one-sided."""
    if hits <= 0:
        return 0.0, 1 - 0.05 ** (1 / of)
    if hits >= of:
        return 0.05 ** (1 / of), 1.0
    share, square = hits / of, _Z * _Z
    centre, half = share + square / (2 * of), _Z * sqrt(share * (1 - share) / of + square / (4 * of * of))
    return max(0.0, (centre - half) / (1 + square / of)), min(1.0, (centre + half) / (1 + square / of))


@dataclass(frozen=True, slots=True)
class Starts:
    """How many starts of a run ran out of memory, the 95 % interval of the chance of one start, and where the first error stands."""

    starts: int
    died: int
    low: float | None
    high: float | None
    source: Source | None = None
    changed: tuple[str, ...] = ()


def starts(died: Sequence[bool], source: Source | None = None, changed: tuple[str, ...] = ()) -> Starts | None:
    """Two restarts are two samples of fragmentation and routing; one start says nothing about a chance, and starts between which an argument that
    shapes memory (`changed`) differs are no samples of one: they are counted without an interval."""
    if len(died) < 2:
        return None
    low, high = (None, None) if changed else wilson(sum(died), len(died))
    return Starts(len(died), sum(died), low, high, source, changed)


def drifts(steps: int, correlation: float | None, drift_bytes: float | None) -> bool:
    """Whether a straight line over the steps explains more than chance would (|t| > 3.5 of its correlation) and is no trifle."""
    if correlation is None or drift_bytes is None or not isfinite(correlation) or steps < 4:
        return False
    left = 1 - correlation * correlation
    return abs(drift_bytes) >= LARGE_SEGMENT_BYTES and (left <= 0 or abs(correlation) * sqrt((steps - 2) / left) > _DRIFT)


def effective(steps: int, correlation: float | None) -> float:
    """How many independent steps `steps` are worth; anticorrelation adds none."""
    if correlation is None or not isfinite(correlation) or correlation <= 0 or steps < 2:
        return float(steps)
    return max(1.0, steps * (1 - correlation) / (1 + correlation))


def chance(hits: int, of: int, correlation: float | None = None) -> tuple[float, float]:
    """`wilson` at the effective number of steps, the share kept."""
    worth = effective(of, correlation)
    return wilson(hits / of * worth, worth)
