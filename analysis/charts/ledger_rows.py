"""The expected ledger as rows to draw: few classes that people know, by stage, and the gap's parts; the same words as in a snapshot.

The ledger counts some twenty classes; a picture shows fewer. `MEMBERS` says which belong together, under the names of `analysis.charts.palette`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.charts.palette import CLASSES
from analysis.reconcile import PARTS, Gap, Ledger
from analysis.verdict import size_text

GIB = 2**30
MEMBERS: dict[str, tuple[str, ...]] = {
    "weights": ("weights", "quantised_weights", "gathered"),
    "gradient buffer": ("gradients", "gradient_copy", "legacy_gradients", "stand_in_gradients"),
    "optimizer": ("optimizer", "step"),
    "activations": ("activations",),
    "running layer": ("running_layer",),
    "logits and loss": ("loss", "deferred_gradients"),
    "workspace": ("workspaces", "moe_leftovers", "rotary_caches"),
    "communication": ("global_buffer", "boundary"),
    "input": ("batch",),
}
_OF = {name: shown for shown, names in MEMBERS.items() for name in names}


def shown_class(name: str) -> str:
    """The class of a picture that a class of the ledger belongs to."""
    return _OF.get(name, "other")


def shown_classes(classes: Mapping[str, int]) -> dict[str, int]:
    """Bytes by the names of `palette.CLASSES`, in their order, those without bytes left out; nothing is lost: what has no place is `other`."""
    found = dict.fromkeys(CLASSES, 0)
    for name, size in classes.items():
        found[shown_class(name)] += size
    return {name: size for name, size in found.items() if size}


def stage_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """One row a stage and class at the expected peak, in GiB and bytes."""
    return [{"stage": str(stage), "class": name, "gib": size / GIB, "bytes": size, "text": size_text(size),
             "instant": row.peak_instant.replace("_", " ")}
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
             "gib": size / GIB, "bytes": size, "text": size_text(size)}
            for one in gaps for name in PARTS if (size := one.parts[name]) is not None]
