"""The expectation of one kind of rank: bytes by class, steady state, peak and its instant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankExpectation:
    """What one rank should hold, in bytes.

    `classes` are what stands after the optimizer step, as Megatron logs it (weights, gradients, optimizer, boundary, workspaces,
    buffers, leftovers): their sum is `steady_allocated_bytes`. `peak_classes` are what lives at `peak_instant`: their sum is
    `peak_allocated_bytes`. `low` and `high` bound the middle 90 % of cross-validated residuals. `parameters` is the number
    of parameters on the rank, exact. `rank` is None for a whole stage.
    """

    rank: int | None
    pp: int
    tp: int | None
    cp: int | None
    dp: int | None
    ep: int | None
    parameters: int
    classes: dict[str, int]
    peak_classes: dict[str, int]
    steady_allocated_bytes: int
    steady_low_bytes: int
    steady_high_bytes: int
    peak_allocated_bytes: int
    peak_low_bytes: int
    peak_high_bytes: int
    peak_instant: str
    assumptions: tuple[str, ...]
