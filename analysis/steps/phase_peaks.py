"""Which phase peaked: the largest peak in initialisation, the first optimizer step, checkpoint save and load, evaluation, graph capture and offload,
and how far it stood above the training peak of the same rank.

A run that survives training may die at its first checkpoint; one that dies in its first real step dies where the optimizer makes its states. Phases
are told by a reading's own label or by what the job logged before it (`analysis/sql/asked/phase_peaks.sql`); a maximum that is never reset belongs to
a phase only where it rose there, else it is an upper bound and said to be one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from analysis.database import asked_text, records
from analysis.rows import Source
from analysis.verdict import size_text

if TYPE_CHECKING:
    import duckdb

LEAST_OVER_RATIO = 0.02
"""A phase is worth a sentence from 2 % above the training peak on."""


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The largest peak of a phase. `exact` is false where it is an upper bound; `told_by` label or event; `over_bytes` above the rank's own training
    peak, null where that is not known."""

    phase: str
    rank: int
    iteration: int | None
    peak_bytes: int
    exact: bool
    told_by: Literal["label", "event"]
    training_bytes: int | None
    over_bytes: int | None
    readings: int
    source: Source

    @property
    def sentence(self) -> str:
        """For a reader: who, when, how much, and against training."""
        where = f"rank {self.rank}" + ("" if self.iteration is None else f", iteration {self.iteration}")
        size = f"{'' if self.exact else 'at most '}{size_text(self.peak_bytes)}"
        if self.training_bytes is None or self.over_bytes is None:
            return f"{self.phase}: {size} on {where}; no training step of that rank tells its own peak"
        if not self.exact and self.over_bytes >= 0:
            return f"{self.phase}: {size} on {where}; a maximum that was never reset does not tell more"
        way = "above" if self.over_bytes >= 0 else "below"
        return f"{self.phase}: {size} on {where}, {size_text(abs(self.over_bytes))} {way} its training peak"


def phase_peaks(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, since: int = -1) -> tuple[PhasePeak, ...]:
    """One row a phase seen, the fullest first, within `attempt_steps`; `since` is the first step that is read, where not all are."""
    return tuple(
        PhasePeak(row["phase"], row["rank"], row["iteration"], row["peak_bytes"], row["exact"], row["told_by"], row["training_bytes"],
                  None if row["training_bytes"] is None else row["peak_bytes"] - row["training_bytes"], row["readings"],
                  Source(row["path"], row["line"]))
        for row in records(connection, asked_text("phase_peaks"), {"run": run, "run_index": run_index, "since": since}))
