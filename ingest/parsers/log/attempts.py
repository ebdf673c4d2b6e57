"""When a further job attempt begins in the same artifact.

A launcher that restarts a job appends to the same log. Numbers of two attempts must never be compared as one run, so each becomes a `run_index`. A
world-size line and the argument dump after it open ONE attempt; only their return after the job has progressed opens the next. Without
them (INFO filtered) an iteration that falls back to the first one or, after a restart was announced, below the last says the same.
"""

from __future__ import annotations

import re

_STARTS = {
    "world": re.compile(r"using world size: ?\d"),
    "arguments": re.compile(r"-{10,} (?!end of )[\w ]*arguments[\w ]* -{10,}"),
    "launch": re.compile(r"\b(?:torchrun|python[\d.]*|srun|deepspeed)\b.*\s--(?:tensor-model-parallel-size|num-layers|micro-batch-size)\b"),
}
_RESTART = re.compile(r"(?i)\bretry\b|\brestart(?:ing|ed)?\b|\bresum(?:e|ing)\b|worker group|\battempt \d")
_ITERATION = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+ \|")
LITERALS = ("using world size:", "- arguments -", "arguments ---", "retry", "Retry", "estart", "esuming", "worker group", "attempt ",
            "--tensor-model-parallel-size", "--num-layers", "--micro-batch-size")
"""A line without any of these is asked for its iteration alone: most lines are memory and iteration records."""


class Attempts:
    """What the present attempt has shown; plain values, kept from piece to piece."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.first: int | None = None
        self.last: int | None = None
        self.progressed = False
        self.announced = False

    def begins(self, text: str) -> bool:
        """Whether this line opens a further attempt; notes what it shows."""
        marked = any(literal in text for literal in LITERALS)
        kind = next((name for name, pattern in _STARTS.items() if pattern.search(text)), None) if marked else None
        iteration = int(match[1]) if "iteration" in text and (match := _ITERATION.search(text)) else None
        new = self.progressed and (kind in self.seen or (kind == "launch" and bool(self.seen)))
        new = new or (iteration is not None and self._fell_back(iteration))
        if new:
            self.__init__()  # type: ignore[misc]
        if kind and kind not in self.seen:
            self.seen.append(kind)
        if iteration is not None:
            self.first = iteration if self.first is None else self.first
            self.last = iteration if self.last is None else max(self.last, iteration)
            self.progressed = True
        elif marked and self.progressed and _RESTART.search(text):
            self.announced = True
        return new

    def _fell_back(self, iteration: int) -> bool:
        if self.first is None or self.last is None or iteration >= self.last:
            return False
        return iteration <= self.first or self.announced

    def state(self) -> list[object]:
        """What `restore` takes."""
        return [list(self.seen), self.first, self.last, self.progressed, self.announced]

    def restore(self, state: list[object]) -> None:
        """Stand where an earlier piece ended."""
        self.seen, self.first, self.last, self.progressed, self.announced = state  # type: ignore[assignment]
