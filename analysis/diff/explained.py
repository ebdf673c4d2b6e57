"""What each changed argument does to the expected peak: the ledger of one side asked again with that one argument of the other.

Arguments of the layout (world, parallel sizes, stages) mean nothing alone: they are changed together and share one figure, which stands with each
of them. The figures are each alone, so they need not add up to the whole, which is worked out from both sides' own ledgers; the rest is
what the changes do only together. Not the difference of two totals split by judgement: every figure is a ledger that was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.plan.change import Before, plan
from ingest.errors import LedgerError

if TYPE_CHECKING:
    from analysis.reconcile import Expected, Ledger

LAYOUT = frozenset((
    "world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size", "context_parallel_size",
    "virtual_pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "data_parallel_size", "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "num_layers", "use_tp_pp_dp_mapping", "global_batch_size"))
"""Arguments that are changed together."""
MOST = 200
"""Arguments asked one by one; each asks a ledger (a few milliseconds)."""
_NOTHING_KEPT = Before({}, None, None)


@dataclass(frozen=True, slots=True)
class Explained:
    """Bytes that each argument alone adds to the fullest stage's expected peak, or null and why.

    `together_bytes` is the whole, `rest_bytes` what the single figures leave of it, `layout` the arguments that were moved as one.
    """

    alone: Mapping[str, tuple[int | None, str | None]] = field(default_factory=dict)
    together_bytes: int | None = None
    rest_bytes: int | None = None
    layout: tuple[str, ...] = ()
    reason: str | None = None


def explained(before: Ledger | None, after: Ledger | None, changes: Mapping[str, Any]) -> Explained:
    """What `changes` (argument to its later value) explain; empty with a reason where a side has no ledger."""
    if before is None or after is None or not before.expected.stages or not after.expected.stages:
        sides = [one.expected.reason for one in (before, after) if one is not None and one.expected.reason]
        return Explained(reason=sides[0] if sides else "the expected ledger of a side is not known")
    layout = tuple(sorted(name for name in changes if name in LAYOUT))
    alone: dict[str, tuple[int | None, str | None]] = {}
    if layout:
        size, refused = _asked(before.expected, {name: changes[name] for name in layout})
        alone = dict.fromkeys(layout, (size, refused or (f"as one with the {len(layout)} changes of the layout" if layout[1:] else None)))
    for name in [name for name in changes if name not in LAYOUT][:MOST]:
        alone[name] = _asked(before.expected, {name: changes[name]})
    whole = _peak(after.expected) - _peak(before.expected)
    parts = [size for name, (size, _) in alone.items() if size is not None and name not in layout[1:]]
    return Explained(alone, whole, whole - sum(parts), layout)


def _asked(expected: Expected, changes: Mapping[str, Any]) -> tuple[int | None, str | None]:
    try:
        return -plan(expected, _NOTHING_KEPT, changes).saved_bytes, None
    except LedgerError as error:
        return None, f"alone it would be refused: {error.what}"


def _peak(expected: Expected) -> int:
    return max(row.peak_allocated_bytes for row in expected.stages.values())
