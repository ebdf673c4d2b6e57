"""A diff of two attempts for a terminal and as JSON: sentences first, then what changed with the bytes it explains, then every size side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from analysis.diff.rows import Diff, Size
from analysis.diff.sentences import signed
from analysis.report.lines import clean, wrapped
from analysis.verdict import size_text

SHOWN = 40
"""Changes and sizes of a section that are printed; JSON holds all."""
_VALUE = 40


def as_text(found: Diff) -> str:
    """Lines of at most 98 columns, where no value is longer."""
    lines = [f"{found.before} -> {found.after}", ""]
    lines += [line for text in found.sentences for line in wrapped(text)]
    if not found.differs and found.comparable:
        lines += ["Nothing differs."]
    lines += [*_changes(found), *_sizes("Printed theory", found.theory), *_sizes("Expected at the peak", found.expected),
              *_sizes("Measured, fullest rank", found.measured), *_findings(found)]
    if found.not_comparable:
        lines += ["", "Not comparable", *(f"  {name}: {reason}" for name, reason in found.not_comparable.items())]
    return clean("\n".join(lines)) + "\n"


def as_plain(found: Diff) -> dict[str, Any]:
    """JSON's answer: every field, each size with its change."""
    sizes = {name: [{**asdict(one), "change_bytes": one.change_bytes} for one in getattr(found, name)] for name in ("theory", "expected", "measured")}
    findings = {name: [asdict(one) for one in getattr(found, name)] for name in ("appeared", "gone")}
    return {"before": found.before, "after": found.after, "differs": found.differs, "comparable": found.comparable,
            "sentences": list(found.sentences), "changes": [asdict(one) for one in found.changes], "explained_bytes": found.explained.together_bytes,
            "only_together_bytes": found.explained.rest_bytes, **sizes, "findings": findings, "not_comparable": dict(found.not_comparable)}


def _changes(found: Diff) -> Iterator[str]:
    changes, moved = found.changes, found.explained.layout[1:]
    if not changes:
        return
    yield from ("", "What changed, by the bytes it explains on the fullest stage")
    for one in changes[:SHOWN]:
        size = "" if one.explains_bytes is None else "as one" if one.name in moved else signed(one.explains_bytes)
        yield f"  {size:>11}  {one.kind} {one.name}: {_short(one.before)} -> {_short(one.after)}"
    yield from _more(len(changes))


def _sizes(title: str, sizes: Sequence[Size]) -> Iterator[str]:
    if not sizes:
        return
    yield from ("", f"{title:<44} {'before':>12} {'after':>12} {'change':>12}")
    for one in sizes[:SHOWN]:
        change = "-" if one.change_bytes is None else signed(one.change_bytes)
        what = f"{one.where}: {one.what.removesuffix('_bytes').replace('_', ' ')}"
        yield f"  {what:<42} {size_text(one.before_bytes):>12} {size_text(one.after_bytes):>12} {change:>12}"
    yield from _more(len(sizes))


def _findings(found: Diff) -> Iterator[str]:
    for title, rows in (("Findings that appeared", found.appeared), ("Findings that are gone", found.gone)):
        if rows:
            yield from ("", title)
        for one in rows:
            yield from wrapped(f"{one.severity}, {one.confidence}: {one.sentence}", "  ", "    ")


def _more(count: int) -> Iterator[str]:
    if count > SHOWN:
        yield f"  and {count - SHOWN} more: --format json has all"


def _short(value: str | None) -> str:
    return "unset" if value is None else value if len(value) <= _VALUE else f"{value[:_VALUE]}..."
