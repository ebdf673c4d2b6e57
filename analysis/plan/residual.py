"""What a run measured above or below its expectation, and how much of it stays under other settings.

A residual has two parts: that of what stands after a step, and that of what the peak has above it. What lay above the expectation stays in
bytes, because nothing tells what it was. What lay below belongs to bytes that were expected and not there: where a change leaves fewer of
them, less of it can be missing, so it shrinks with its own part and never grows. A peak is then never below its steady state, nor that below 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.expected import RankExpectation


@dataclass(frozen=True, slots=True)
class Residual:
    """Measured - expected in bytes: after a step, and of what the peak has above that."""

    steady: int
    above: int

    @property
    def peak(self) -> int:
        """Of the peak."""
        return self.steady + self.above


def residual_of(row: RankExpectation, peak: int, steady: int | None) -> Residual:
    """The residual of a peak in its two parts; all of it is of the part above the steady state, as far as that goes, where only the peak is known."""
    above = max(peak - (steady or 0), row.steady_allocated_bytes - row.peak_allocated_bytes)
    rest = max(peak - above, -row.steady_allocated_bytes)
    return Residual(rest, peak - rest)


def kept(residual: Residual, was: RankExpectation, now: RankExpectation) -> Residual:
    """What stays of the residual of `was` where `now` is expected."""
    return Residual(_kept(residual.steady, was.steady_allocated_bytes, now.steady_allocated_bytes),
                    _kept(residual.above, _above(was), _above(now)))


def _above(row: RankExpectation) -> int:
    return row.peak_allocated_bytes - row.steady_allocated_bytes


def _kept(size: int, was: int, now: int) -> int:
    return size if size >= 0 or now >= was else size * now // was
