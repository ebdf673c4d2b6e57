"""The expected ledger as rows to draw: few classes that people know, by stage, and the gap's parts; the same words and colours everywhere.

The ledger counts some twenty classes; a picture shows eight. `CLASSES` says which belong together and in which colour (Okabe and Ito).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.reconcile import PARTS, Gap, Ledger

GIB = 2**30
CLASSES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("weights", "#0072B2", ("weights", "quantised_weights")),
    ("gradients", "#56B4E9", ("gradients", "gradient_copy", "legacy_gradients", "stand_in_gradients")),
    ("optimizer", "#009E73", ("optimizer", "step")),
    ("activations", "#E69F00", ("activations",)),
    ("running layer", "#F0E442", ("running_layer",)),
    ("loss and logits", "#D55E00", ("loss", "deferred_gradients")),
    ("workspaces and buffers", "#CC79A7", ("workspaces", "global_buffer", "boundary", "batch", "moe_leftovers", "rotary_caches")),
    ("other", "#8C8C8C", ()),
)
PART_COLOURS = dict(zip(PARTS, ("#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#8C8C8C", "#7A5195"), strict=True))
_OF = {name: shown for shown, _, names in CLASSES for name in names}


def shown_classes(classes: Mapping[str, int]) -> dict[str, int]:
    """Bytes by the names of `CLASSES`, in their order, those without bytes left out; nothing is lost: what has no place is `other`."""
    found = dict.fromkeys((shown for shown, _, _ in CLASSES), 0)
    for name, size in classes.items():
        found[_OF.get(name, "other")] += size
    return {name: size for name, size in found.items() if size}


def stage_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """One row a stage and class at the expected peak, in GiB and bytes."""
    return [{"stage": str(stage), "class": name, "gib": size / GIB, "bytes": size, "instant": row.peak_instant.replace("_", " ")}
            for stage, row in sorted(ledger.expected.stages.items()) for name, size in shown_classes(row.peak_classes).items()]


def fullest(ledger: Ledger) -> list[Gap]:
    """The fullest measured rank of each stage, in the order of stages."""
    found: dict[int | None, Gap] = {}
    for one in ledger.gaps:
        if one.stage not in found or (one.max_allocated_bytes or 0) > (found[one.stage].max_allocated_bytes or 0):
            found[one.stage] = one
    return sorted(found.values(), key=lambda one: (one.stage is None, one.stage or 0))


def part_rows(gaps: list[Gap]) -> list[dict[str, Any]]:
    """One row a rank and part that could be measured."""
    return [{"rank": f"rank {one.rank}" + ("" if one.stage is None else f", stage {one.stage}"), "part": name.replace("_", " "),
             "gib": size / GIB, "bytes": size} for one in gaps for name in PARTS if (size := one.parts[name]) is not None]
