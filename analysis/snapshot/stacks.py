"""Stacks made useful: plumbing skipped, files cut to their package, the rule that fits each distinct stack.

A snapshot of a million events has some thousand distinct stacks and some thousand distinct frames: patterns are tried once a frame,
and a stack is judged by the bits of its frames.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from analysis.snapshot.rules import PHASES, PLUMBING, RULES, Rule
from analysis.snapshot.trace import Action, Flags, Small, Snapshot

NONE = "(no stack)"
WIDEST = 120
_WORTH_A_LINE = 4096
"""Smaller requests, such as a tensor that warms a communicator up, do not tell which line of a constructor comes first."""

_FRAME = re.compile(r"^(.*?):(\d+|\?) (.*)$", re.DOTALL)
_PACKAGE = re.compile(r"^.*/(?:site-packages|dist-packages)/(?=.)"
                      r"|^.*/(?=(?:megatron/(?:core|training|legacy|post_training|bridge)|transformer_engine)/)")
_LAST_PARTS = re.compile(r"^(?:/|[A-Za-z]:/).*/(?=(?:[^/]+/){2}[^/]+$)")
_TORCH = re.compile(r"^(?:torch|einops|numpy|contextlib|_inductor|torchinductor)[/.]|/torchinductor_")
_TELLING = re.compile(r"Backward\d*|AccumulateGrad|^at::native::|Workspace|ProcessGroup")


class Stacks:
    """The distinct stacks of one snapshot. Rows are those of `Snapshot.stacks`; `largest` is the largest request of each."""

    def __init__(self, stacks: Sequence[Sequence[str]], largest: Sequence[int] | None = None) -> None:
        self._largest = [_WORTH_A_LINE] * len(stacks) if largest is None else largest
        self._plumbing = re.compile(PLUMBING)
        self._short: dict[str, tuple[str, int, bool]] = {}
        self.frames = tuple(tuple(frame for frame in map(self._known, stack) if not frame[2]) for stack in stacks)

    def __len__(self) -> int:
        return len(self.frames)

    @cached_property
    def rule(self) -> Small:
        """Row of `RULES` for each stack, -1 where none fits."""
        judged = _Judge(RULES, self.frames, self._largest)
        return np.array([judged.rule(stack) for stack in self.frames], np.int32)

    @cached_property
    def phase(self) -> Small:
        """Row of `PHASES` for each stack, -1 where none fits."""
        fits = {frame: _bits(frame[0], _PHASES) for frame in {frame for stack in self.frames for frame in stack}}
        return np.array([_lowest(_union(fits[frame] for frame in stack)) for stack in self.frames], np.int32)

    def in_phase(self, name: str) -> Flags:
        """Which stacks are of this phase."""
        flags: Flags = self.phase == [phase for phase, _ in PHASES].index(name)
        return flags

    def owner(self, stack: int) -> str:
        """The innermost Python frame that is not PyTorch's, else the innermost Python frame, else the innermost C++ function that says something."""
        frames = self.frames[stack] if stack >= 0 else ()
        python = [frame for frame in frames if ".py:" in frame[0]]
        chosen = next((frame for frame in python if not _TORCH.search(frame[0])), next(iter(python), None))
        if chosen is not None:
            return _with_line(chosen)
        named = next((frame for frame in frames if _TELLING.search(frame[0])), next(iter(frames), None))
        return NONE if named is None else _without_arguments(named[0])

    def text(self, stack: int) -> tuple[str, ...]:
        """The Python frames as people read them, innermost first; of a stack without any, the names of its C++ functions."""
        if stack < 0:
            return ()
        python = tuple(_with_line(frame) for frame in self.frames[stack] if ".py:" in frame[0])
        return python or tuple(_without_arguments(frame[0]) for frame in self.frames[stack])

    def _known(self, frame: str) -> tuple[str, int, bool]:
        if (known := self._short.get(frame)) is None:
            known = self._short[frame] = _shortened(frame, self._plumbing)
        return known


Frame = tuple[str, int, bool]
_PHASES = tuple(re.compile(pattern) for _, pattern in PHASES)


