"""What runs on the made fleet, and what is planted in it: jobs back to back on fixed shares of the devices, every device busy all the time.

Nothing is drawn by chance here: which ranks come near their limit, on which days and how often, which runs die and what each printed follows from
a job's place alone, so that a query's answer can be checked without asking the lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Any

from analysis.theory.megatron import report_args
from sample_data import printed
from sample_data.ledger import GIB, Model

CAPACITY_BYTES = 84_987_740_160
"""What an 80 GB device reports."""
FIRST_DAY = date(2026, 9, 1)
MARGIN_BYTES = max(2 * GIB, CAPACITY_BYTES * 3 // 100)
STEPS_A_RECORD = 10
CLUSTER = "made"


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of one size: how many run side by side, for how many days each, whether the probe resets the peaks, and their layout."""

    name: str
    ranks: int
    at_once: int
    days: int
    interval: bool
    tensor: int
    pipeline: int
    layers: int
    hidden: int
    micro_batches: int


KINDS = (
    Kind("pretrain", 4096, 1, 30, True, 8, 8, 80, 8192, 32),
    Kind("midtrain", 2048, 1, 15, True, 8, 4, 64, 8192, 32),
    Kind("context", 1024, 1, 10, True, 4, 8, 48, 6144, 16),
    Kind("tune", 512, 2, 5, True, 4, 4, 40, 5120, 16),
    Kind("align", 128, 8, 3, True, 2, 2, 32, 4096, 8),
    Kind("trial", 8, 98, 1, False, 1, 2, 16, 2048, 8),
)
"""10,000 devices: 4096 + 2048 + 1024 + 2 x 512 + 8 x 128 + 98 x 8."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: the `slot`-th of its kind side by side, from day `first` (from 0) for `days` days."""

    kind: Kind
    slot: int
    first: int
    days: int

    @property
    def run(self) -> str:
        """Its name."""
        return f"{self.kind.name}-{self.slot:03}-{day(self.first):%m%d}"

    @property
    def stride(self) -> int:
        """Ranks of a stage stand side by side: the order of Megatron's grid ends in pp."""
        return self.kind.ranks // self.kind.pipeline

    @property
    def died(self) -> bool:
        """Whether rank 3 ran out of memory at its end: every twentieth trial."""
        return self.kind.name == "trial" and (self.slot + self.first) % 20 == 0


def jobs(days: int = 90, share: float = 1.0) -> Iterator[Job]:
    """Every job of the first `days` days, by name of its kind; `share` < 1 keeps that part of the jobs side by side (one at least), for tests."""
    for kind in KINDS:
        for slot in range(max(1, round(kind.at_once * share))):
            for first in range(0, days, kind.days):
                yield Job(kind, slot, first, min(kind.days, days - first))


def day(number: int) -> date:
    """The date of a day of the fleet."""
    return FIRST_DAY + timedelta(days=number)


def near_steps(job: Job, rank: int, number: int, records: int) -> int:
    """PLANTED: on every seventh day, rank 5 of each 97 of a job whose peaks are its steps' own has this many records 1 GiB from its limit."""
    return max(1, records // 10) if job.kind.interval and rank % 97 == 5 and number % 7 == 3 else 0


@cache
def arguments(kind: Kind) -> dict[str, Any]:
    """The arguments that all jobs of a kind print."""
    data = kind.ranks // (kind.tensor * kind.pipeline)
    model = Model(layers=kind.layers, hidden=kind.hidden, heads=kind.hidden // 128, groups=8, kv_channels=128, ffn=kind.hidden * 7 // 2,
                  vocabulary=128_256, sequence=4096, micro_batch=1, tensor=kind.tensor, pipeline=kind.pipeline, data=data)
    return printed.arguments(model, kind.micro_batches, recompute_granularity="selective", train_iters=100_000, padded_vocab_size=128_256)


@cache
def footprint(kind: Kind) -> tuple[str, int, int, int]:
    """The text that Megatron's newest formula prints for a kind, with weights and optimizer, activations and total in bytes."""
    report, _ = report_args(arguments(kind), kind.micro_batches)[0]
    sizes = (report.weight_and_optimizer_bytes, report.activation_bytes, report.total_bytes)
    weights, activation, total = (int(size or 0) for size in sizes)
    return report.printed_text or "", weights, activation, total
