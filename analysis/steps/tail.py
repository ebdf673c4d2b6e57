"""The tail of a stage's step peaks by peaks over threshold: the chance of a peak that was never seen, where enough was seen to say so.

Excesses over a high threshold follow a generalised Pareto law (Pickands, Annals of Statistics 3, 1975); its two parameters come from
probability-weighted moments (Hosking and Wallis, Technometrics 29, 1987), which stay stable for few hundred excesses where likelihood does not. The
interval is that of resampled steps: whole steps, since ranks of one step share their batch. It is used only over exchangeable ranks of one stage,
with at least 500 steps and 50 excesses, and no further out than twice the reach of the seen excesses: beyond that the law would speak, not the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_STEPS, LEAST_EXCESSES = 500, 50
_SHARE = 0.1
_RESAMPLES = 200

Peaks = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tail:
    """Chance that a rank's peak passes `limit_bytes` in one step: the estimate and its 95 % interval; or why it is not given."""

    limit_bytes: int
    threshold_bytes: int
    steps: int
    excesses: int
    chance: float | None
    low: float | None
    high: float | None
    refused: str | None = None


def tail(peaks: Peaks, steps: NDArray[np.int64], limit_bytes: int) -> Tail:
    """The tail of `peaks` (bytes), each of one rank in the step of the same place in `steps`."""
    names, place = np.unique(steps, return_inverse=True)
    threshold = float(np.quantile(peaks, 1 - _SHARE)) if len(peaks) else 0.0
    excess = peaks[peaks > threshold] - threshold
    known = (limit_bytes, round(threshold), len(names), len(excess))
    if len(names) < LEAST_STEPS:
        return Tail(*known, None, None, None, f"{len(names)} steps; a tail wants {LEAST_STEPS}")
    if len(excess) < LEAST_EXCESSES:
        return Tail(*known, None, None, None, f"{len(excess)} peaks above the threshold; a tail wants {LEAST_EXCESSES}")
    if limit_bytes - threshold > 2 * float(excess.max()):
        return Tail(*known, None, None, None, "the limit lies more than twice as far above the threshold as any peak seen: beyond the data")
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(len(names) + 1))
    chance = np.random.default_rng(1)
    drawn = [_passing(_resampled(peaks[order], bounds, chance.integers(0, len(names), len(names))), threshold, limit_bytes)
             for _ in range(_RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Tail(*known, _passing(peaks, threshold, limit_bytes), float(low), float(high))


def _resampled(peaks: Peaks, bounds: NDArray[np.int64], steps: NDArray[np.int64]) -> Peaks:
    return np.concatenate([peaks[bounds[step]:bounds[step + 1]] for step in steps])


def _passing(peaks: Peaks, threshold: float, limit: float) -> float:
    """Share of peaks above the limit by the fitted law; what was seen where the limit lies below the threshold."""
    if limit <= threshold:
        return float(np.mean(peaks > limit))
    excess = np.sort(peaks[peaks > threshold]) - threshold
    if len(excess) < 2:
        return 0.0
    count = len(excess)
    mean, weighted = float(excess.mean()), float(np.mean(excess * (count - np.arange(1, count + 1)) / (count - 1)))
    shape = mean / (mean - 2 * weighted) - 2 if mean != 2 * weighted else 0.0
    scale = 2 * mean * weighted / (mean - 2 * weighted) if mean != 2 * weighted else mean
    share, far = count / len(peaks), limit - threshold
    if abs(shape) < 1e-9:
        return share * float(np.exp(-far / scale))
    within = 1 - shape * far / scale
    return share * float(within ** (1 / shape)) if within > 0 else 0.0
