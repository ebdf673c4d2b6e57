"""The frozen records that an overview is made of, bytes in `_bytes`, each with the place it was read from.

They travel from `analysis.overview` to every face (text, JSON, Markdown, the app): a face renders, it never computes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from analysis.theory.branch import Card
from analysis.theory.last_stage import LastStage

if TYPE_CHECKING:
    from analysis.communication.rows import Communication
    from analysis.findings.model import Finding
    from analysis.reconcile import Ledger
    from analysis.steps.chances import Starts
    from analysis.steps.fullest import Fullest
    from analysis.steps.load_proxy import LoadProxy
    from analysis.steps.phase_peaks import PhasePeak
    from analysis.steps.tail import Tail

Class = Literal["stable", "occasional", "clear", "insufficient", "undetermined"]
Level = Literal["oom", "near", "clear", "insufficient", "undetermined", "unknown"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a figure was read: path of the artifact (as given) and 1-based line, null for binary artifacts."""

    artifact: str
    line: int | None = None

    def __str__(self) -> str:
        return self.artifact if self.line is None else f"{self.artifact}:{self.line}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the attempt's artifacts say about it; `model` holds the arguments that shape memory, as printed.

    Rank r is on stage r // pp_stride % pp.
    """

    framework: str | None
    framework_version: str | None
    world_size: int | None
    tp: int | None
    pp: int | None
    vpp: int | None
    cp: int | None
    ep: int | None
    etp: int | None
    dp: int | None
    num_microbatches: int | None
    padded_vocab_size: int | None
    params_dtype: str | None
    gpu_name: str | None
    first_iteration: int | None
    last_iteration: int | None
    train_iterations: int | None
    started_at: datetime | None
    ended_at: datetime | None
    model: dict[str, str] = field(default_factory=dict)
    source: Source | None = None
    pp_stride: int | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which ranks the artifacts name. `expected` are those that print memory by Megatron's rule, null where sizes are unknown."""

    world_size: int | None
    ranks: tuple[int, ...]
    measured: tuple[int, ...]
    expected: tuple[int, ...] | None
    missing: tuple[int, ...]
    unplaced_records: int
    invalid_records: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A printed figure beside a measured one of a rank; ratio is measured over printed."""

    rank: int | None
    stage: int | None
    printed: str
    printed_bytes: int
    measured: str
    measured_bytes: int
    ratio: float
    source: Source


@dataclass(frozen=True, slots=True)
class Theory:
    """The last printed footprint of the attempt."""

    weight_and_optimizer_bytes: int | None
    activation_bytes: int | None
    total_bytes: int | None
    iteration: int | None
    producer: str | None
    shape: str | None
    text: str | None
    times_printed: int
    source: Source
    compared: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True)
class Rank:
    """One measured rank: last training record, maxima over valid records, headroom where it can be known.

    `stage` is null where the sizes are unknown; `rank` is null, with `rank_label`, where no record proves it.
    `headroom_bound_bytes` is capacity - max reserved: what is left at most when nothing is known outside torch.
    """

    rank: int | None
    rank_label: str | None
    stage: int | None
    tp: int | None
    cp: int | None
    ep: int | None
    dp: int | None
    iteration: int | None
    scope: str | None
    records: int
    allocated_bytes: int | None
    max_allocated_bytes: int | None
    reserved_bytes: int | None
    max_reserved_bytes: int | None
    device_used_bytes: int | None
    outside_bytes: int | None
    outside_source: str | None
    capacity_bytes: int | None
    capacity_source: str | None
    peak_bytes: int | None
    soft_headroom_bytes: int | None
    hard_headroom_bytes: int | None
    headroom_bound_bytes: int | None
    peak_iteration: int | None
    source: Source
    peak_source: Source
    peak_phase: str | None = None

    @property
    def name(self) -> str:
        """`rank 12 (stage 3)`, or what the artifact says instead."""
        unnamed = "a rank that is not named" if self.rank_label in (None, "not told") else f"an unnamed rank ({self.rank_label})"
        who = unnamed if self.rank is None else f"rank {self.rank}"
        return who if self.stage is None else f"{who} (stage {self.stage})"


@dataclass(frozen=True, slots=True)
class Stage:
    """The fullest measured rank of each kind on one stage; `stage` is null for ranks whose stage is unknown, `holds` says
    which layers it has, null where the arguments do not tell."""

    stage: int | None
    ranks: int
    first_rank: int
    last_rank: int
    allocated_bytes: int | None
    max_allocated_bytes: int | None
    reserved_bytes: int | None
    max_reserved_bytes: int | None
    device_used_bytes: int | None
    outside_bytes: int | None
    capacity_bytes: int | None
    soft_headroom_bytes: int | None
    hard_headroom_bytes: int | None
    headroom_bound_bytes: int | None
    holds: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One device at its fullest reading by nvidia-smi or its like; `left_bytes` is what that reading left free."""

    host: str | None
    device: int
    rank: int | None
    device_name: str | None
    source: str | None
    used_bytes: int | None
    total_bytes: int | None
    left_bytes: int | None
    readings: int
    read_at: Source


