"""Megatron-shaped CUDA memory snapshots of a generator of the project's own, with their truth.

A caching allocator is run forward under a 1F1B step (`allocator`, `stage`), its trace is written with the opcodes of torch (`pickling`),
and what only a forward run knows is told beside it: exact peaks, the bytes of each class at the peak, the class of each allocation.
Two ranks of the sample run `dense_7b5_pp2` are made so, the first and the last stage of the first data-parallel rank; tests and
benchmarks make files of any number of events with `write`. Nothing here knows the rules that name classes, nor the readers.
"""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sample_data import dense
from sample_data.ledger import Model
from sample_data.snapshots.allocator import ALLOC, FREE_COMPLETED, Allocator
from sample_data.snapshots.pickling import Pickler
from sample_data.snapshots.stage import CLASSES, Rank

DEVICES = 8
LEVELS = ("requested", "allocated", "active", "reserved")
"""Requested bytes of what is active; rounded bytes allocated and active; bytes of segments."""

RANKS = {0: 0, 128: 1}
"""Global ranks of the sample and their stages: the first and the last of the pipeline."""


@dataclass(frozen=True, slots=True)
class Made:
    """A finished simulation, of which the events from `first` on are in the ring."""

    rank: Rank
    device: int
    first: int

    def pickle(self, file: BinaryIO) -> None:
        """Write the snapshot."""
        Pickler(file, self.rank.stacks.all).snapshot(self.rank.allocator, self.first, self.device, DEVICES, self.rank.annotations)

    def truth(self) -> dict[str, Any]:
        """Peaks with the first event after which each stood (-1: before the first event), composition and the class of each `alloc`."""
        trace, first = self.rank.allocator.trace, self.first
        levels = {name: np.frombuffer(getattr(trace, name), np.int64)[max(first - 1, 0):] for name in LEVELS}
        peaks = {name: int(np.argmax(level)) for name, level in levels.items()}
        before = first > 0
        action, life = np.frombuffer(trace.action, np.int8), np.frombuffer(trace.life, np.int32)
        kinds = np.frombuffer(trace.class_of_life, np.int8)
        made = kinds[life[first:][action[first:] == ALLOC]]
        return {
            "device": self.device, "events": len(trace) - first, "events_lost": first, "classes": list(CLASSES),
            "peaks": {name: {"bytes": int(levels[name][at]), "event": at - before} for name, at in peaks.items()},
            "requested_by_class": self._composition(max(first - 1, 0) + peaks["requested"]),
            "class_of_alloc": "".join("abcdefghijk"[kind] for kind in made.tolist()),
        }

    def _composition(self, event: int) -> dict[str, int]:
        """Requested bytes by class after an event of the whole run."""
        trace = self.rank.allocator.trace
        action, life = np.frombuffer(trace.action, np.int8)[: event + 1], np.frombuffer(trace.life, np.int32)[: event + 1]
        size = np.frombuffer(trace.size, np.int64)[: event + 1]
        kinds, sizes = np.frombuffer(trace.class_of_life, np.int8), np.frombuffer(trace.size_of_life, np.int64)
        recorded = np.zeros(len(kinds), bool)
        recorded[life[action == ALLOC]] = True
        earlier = ~recorded[: int(life[0])]
        total = np.bincount(kinds[: int(life[0])][earlier], sizes[: int(life[0])][earlier], len(CLASSES))
        total += np.bincount(kinds[life], size * ((action == ALLOC).astype(np.int64) - (action == FREE_COMPLETED)), len(CLASSES))
        return {name: int(total[at]) for at, name in enumerate(CLASSES)}


def simulate(events: int = 0, *, stage: int = 0, model: Model = dense.MODEL, micro_batches: int = dense.MICRO_BATCHES, device: int = 0,
             seed: int = 0) -> Made:
    """Iterations until `events` are traced (0: one), then a checkpoint; the ring holds the last `events` (0: all)."""
    rank = Rank(model, stage, micro_batches, Allocator(seed))
    rank.setup()
    rank.iteration()
    while len(rank.allocator.trace) < events:
        rank.iteration()
    rank.checkpoint()
    return Made(rank, device, len(rank.allocator.trace) - events if events else 0)


def write(path: Path, events: int, **choice: Any) -> dict[str, Any]:
    """Write a snapshot of this many events (see `simulate`); its truth."""
    made = simulate(events, **choice)
    with path.open("wb", buffering=1 << 20) as file:
        made.pickle(file)
    return made.truth()


def _sample(rank: int) -> Made:
    return simulate(stage=RANKS[rank], device=rank % DEVICES, seed=rank)


def files() -> dict[str, bytes]:
    """The snapshots of the sample run under the names Megatron gives them."""
    found = {}
    for rank in RANKS:
        raw = io.BytesIO()
        _sample(rank).pickle(raw)
        found[f"snapshot_{rank}.pickle.gz"] = gzip.compress(raw.getvalue(), 9, mtime=0)
    return found


def truths() -> dict[str, bytes]:
    """What is true of them."""
    return {f"snapshot_{rank}.json": (json.dumps(_sample(rank).truth(), indent=1) + "\n").encode() for rank in RANKS}
