"""How one class of one stage came about, after a step and at the peak's instant: lines that add up to the class, to the byte.

Source: the class's own functions (`state.py`, `activations.py` and `small.py` of this folder ask them). Lines are made when a class is opened, not
with the ledger: a run of 64 stages has a thousand classes, and a reader opens one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.expected.origin import activations, small, state
from analysis.expected.origin.lines import Line, Parts, parts_of

if TYPE_CHECKING:
    from analysis.reconcile import Expected

_COMPUTING = ("forward", "backward", "loss", "evaluation")
_LINES: dict[str, Callable[[Parts], list[Line]]] = {
    "weights": state.weights, "gradients": state.gradients, "gradient_copy": state.gradient_copy, "optimizer": state.optimizer,
    "legacy_gradients": state.second_gradients, "step": state.step, "boundary": small.boundary, "workspaces": small.workspaces,
    "global_buffer": small.global_buffer, "moe_leftovers": small.moe_leftovers, "quantised_weights": small.quantised_weights,
    "rotary_caches": small.rotary_caches, "stand_in_gradients": small.stand_in_gradients, "loss_leftovers": small.loss_leftovers,
    "batch": small.batch, "gathered": small.gathered, "deferred_gradients": small.deferred_gradients, "activations": activations.activations,
    "running_layer": activations.running_layer, "loss": activations.loss,
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The lines of a class after a step and at the peak's `instant`; none where it holds nothing then."""

    after_step: tuple[Line, ...]
    at_peak: tuple[Line, ...]
    instant: str


def class_origin(expected: Expected, stage: int, name: str) -> Origin:
    """The origin of one class of one stage; empty for a class that this ledger did not count itself."""
    row = expected.stages[stage]
    parts = parts_of(expected, stage)
    return Origin(lines_of(replace(parts, instant="after_step"), name) if row.classes.get(name) else (),
                  lines_of(parts, name) if row.peak_classes.get(name) else (), row.peak_instant)


def lines_of(parts: Parts, name: str) -> tuple[Line, ...]:
    """The lines of a class at the instant of `parts`; boundary tensors are others while a step computes."""
    if name not in _LINES:
        return ()
    made = small.transit if name == "boundary" and parts.instant in _COMPUTING else _LINES[name]
    return tuple(made(parts))
