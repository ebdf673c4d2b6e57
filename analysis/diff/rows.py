"""The frozen records that a diff of two attempts is made of: from `analysis.diff.compare` to every face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from analysis.diff.explained import Explained
from analysis.rows import Overview, Source

if TYPE_CHECKING:
    from analysis.findings.model import Finding

Kind = Literal["argument", "environment", "version", "fact"]


@dataclass(frozen=True, slots=True)
class Side:
    """One attempt: its overview, arguments with native values and the line of each, and its environment."""

    overview: Overview
    args: Mapping[str, Any]
    lines: Mapping[str, Source]
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        """`run#attempt`."""
        return f"{self.overview.run}#{self.overview.run_index}"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs. `explains_bytes` is what it alone does to the fullest stage's expected peak; null with a `reason` where unknown."""

    kind: Kind
    name: str
    before: str | None
    after: str | None
    explains_bytes: int | None
    reason: str | None
    before_source: Source | None = None
    after_source: Source | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """One size on both sides, bytes; `where` is a stage or the part a stage plays, `what` a class or a measure. A null side is not known."""

    where: str
    what: str
    before_bytes: int | None
    after_bytes: int | None

    @property
    def change_bytes(self) -> int | None:
        """After less before."""
        return None if self.before_bytes is None or self.after_bytes is None else self.after_bytes - self.before_bytes


@dataclass(frozen=True, slots=True)
class Diff:
    """Everything that differs between two attempts; `not_comparable` tells, by section, why it is empty."""

    before: str
    after: str
    sentences: tuple[str, ...]
    changes: tuple[Change, ...]
    explained: Explained
    theory: tuple[Size, ...]
    expected: tuple[Size, ...]
    measured: tuple[Size, ...]
    appeared: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    not_comparable: Mapping[str, str]

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        sizes = (*self.theory, *self.expected, *self.measured)
        return bool(self.changes or self.appeared or self.gone or any(one.change_bytes for one in sizes))

    @property
    def comparable(self) -> bool:
        """Whether memory or arguments of both sides are known."""
        return not {"measured", "arguments"} <= set(self.not_comparable)