@dataclass(frozen=True, slots=True)
class StageSurplus:
    """What the first or the last stage holds above the median of the middle ones; `measure` allocated, max_allocated or max_reserved."""

    which: Literal["first", "last"]
    stage: int
    measure: str
    surplus_bytes: int
    surplus_ratio: float
    middle_bytes: int
    middle_stages: int


@dataclass(frozen=True, slots=True)
class Near:
    """How often one rank came near its limit over the steps that `rule` chose. `low` and `high` bound the chance of such a step (95 %).

    `near_steps` counts steps near by `kind`, `cache_near_steps` those near by either; `other_near_steps` lie outside the rule's choice.
    `measured_steps` are all that were read, `own_steps` those whose peaks are their own; `drifts` tells a trend of the peak over counted steps.
    """

    rank: int | None
    near: Class
    kind: Literal["hard", "cache"] | None
    near_steps: int | None
    steps: int | None
    low: float | None
    high: float | None
    headroom_hard_bytes: int | None
    headroom_soft_bytes: int | None
    margin_bytes: int | None
    reason: str
    rule: str | None = None
    other_near_steps: int | None = None
    unknown_steps: int | None = None
    cache_near_steps: int | None = None
    touched_steps: int | None = None
    measured_steps: int | None = None
    own_steps: int | None = None
    correlation: float | None = None
    drifts: bool | None = None


@dataclass(frozen=True, slots=True)
class Tip:
    """A setting that a message recommends, and whether it would help here: `may help`, `in force` or `useless here`, and why."""

    setting: str
    status: Literal["may help", "in force", "useless here"]
    reason: str


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """One device of a memory snapshot of the run; `trigger` is `oom`, `step` or null. Peaks are those of its trace."""

    rank: int | None
    rank_label: str | None
    device: int
    iteration: int | None
    trigger: str | None
    events: int
    peak_requested_bytes: int | None
    peak_reserved_bytes: int | None
    artifact: str
    source: Source


@dataclass(frozen=True, slots=True)
class OomSnapshot:
    """The snapshot that told an error's cache apart: how it was joined, the event of its trace that failed, and what was said there."""

    source: Source
    joined: str
    event: int | None
    said: str


@dataclass(frozen=True, slots=True)
class Oom:
    """One out-of-memory error: what its message says and what it does not; `figures` are what the case was worked out from."""

    rank: int | None
    rank_label: str | None
    stage: int | None
    iteration: int | None
    kind: str | None
    case: str
    reason: str
    numbers: dict[str, int]
    missing: tuple[str, ...]
    frame: str | None
    allocator_hint: str | None
    text: str | None
    source: Source
    figures: dict[str, int] = field(default_factory=dict)
    first_failure: bool | None = None
    tips: tuple[Tip, ...] = ()
    snapshot: OomSnapshot | None = None


@dataclass(frozen=True, slots=True)
class Riser:
    """A step in which reserved rose and stayed. `kind` is null where no peak of allocated tells; `coincided` names what else happened
    between this reading and the one before."""

    rank: int
    iteration: int
    rise_bytes: int
    reserved_bytes: int
    kind: Literal["need", "fragmentation"] | None
    peak_rise_bytes: int | None
    coincided: tuple[str, ...]
    source: Source


@dataclass(frozen=True, slots=True)
class HighLoad:
    """The steps of high load of one rank; `threshold_bytes` is the least load among them, null where the load does not vary."""

    rank: int
    rule: str
    steps: tuple[int, ...]
    of_steps: int
    threshold_bytes: int | None
    median_bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence on the attempt and the places that show it."""

    level: Level
    sentence: str
    evidence: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Reject:
    """One stretch that looked like a record and was not understood."""

    reason: str
    text: str
    source: Source


@dataclass(frozen=True, slots=True)
class Branch:
    """The branch card of the attempt; its line numbers count the lines of the printed text, `source` is that text's last line."""

    card: Card
    source: Source | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything a report says about one attempt of a run. `not_measurable` tells, by section, why it is empty;
    `records` counts the records by table."""

    run: str
    run_index: int
    attempts: tuple[int, ...]
    artifacts: tuple[str, ...]
    verdict: Verdict
    configuration: Configuration
    coverage: Coverage
    theory: Theory | None
    branch: Branch | None
    stages: tuple[Stage, ...]
    surpluses: tuple[StageSurplus, ...]
    ranks: tuple[Rank, ...]
    near_limit: tuple[Near, ...]
    ooms: tuple[Oom, ...]
    rejected: int
    rejects: tuple[Reject, ...]
    not_measurable: dict[str, str]
    devices: tuple[Device, ...] = ()
    records: dict[str, int] = field(default_factory=dict)
    high_loads: tuple[HighLoad, ...] = ()
    risers: tuple[Riser, ...] = ()
    findings: tuple[Finding, ...] = ()
    communication: Communication | None = None
    load_proxies: tuple[LoadProxy, ...] = ()
    logits: LastStage | None = None
    ledger: Ledger | None = None
    starts: Starts | None = None
    fullest: Fullest | None = None
    snapshots: tuple[RunSnapshot, ...] = ()
    phase_peaks: tuple[PhasePeak, ...] = ()
    tail: Tail | None = None
    tail_stage: int | None = None