class _Judge:
    """The rules over frames: a bit a pattern, worked out once a distinct frame."""

    def __init__(self, rules: Sequence[Rule], stacks: Sequence[Sequence[Frame]], largest: Sequence[int]) -> None:
        self._rules = rules
        frames = {frame for stack in stacks for frame in stack}
        self._bits = {name: {frame: _bits(frame[0], [re.compile(getattr(rule, name) or r"(?!)") for rule in rules]) for frame in frames}
                      for name in ("frame", "outer", "without", "never")}
        self._lines: dict[tuple[int, str], set[int]] = {}
        for stack, size in zip(stacks, largest, strict=True):
            if size >= _WORTH_A_LINE:
                self._note(stack)

    def rule(self, stack: Sequence[Frame]) -> int:
        """The first rule that fits, -1 for none."""
        fits, never = (_union(self._bits[name][frame] for frame in stack) for name in ("frame", "never"))
        return next((at for at in range(len(self._rules)) if fits >> at & 1 and not never >> at & 1 and self._fits(at, stack)), -1)

    def _fits(self, at: int, stack: Sequence[Frame]) -> bool:
        rule, bit = self._rules[at], 1 << at
        place = next(place for place, frame in enumerate(stack) if self._bits["frame"][frame] & bit)
        if rule.outer and not any(self._bits["outer"][frame] & bit for frame in stack[place:]):
            return False
        if rule.without and any(self._bits["without"][frame] & bit for frame in stack[:place]):
            return False
        return not rule.first_line or self._is_first_line(at, stack[place])

    def _is_first_line(self, at: int, frame: Frame) -> bool:
        lines = self._lines.get((at, frame[0]), set())
        return len(lines) > 1 and frame[1] == min(lines)

    def _note(self, stack: Sequence[Frame]) -> None:
        """The line that allocates, for the rules that ask which is the first."""
        for at in (at for at, rule in enumerate(self._rules) if rule.first_line):
            frame = next((frame for frame in stack if self._bits["frame"][frame] >> at & 1), None)
            if frame is not None:
                self._lines.setdefault((at, frame[0]), set()).add(frame[1])


def _bits(text: str, patterns: Sequence[re.Pattern[str]]) -> int:
    return sum(1 << at for at, pattern in enumerate(patterns) if pattern.search(text))


def _union(bits: Iterable[int]) -> int:
    every = 0
    for one in bits:
        every |= one
    return every


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _shortened(frame: str, plumbing: re.Pattern[str]) -> Frame:
    """`file:function`, its line, and whether it is plumbing; of a frame without a known file the function alone."""
    parts = _FRAME.match(frame)
    file, line, function = parts.groups() if parts else ("", "0", frame)
    file = _LAST_PARTS.sub("", _PACKAGE.sub("", file.replace("\\", "/")))
    text = f"{file}:{function}" if file.endswith(".py") else function
    return text, int(line) if line != "?" else 0, bool(plumbing.search(text))


def _with_line(frame: Frame) -> str:
    file, mark, function = frame[0].partition(".py:")
    return f"{file}.py:{frame[1]} {function}" if mark else frame[0]


def _without_arguments(function: str) -> str:
    """A C++ function without its arguments and template parameters, at most `WIDEST` characters."""
    plain, depth = [], 0
    for at, char in enumerate(function):
        if char in "(<" and not function.startswith("(anonymous", at):
            depth += 1
        if not depth:
            plain.append(char)
        if char in ")>" and depth:
            depth -= 1
    name = "".join(plain).strip() or function
    return name if len(name) <= WIDEST else name[:WIDEST - 1] + "…"


def stacks_of(snapshot: Snapshot) -> Stacks:
    """The stacks of a snapshot, with the largest request of each."""
    largest = np.zeros(len(snapshot.stacks) + 1, np.int64)
    for trace in snapshot.devices:
        for stack, size in ((trace.events.stack, np.where(trace.events.action == Action.ALLOC, trace.events.size, 0)),
                            (trace.blocks.stack, trace.blocks.requested)):
            np.maximum.at(largest, stack, size)
    return Stacks(snapshot.stacks, largest[:-1].tolist())
