"""Where the gap goes: for each measured rank, what was printed and expected against what it held, split into named parts that add up to the byte.

gap = (max reserved + outside torch) - printed total; where nothing was printed, it is taken from the expected peak instead. Its parts:
resident difference (expected after a step - printed weight and optimizer), activation difference (expected peak above that, without the head -
printed activation), last-stage head (loss and logits expected on that rank), cached (max reserved - max allocated), outside torch
(device used - reserved), unexplained (max allocated - expected peak). A part that cannot be measured is null with its reason and in no sum:
the gap is then the sum of the others, never a guess. Method: docs/methods/gap.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from analysis.expected import RankExpectation, expect_stages
from analysis.rows import Rank, Theory
from analysis.theory.arguments import native_args
from ingest.errors import LedgerError

PARTS = ("resident_difference", "activation_difference", "last_stage_head", "cached", "outside_torch", "unexplained")
HEAD = ("loss", "deferred_gradients")
"""Classes of the peak that only the stage with the loss has."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What each stage should hold, and how the question was put; empty with a `reason` where the arguments do not lay it out."""

    stages: Mapping[int, RankExpectation] = field(default_factory=dict)
    reason: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    microbatches: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu: str | None = None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was assumed for any stage, each once."""
        return tuple(dict.fromkeys(one for row in self.stages.values() for one in row.assumptions))


@dataclass(frozen=True, slots=True)
class Gap:
    """One measured rank. `parts` in bytes by the names of `PARTS`, null where not measurable; those that are not null add up to `gap_bytes`."""

    rank: int
    stage: int | None
    against: Literal["printed", "expected"]
    base_bytes: int
    held_bytes: int
    gap_bytes: int
    parts: Mapping[str, int | None]
    missing: Mapping[str, str]
    allocated_bytes: int | None = None
    expected_steady_bytes: int | None = None
    max_allocated_bytes: int | None = None
    expected_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StageDifference:
    """What a stage should hold above its neighbour at the peak, by class, largest first; bytes."""

    stage: int
    neighbour: int
    expected_bytes: int
    measured_bytes: int | None
    classes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The expected ledger of an attempt beside what was measured."""

    expected: Expected
    gaps: tuple[Gap, ...]
    differences: tuple[StageDifference, ...]


def ledger_of(expected: Expected, ranks: Sequence[Rank], theory: Theory | None) -> Ledger:
    """Gaps of the measured ranks, and why the first and the last stage differ from the stage beside them."""
    return Ledger(expected, gaps(ranks, theory, expected), differences(expected, ranks))


def expected_of(args: Mapping[str, Any], microbatches: int | None, environment: Mapping[str, str], gpu: str | None) -> Expected:
    """The expected ledger of an attempt by stage, or why there is none."""
    if not (args.get("num_layers") or args.get("hybrid_layer_pattern")) or not args.get("hidden_size"):
        return Expected(reason="the arguments do not tell the model: no argument dump in the artifacts")
    if microbatches is None:
        return Expected(reason="the number of micro-batches is not known")
    args = native_args(args)
    try:
        rows = expect_stages(args, microbatches=microbatches, env=environment, gpu=gpu)
    except LedgerError as error:
        return Expected(reason=error.what)
    return Expected({row.pp: row for row in rows}, None, args, microbatches, environment, gpu)


def gaps(ranks: Sequence[Rank], theory: Theory | None, expected: Expected) -> tuple[Gap, ...]:
    """One row a measured rank whose number and peak are known; empty where neither a printed nor an expected total is."""
    found = (gap_of(rank, theory, expected) for rank in ranks if rank.rank is not None and rank.max_allocated_bytes is not None)
    return tuple(one for one in found if one is not None)


