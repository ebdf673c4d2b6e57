"""Blocks that live too long: of a class that ends with its micro-batch, yet live over an optimizer step or for most of the trace.

Weights, gradients and optimizer states are meant to stay; an activation, a loss or a batch that is still there after the optimizer has
stepped is held by something: a list of losses, a hook, a graph that was not freed. A block whose free was asked for long before it
completed waits for another stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.snapshot.classes import ALL_RULES, Classes, optimizer_events
from analysis.snapshot.lives import Lives
from analysis.snapshot.rules import CATEGORIES
from analysis.snapshot.stacks import Stacks
from analysis.snapshot.trace import Flags, Ints, Trace

TRANSIENT = ("activations", "recomputed", "logits_and_loss", "communication", "input", "checkpoint")
MOST = 0.5
"""Share of the trace that a transient block may live where no optimizer step is in it."""
WAITS = 1_000
"""Events between a free that was asked for and its end that are told as waiting."""


@dataclass(frozen=True, slots=True)
class LongLived:
    """One kind of block: its owner's stack, class and stream; the largest one's birth and free (events, null where not in the trace).

    `bytes` is the most of its requested bytes that were live at once, `blocks` counts all.
    """

    stack: int
    category: str
    stream: int
    blocks: int
    bytes: int
    birth: int | None
    last_free: int | None
    alive_at_end: int
    why: str


def long_lived(trace: Trace, lives: Lives, classes: Classes, stacks: Stacks, most: int = 50) -> tuple[LongLived, ...]:
    """The kinds of block that live too long, most bytes first."""
    stays = np.array([rule.stays for rule in ALL_RULES], np.bool_)
    transient = np.isin(classes.category, [CATEGORIES.index(name) for name in TRANSIENT]) & ~stays[classes.rule]
    steps = optimizer_events(trace, stacks)
    if len(steps):
        crossed = np.searchsorted(steps, lives.completed_at, side="left") - np.searchsorted(steps, lives.birth, side="right")
        over = transient & (crossed > 0) & (lives.birth >= 0)
        why = "lives over an optimizer step"
    else:
        long = lives.completed_at - lives.birth > MOST * max(lives.events, 1)
        over = transient & (lives.birth >= 0) & long & (lives.completed_at >= lives.events)
        why = f"lives for more than {MOST:.0%} of the trace and at its end"
    waits = (lives.requested_at >= 0) & (np.minimum(lives.completed_at, lives.events) - lives.requested_at > WAITS)
    found = [*_kinds(lives, classes, over, why), *_kinds(lives, classes, waits & ~over, f"its free waited for more than {WAITS:,} events")]
    return tuple(sorted(found, key=lambda one: -one.bytes)[:most])


def _kinds(lives: Lives, classes: Classes, chosen: Flags, why: str) -> list[LongLived]:
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return []
    keys = np.stack((lives.stack[rows].astype(np.int64), classes.category[rows].astype(np.int64), lives.stream[rows]))
    kinds, of_row = np.unique(keys, axis=1, return_inverse=True)
    total = np.bincount(of_row.ravel(), weights=lives.size[rows])
    found = []
    for kind in np.argsort(-total)[:50]:
        mine = rows[of_row.ravel() == kind]
        largest = mine[np.argmax(lives.size[mine])]
        end = int(lives.completed_at[largest])
        found.append(LongLived(int(kinds[0, kind]), CATEGORIES[int(kinds[1, kind])], int(kinds[2, kind]), len(mine), _at_once(lives, mine),
                               _known(int(lives.birth[largest])), end if end < lives.events else None,
                               int((lives.completed_at[mine] >= lives.events).sum()), why))
    return found


def _at_once(lives: Lives, rows: Ints) -> int:
    """The most requested bytes of these lives that were live at the same time."""
    when = np.concatenate((lives.birth[rows], lives.completed_at[rows]))
    change = np.concatenate((lives.size[rows], -lives.size[rows]))
    return int(np.cumsum(change[np.lexsort((change, when))]).max())


def _known(event: int) -> int | None:
    return event if event >= 0 else None
