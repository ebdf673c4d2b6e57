"""What a finding is, what a rule sees, and what an action costs: the shapes that rules, catalogue and faces share.

A rule is a small declared object: it looks at one attempt (`Seen`) and gives findings or none. An action is declared once in the catalogue with
what it saves, costs and needs, and says itself where it is in force already or would save nothing; a rule only names the symptom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from analysis.rows import Overview, Source

Severity = Literal["error", "warning", "note"]
Confidence = Literal["proven", "likely", "possible"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Worst first."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One action here. `saved_bytes` on the fullest rank by the plan, null where it is not simulated; `order` within its symptom, 1 first."""

    action: str
    sentence: str
    order: int
    saved_bytes: int | None
    computation: str
    communication: str
    complexity: Literal["a switch", "a setting", "a new layout", "code"]
    fails_when: str


@dataclass(frozen=True, slots=True)
class Useless:
    """An action of the symptom that is not advised here, and why: in force already, or it would save nothing."""

    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence that matters, with the lines that show it and what to do. `rule` is documented in docs/findings.md."""

    id: str
    severity: Severity
    confidence: Confidence
    sentence: str
    evidence: tuple[Source, ...]
    actions: tuple[Advice, ...] = ()
    useless: tuple[Useless, ...] = ()


Saver = Callable[[Mapping[str, Any]], int | str | None]
"""Bytes that a change of arguments saves on the fullest rank, or why Megatron would refuse it; null where the run's ledger is not known."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What rules look at: the overview of one attempt, its arguments with native values, its environment, and the plan's answer."""

    overview: Overview
    args: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    saved: Saver = lambda change: None
    argument_lines: Mapping[str, Source] = field(default_factory=dict)

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self.args.get(name) in (True, "True", 1)

    def number(self, name: str, default: int = 1) -> int:
        """A size; the default where it is absent or not a number."""
        value = self.args.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def said(self, *names: str) -> tuple[Source, ...]:
        """The lines that print these arguments."""
        return tuple(dict.fromkeys(self.argument_lines[name] for name in names if name in self.argument_lines))

    @property
    def recomputed(self) -> tuple[str, ...]:
        """Modules that selective recompute covers; empty where it is off."""
        if self.args.get("recompute_granularity") != "selective":
            return ()
        modules = self.args.get("recompute_modules")
        return tuple(modules) if isinstance(modules, list | tuple) else ("core_attn",)

    @property
    def flash(self) -> bool:
        """Whether attention keeps no score matrix: flash or fused, as Transformer Engine chooses unless told otherwise."""
        backend = str(self.args.get("attention_backend", "auto")).rpartition(".")[2]
        return self.on("use_flash_attn") or (backend in ("flash", "fused", "auto") and self.args.get("transformer_impl") == "transformer_engine")

    @property
    def moe(self) -> bool:
        """Whether the model has experts."""
        return self.number("num_experts", 0) > 1


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `look` gives its findings on an attempt; `title` and `source` are documented."""

    id: str
    title: str
    source: str
    look: Callable[[Seen], Iterator[Finding]]
