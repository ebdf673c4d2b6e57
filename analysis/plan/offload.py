"""Whether offload could hide: bytes a step over each link against the step's own time, for optimizer state and for activations.

Per step the optimizer's state moves once to the device and once back, gradients once, and activations to the host in forward and back in backward.
Links are what vendors state and people see: PCIe 4 x16 about 32 GB/s, PCIe 5 x16 about 64 GB/s, NVMe 3 to 7 GB/s a drive; the host's own memory,
which the CPU's optimizer reads and writes, 300 to 400 GB/s. A transfer hides only behind work that does not wait for it: `share` is the part of
the step that it would need, and above one it cannot hide at all. Bytes alone are no plan: the copies need pinned double buffers on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.reconcile import Expected
from analysis.theory.inflight import peak_stages, schedule
from analysis.theory.stages import stage_layout

LINKS: tuple[tuple[str, float], ...] = (("PCIe 4", 32e9), ("PCIe 5", 64e9), ("NVMe, one drive", 5e9))
"""Bytes a second in one direction."""


@dataclass(frozen=True, slots=True)
class Offload:
    """One class over one link: bytes freed on the device, bytes moved a step, seconds that takes, and its share of the step's time."""

    what: str
    link: str
    stage: int
    freed_bytes: int
    moved_bytes: int
    seconds: float
    step_seconds: float | None
    share: float | None


def offloads(expected: Expected, step_seconds: float | None) -> tuple[Offload, ...]:
    """The fullest stage's classes over every link; `step_seconds` is a step's measured time, null where no iteration tells."""
    if not expected.stages or expected.microbatches is None:
        return ()
    row = max(expected.stages.values(), key=lambda one: one.peak_allocated_bytes)
    optimizer, activations = row.classes.get("optimizer", 0), row.peak_classes.get("activations", 0)
    plan = schedule(len(expected.stages), stage_layout(expected.args).chunks, expected.microbatches)
    each = activations / peak_stages(plan, row.pp)
    moved = {"optimizer state": (optimizer, 2 * optimizer + row.classes.get("gradients", 0)),
             "activations": (activations, round(2 * each * expected.microbatches))}
    return tuple(Offload(what, link, row.pp, freed, bytes_, bytes_ / speed, step_seconds, bytes_ / speed / step_seconds if step_seconds else None)
                 for what, (freed, bytes_) in moved.items() if freed for link, speed in LINKS)
