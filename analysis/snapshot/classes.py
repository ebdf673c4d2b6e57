"""The class of every life: by its stack where there is one, else by stream, annotation, size and how long it lived.

A snapshot with Python-only stacks shows the backward thread with empty stacks (62 % of the allocations of one real file). Such a block
is not guessed to be an activation: it is one only where its size is that of an activation made in forward; it is a gradient where it
lives into the optimizer's step; the rest is unknown, named "backward (no stack)". The same long life tells the gradients of parameters
from those of activations where backward does have stacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.snapshot.lives import Lives
from analysis.snapshot.rules import CATEGORIES, NO_STACK, RULES, Rule
from analysis.snapshot.stacks import Stacks
from analysis.snapshot.trace import Action, Flags, Ints, Small, Trace

ALL_RULES: tuple[Rule, ...] = (*RULES, *NO_STACK)
OF_RULE: Small = np.array([CATEGORIES.index(rule.category) for rule in ALL_RULES], np.int32)
_ROW = {rule.name: row for row, rule in enumerate(ALL_RULES)}
_BACKWARD = _ROW["backward"]
_OPTIMIZER = CATEGORIES.index("optimizer")
_FORWARD = [_ROW[name] for name in ("forward", "forward of Megatron", "recomputed forward")]
_LOSS = CATEGORIES.index("logits_and_loss")


@dataclass(frozen=True, slots=True)
class Classes:
    """For each life its row of `ALL_RULES`; the class follows from the rule."""

    rule: Small

    @property
    def category(self) -> Small:
        """Row of `CATEGORIES` for each life."""
        found: Small = OF_RULE[self.rule]
        return found


def classify(trace: Trace, lives: Lives, stacks: Stacks) -> Classes:
    """The rule that names each life."""
    depth = np.array([len(stack) for stack in stacks.frames] or [0], np.int64)
    of_stack = np.append(stacks.rule, np.int32(-1)).astype(np.int32)
    known = lives.stack >= 0
    rule = np.where(known, of_stack[lives.stack], -1).astype(np.int32)
    empty = known & (depth[lives.stack] == 0)
    rule[(rule < 0) & known & ~empty] = _ROW["no rule fits"]
    predates = lives.birth < 0
    rule[(rule < 0) & (predates | (empty & predates))] = _ROW["predates the trace"]
    rule[(rule < 0) & ~known] = _ROW["no stack recorded"]
    bare = rule < 0
    rule[bare] = _without_stack(trace, lives, rule, bare)
    return Classes(_kept_for_optimizer(trace, lives, stacks, rule, bare))


def _without_stack(trace: Trace, lives: Lives, rule: Small, bare: Flags) -> Small:
    """Rules of born lives whose stack is empty, the strongest evidence last."""
    size, stream, birth = lives.size[bare], lives.stream[bare], lives.birth[bare]
    found = np.full(len(size), _ROW["backward (no stack)"], np.int32)
    found[np.isin(size, np.unique(lives.size[(rule >= 0) & (OF_RULE[rule] == _LOSS)]))] = _ROW["backward (no stack), size of logits"]
    found[np.isin(size, np.unique(lives.size[np.isin(rule, _FORWARD)]))] = _ROW["backward (no stack), size of an activation"]
    found[_inside(trace, "Optimizer.step")[birth]] = _ROW["backward (no stack), inside an optimizer step"]
    found[stream != main_stream(trace)] = _ROW["backward (no stack), on another stream"]
    return found


def _kept_for_optimizer(trace: Trace, lives: Lives, stacks: Stacks, rule: Small, bare: Flags) -> Small:
    """Lives of backward that are still live when the optimizer next allocates."""
    steps = optimizer_events(trace, stacks)
    if not len(steps):
        return rule
    candidate = np.flatnonzero((rule == _BACKWARD) | (bare & (OF_RULE[rule] != CATEGORIES.index("communication"))))
    after = np.searchsorted(steps, lives.birth[candidate], side="right")
    within = after < len(steps)
    kept = candidate[within][steps[after[within]] < lives.completed_at[candidate[within]]]
    inside = _inside(trace, "Optimizer.step")[lives.birth[kept]]
    rule[kept[~inside]] = _ROW["kept for the optimizer"]
    return rule


def optimizer_events(trace: Trace, stacks: Stacks) -> Ints:
    """Events of an optimizer's step: allocations whose stack says so, and the first event in each annotation of a step."""
    step = np.append(stacks.in_phase("optimizer step") & (OF_RULE[np.maximum(stacks.rule, 0)] == _OPTIMIZER) & (stacks.rule >= 0), False)
    events = trace.events
    by_stack = (events.action == Action.ALLOC) & step[events.stack]
    by_name = _inside(trace, "Optimizer.step")
    return np.flatnonzero(by_stack | by_name).astype(np.int64)


def main_stream(trace: Trace) -> int:
    """The stream of most requested bytes: default or not, the one that computes."""
    chosen = trace.events.action == Action.ALLOC
    streams, row = np.unique(trace.events.stream[chosen], return_inverse=True)
    if not len(streams):
        return 0
    return int(streams[np.argmax(np.bincount(row, weights=trace.events.size[chosen]))])


def _inside(trace: Trace, name: str) -> Flags:
    """Which events lie between the two ends of an annotation whose name begins so; none without times."""
    inside = np.zeros(len(trace.events) + 1, np.bool_)
    if trace.events.time_us is None:
        return inside[:-1]
    change = np.zeros(len(trace.events) + 1, np.int64)
    for one in trace.annotations:
        if one.name.startswith(name) and one.time_us is not None:
            change[np.searchsorted(trace.events.time_us, one.time_us, side="left")] += 1 if one.stage.upper() == "START" else -1
    inside = np.cumsum(change) > 0
    return inside[:-1]