def gap_of(rank: Rank, theory: Theory | None, expected: Expected) -> Gap | None:
    """The gap of one rank, or None where there is nothing to hold its peak against."""
    row = expected.stages.get(rank.stage) if rank.stage is not None else None
    printed = theory.total_bytes if theory else None
    if rank.rank is None or rank.max_allocated_bytes is None or (printed is None and row is None):
        return None
    parts, missing = _measured(rank)
    if printed is None:
        assert row is not None
        base = row.peak_allocated_bytes
        missing |= dict.fromkeys(("resident_difference", "activation_difference", "last_stage_head"), "no theory was printed to differ from")
        parts["unexplained"] = rank.max_allocated_bytes - base
    elif row is None:
        base = printed
        why = expected.reason or "the rank's stage is not known"
        missing |= dict.fromkeys(("resident_difference", "activation_difference", "last_stage_head"), why)
        parts["unexplained"] = rank.max_allocated_bytes - base
    else:
        base = printed
        parts |= _explained(row, theory, printed)
        parts["unexplained"] = rank.max_allocated_bytes - row.peak_allocated_bytes
    gap = sum(size for size in parts.values() if size is not None)
    return Gap(rank.rank, rank.stage, "expected" if printed is None else "printed", base, base + gap, gap,
               {name: parts.get(name) for name in PARTS}, missing, rank.allocated_bytes, row.steady_allocated_bytes if row else None,
               rank.max_allocated_bytes, row.peak_allocated_bytes if row else None)


def _measured(rank: Rank) -> tuple[dict[str, int | None], dict[str, str]]:
    parts: dict[str, int | None] = {"cached": None, "outside_torch": None}
    missing: dict[str, str] = {}
    if rank.max_reserved_bytes is None:
        missing["cached"] = "reserved memory is in no artifact"
    else:
        parts["cached"] = rank.max_reserved_bytes - (rank.max_allocated_bytes or 0)
    if rank.outside_bytes is None or rank.max_reserved_bytes is None:
        missing["outside_torch"] = "what lies outside torch is in no artifact: run with --log-device-memory-used"
    else:
        parts["outside_torch"] = rank.outside_bytes
    return parts, missing


def _explained(row: RankExpectation, theory: Theory | None, printed: int) -> dict[str, int | None]:
    """Expected against printed: what stays, what a step adds, and the head. Without the printed halves all of it stands with what stays."""
    head = sum(row.peak_classes.get(name, 0) for name in HEAD)
    weights = theory.weight_and_optimizer_bytes if theory else None
    resident = row.steady_allocated_bytes - (weights if weights is not None else printed)
    activation = row.peak_allocated_bytes - row.steady_allocated_bytes - head - (printed - weights if weights is not None else 0)
    return {"resident_difference": resident, "activation_difference": activation, "last_stage_head": head}


def differences(expected: Expected, ranks: Sequence[Rank]) -> tuple[StageDifference, ...]:
    """First and last stage against the stage beside them: which classes make the difference, and what was measured of it."""
    stages = sorted(expected.stages)
    pairs = [(stages[-1], stages[-2])] if len(stages) > 1 else []
    pairs = [(stages[0], stages[1]), *pairs] if len(stages) > 2 else pairs
    return tuple(_difference(expected, ranks, stage, beside) for stage, beside in pairs)


def _difference(expected: Expected, ranks: Sequence[Rank], stage: int, beside: int) -> StageDifference:
    own, other = expected.stages[stage], expected.stages[beside]
    names = dict.fromkeys([*own.peak_classes, *other.peak_classes])
    classes = {name: own.peak_classes.get(name, 0) - other.peak_classes.get(name, 0) for name in names}
    measured = {at: max((rank.max_allocated_bytes for rank in ranks if rank.stage == at and rank.max_allocated_bytes), default=None)
                for at in (stage, beside)}
    known = measured[stage] is not None and measured[beside] is not None
    return StageDifference(stage, beside, own.peak_allocated_bytes - other.peak_allocated_bytes,
                           (measured[stage] or 0) - (measured[beside] or 0) if known else None,
                           {name: size for name, size in sorted(classes.items(), key=lambda one: -abs(one[1])) if size})
