"""Everything about one device of a snapshot, worked out when it is first asked for.

Levels and lifetimes take a fraction of a second for a million events; the rest builds on them, so a page that shows the timeline does
not pay for the risers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.snapshot.classes import ALL_RULES, Classes, classify
from analysis.snapshot.history import History, history
from analysis.snapshot.layout import Layout, after, at_end
from analysis.snapshot.levels import Levels, Peak, levels, peak
from analysis.snapshot.lives import Lives, lives
from analysis.snapshot.longlived import LongLived, long_lived
from analysis.snapshot.oom import Oom, ooms
from analysis.snapshot.risers import Riser, risers
from analysis.snapshot.rules import CATEGORIES, PHASES
from analysis.snapshot.stacks import Stacks, stacks_of
from analysis.snapshot.timeline import Timeline, timeline
from analysis.snapshot.trace import Flags, Ints, Small, Snapshot, Trace

NEAR = 200
"""Events before an instant in which its phase is looked for."""


@dataclass(frozen=True, slots=True)
class Share:
    """A class, a rule or a stack and what it holds at an instant: requested bytes and blocks."""

    name: str
    category: str
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Moment:
    """When: the event, its time, the phase by its stack, and the annotations open then."""

    event: int
    time_us: int | None
    phase: str
    evidence: str
    annotations: tuple[str, ...]


class Device:
    """One device; every property is computed once."""

    def __init__(self, trace: Trace, stacks: Stacks, snapshot: Snapshot) -> None:
        self.trace, self.stacks, self.snapshot = trace, stacks, snapshot
        self._timeline: tuple[tuple[int, int | None], Timeline] | None = None
        self._depth = np.array([len(stack) for stack in snapshot.stacks], np.int64)

    @cached_property
    def lives(self) -> Lives:
        """Every allocation."""
        return lives(self.trace, self.snapshot.settings)

    @cached_property
    def levels(self) -> Levels:
        """Exact levels."""
        return levels(self.trace, self.lives)

    @cached_property
    def classes(self) -> Classes:
        """The class of each life."""
        return classify(self.trace, self.lives, self.stacks)

    @cached_property
    def peak(self) -> Peak:
        """The peak of requested bytes."""
        return peak(self.levels.requested)

    @cached_property
    def history(self) -> History:
        """What the trace does not hold."""
        return history(self.trace, self.lives, self.levels, self._depth)

    @cached_property
    def layout(self) -> Layout:
        """Segments at the end."""
        return at_end(self.trace)

    @cached_property
    def risers(self) -> tuple[Riser, ...]:
        """The staircase of reserved."""
        return risers(self.trace, self.lives, self.levels, self.snapshot.settings)

    @cached_property
    def ooms(self) -> tuple[Oom, ...]:
        """Out-of-memory events."""
        return ooms(self.trace, self.lives, self.levels, self.classes, self.snapshot.settings)

    @cached_property
    def long_lived(self) -> tuple[LongLived, ...]:
        """Blocks that live too long."""
        return long_lived(self.trace, self.lives, self.classes, self.stacks)

    def layout_after(self, event: int) -> Layout:
        """Segments after an event."""
        return self.layout if event >= len(self.trace.events) - 1 else after(self.trace, self.lives, event)

    def timeline(self, start: int = -1, stop: int | None = None) -> Timeline:
        """Classes over the trace, or a part of it; the last one asked for is kept."""
        if self._timeline is None or self._timeline[0] != (start, stop):
            self._timeline = (start, stop), timeline(self.lives, self.classes, self.levels.requested, self.levels.reserved, start, stop)
        return self._timeline[1]

    def highest(self, start: int, stop: int) -> int:
        """The event of the highest requested level between two events, both included."""
        last = len(self.trace.events) - 1
        start, stop = max(-1, min(start, stop, last)), max(-1, min(max(start, stop), last))
        return start + int(np.argmax(self.levels.requested[start + 1:stop + 2]))

    def event_at(self, milliseconds: float) -> int:
        """The last event no later than so many milliseconds after the first; -1 without times."""
        times = self.trace.events.time_us
        return -1 if times is None or not len(times) else int(np.searchsorted(times, times[0] + milliseconds * 1000, side="right")) - 1

    def by_class(self, event: int) -> tuple[Share, ...]:
        """Every class with bytes after an event, the most first."""
        live = self.lives.live_after(event)
        return tuple(Share(CATEGORIES[code], CATEGORIES[code], size, blocks)
                     for code, size, blocks in self._grouped(live, self.classes.category[live]))

    def by_rule(self, event: int) -> tuple[Share, ...]:
        """Every rule with bytes after an event, the most first."""
        live = self.lives.live_after(event)
        return tuple(Share(ALL_RULES[row].name, ALL_RULES[row].category, size, blocks)
                     for row, size, blocks in self._grouped(live, self.classes.rule[live]))

    def by_stack(self, event: int, most: int | None = None) -> tuple[tuple[int, Share], ...]:
        """The stacks that hold most after an event, each with its row, per class; named by their owner."""
        live = self.lives.live_after(event)
        width = len(CATEGORIES)
        keys = (self.lives.stack[live].astype(np.int64) + 1) * width + self.classes.category[live]
        return tuple((key // width - 1, Share(self.stacks.owner(key // width - 1), CATEGORIES[key % width], size, blocks))
                     for key, size, blocks in self._grouped(live, keys)[:most])

    def moment(self, event: int) -> Moment:
        """When an event was, and in which phase."""
        events = self.trace.events
        if event < 0:
            return Moment(event, None, "before the trace", "the level stood before the first event", ())
        time = int(events.time_us[event]) if events.time_us is not None else None
        phase, evidence = self._phase(event)
        return Moment(event, time, phase, evidence, self._open(time))

    def _phase(self, event: int) -> tuple[str, str]:
        """By the event's own stack; where that tells nothing, by the nearest one before it that does."""
        for row in range(event, max(-1, event - NEAR), -1):
            stack = int(self.trace.events.stack[row])
            if stack < 0:
                continue
            back = f", {event - row} events before" if row < event else ""
            if self.stacks.phase[stack] >= 0:
                return PHASES[int(self.stacks.phase[stack])][0], self.stacks.owner(stack) + back
            if not self.stacks.frames[stack]:
                return "backward (no stack)", f"an empty stack: a thread without Python frames, as autograd's is{back}"
        return "unknown", self.stacks.owner(int(self.trace.events.stack[event]))

    def _open(self, time: int | None) -> tuple[str, ...]:
        """Names of the annotations open at a time."""
        opened: dict[str, int] = {}
        for one in self.trace.annotations:
            if time is not None and one.time_us is not None and one.time_us <= time:
                opened[one.name] = opened.get(one.name, 0) + (1 if one.stage.upper() == "START" else -1)
        return tuple(name for name, count in opened.items() if count > 0)

    def _grouped(self, live: Flags, keys: Ints | Small) -> list[tuple[int, int, int]]:
        """Key, requested bytes and blocks of each group of live blocks, most bytes first."""
        kinds, of_row, blocks = np.unique(keys, return_inverse=True, return_counts=True)
        sums = np.bincount(of_row, weights=self.lives.size[live], minlength=len(kinds)).astype(np.int64)
        return [(int(kinds[at]), int(sums[at]), int(blocks[at])) for at in np.argsort(-sums, kind="stable")]


def devices(snapshot: Snapshot) -> tuple[Device, ...]:
    """Every device of a snapshot, sharing its stacks."""
    stacks = stacks_of(snapshot)
    return tuple(Device(trace, stacks, snapshot) for trace in snapshot.devices)
