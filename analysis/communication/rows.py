"""The frozen records of the report's section `communication`; sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from analysis.rows import Source


@dataclass(frozen=True, slots=True)
class RankCommunication:
    """What communication holds on one rank. `rank` is null, with `who`, where nothing proves it.

    The interval and the estimate are of NCCL alone; `deepep_bytes` and `hccl_bytes` stand beside them. `library_total_bytes` is RCCL's own running
    total, which then is the estimate. `allocated_bytes` sums the device lines of NCCL's ALLOC subsystem (frees are not logged: an upper bound of
    what they show), `host_bytes` its host lines. `unexplained_bytes` is outside torch minus everything estimated here.
    """

    rank: int | None
    who: str
    communicators: int
    lower_bytes: int
    estimate_bytes: int
    upper_bytes: int
    parts: dict[str, int]
    library_total_bytes: int | None
    allocated_bytes: int | None
    host_bytes: int | None
    nvls_printed_bytes: int | None
    deepep_bytes: int | None
    hccl_bytes: int | None
    outside_bytes: int | None
    unexplained_bytes: int | None
    source: Source | None


@dataclass(frozen=True, slots=True)
class CommunicatorUse:
    """Communicators of one name (or size, where nothing names them) over the ranks seen; sizes of the rank on which they hold most."""

    name: str | None
    ranks: int
    seen_on: int
    communicators: int
    fullest_rank: int | None
    lower_bytes: int
    estimate_bytes: int
    upper_bytes: int
    parts: dict[str, int]
    protocols: dict[str, int]
    channels: int | None
    nodes: int | None
    source: Source


@dataclass(frozen=True, slots=True)
class LateCommunicator:
    """A communicator set up after the first training step; `headroom_bytes` is what its rank had left, null where unknown."""

    rank: int | None
    name: str | None
    ranks: int
    estimate_bytes: int
    upper_bytes: int
    headroom_bytes: int | None
    source: Source

    @property
    def exceeds(self) -> bool:
        """Whether it may not have fitted."""
        return self.headroom_bytes is not None and self.upper_bytes > self.headroom_bytes


@dataclass(frozen=True, slots=True)
class Warned:
    """A setting or combination known to harm, with the value seen and where it was read."""

    id: str
    sentence: str
    source: Source | None


@dataclass(frozen=True, slots=True)
class Communication:
    """The whole section; `settings` are the variables that the estimate used, `versions` the libraries seen."""

    ranks: tuple[RankCommunication, ...]
    communicators: tuple[CommunicatorUse, ...]
    late: tuple[LateCommunicator, ...] = ()
    warnings: tuple[Warned, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
