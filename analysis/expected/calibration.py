"""90 % intervals from residuals of measured runs, or from a fleet's own history.

The bytes themselves are derived, not fitted; what is fitted is how far measured runs of each kind lay from them. `residuals.py` holds, a
kind, the 5 % and 95 % quantiles of measured / expected - 1, made by `benchmarks/accuracy.py --write`, which also judges them by
leaving out each (arguments, environment) in turn. A kind is a property of the model and the options, never of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.expected.environment import Environment
from analysis.expected.model import Model
from analysis.expected.options import Options
from analysis.expected.residuals import PEAK, STEADY

LEAST_HISTORY = 10
_UNKNOWN_WORKSPACE = 64 * 2**20
_WIDER = 2.0
JUDGED_INSTANT = "loss"
_UNJUDGED = 0.05

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class History:
    """Measured / expected of a fleet's own runs, steady and peak."""

    steady: Sequence[float] = ()
    peak: Sequence[float] = ()

    def __len__(self) -> int:
        return min(len(self.steady), len(self.peak))


@dataclass(frozen=True, slots=True)
class Interval:
    """Relative bounds of the steady state and the peak, and a number of bytes to widen both by."""

    steady: Bounds
    peak: Bounds
    slack_bytes: int = 0

    def around(self, steady: int, peak: int) -> tuple[int, int, int, int]:
        """Steady low and high, peak low and high; the expected value is always inside."""
        return (*self._bounds(steady, self.steady), *self._bounds(peak, self.peak))

    def _bounds(self, size: int, bounds: Bounds) -> tuple[int, int]:
        low, high = int(size * (1 + bounds[0])) - self.slack_bytes, int(size * (1 + bounds[1])) + self.slack_bytes
        return max(min(low, size), 0), max(high, size)


def kinds(model: Model, options: Options, pp: int) -> tuple[str, str]:
    """The kind of a run whose residuals bound its steady state, and the one for its peak."""
    rare = "sharded" if options.fsdp else "low_precision" if options.fp8 else "latent" if model.mla else None
    if rare:
        return rare, rare
    if any(model.moe_pattern) or "E" in model.pattern:
        return "experts", "experts"
    certain = options.attention is not None or not options.transformer_engine
    return "dense" if pp == 1 else "dense_pipeline", "kernel_asked" if certain else "kernel_chosen"


def interval(kind: tuple[str, str], env: Environment, *, instant: str, unpriced: int, history: History | None) -> Interval:
    """Bounds of a kind of run; wider where options have no price, the GPU is not known, or the peak stands at an instant that hardly any
    measured run peaked at; a fleet's own history comes first."""
    slack = 0 if env.gpu else _UNKNOWN_WORKSPACE
    if history and len(history) >= LEAST_HISTORY:
        return Interval(bounds(sorted(history.steady)), bounds(sorted(history.peak)))
    factor = _WIDER ** min(unpriced, 3)
    peak = _scaled(PEAK[kind[1]], factor)
    if instant != JUDGED_INSTANT:
        peak = min(peak[0], -_UNJUDGED), max(peak[1], _UNJUDGED)
    return Interval(_scaled(STEADY[kind[0]], factor), peak, slack)


def bounds(ratios: Sequence[float], share: float = 0.9) -> Bounds:
    """The middle `share` of sorted measured / expected as relative bounds; the outer order statistic where it falls between two."""
    tail = (1 - share) / 2
    low = int(tail * (len(ratios) - 1))
    return ratios[low] - 1, ratios[len(ratios) - 1 - low] - 1


def _scaled(limits: Bounds, factor: float) -> Bounds:
    return limits[0] * factor, limits[1] * factor
