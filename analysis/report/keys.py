"""An overview as JSON with the fixed keys that other programs rely on, and as Markdown.

Every key of `KEYS` is always present, empty where there is nothing to say; `not_measurable` then tells why. Sizes are bytes.
"""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any

from analysis.reconcile import Ledger
from analysis.rows import Near, Oom, Overview, Rank, Source, Stage
from analysis.steps.outlook import outlook
from analysis.verdict import size_text

KEYS = ("run", "coverage", "theory", "branch", "stages", "ranks", "logits", "gap", "near_limit", "high_load_steps", "staircase", "oom",
        "communication", "findings")
_MAPPINGS = ("logits", "gap", "communication")


def as_json(overview: Overview, next_steps: int | None = None) -> dict[str, Any]:
    """The report as plain values that `json.dumps` takes; `next_steps` are those of the outlook."""
    whole: dict[str, Any] = {one.name: _plain(getattr(overview, one.name)) for one in fields(overview) if one.name != "ledger"}
    card = whole["branch"]
    found: dict[str, Any] = {
        "run": {"name": overview.run, "run_index": overview.run_index, "attempts": overview.attempts, "artifacts": overview.artifacts,
                "verdict": whole["verdict"], "starts": whole["starts"], **whole["configuration"]},
        "coverage": whole["coverage"], "theory": whole["theory"], "branch": {**card["card"], "source": card["source"]} if card else None,
        "stages": whole["stages"], "stage_surpluses": whole["surpluses"], "ranks": whole["ranks"],
        "near_limit": [near_json(one) for one in overview.near_limit], "oom": [oom_json(one) for one in overview.ooms],
        "findings": whole["findings"], "high_load_steps": whole["high_loads"], "staircase": whole["risers"], "logits": whole["logits"] or {},
        "gap": gap_json(overview.ledger) if overview.ledger else {},
        "rejects": {"count": overview.rejected, "first": whole["rejects"]}, "not_measurable": overview.not_measurable,
        "devices": whole["devices"], "records": overview.records, "communication": whole["communication"] or {},
        "outlook": outlook(overview, next_steps), "load_proxies": whole["load_proxies"], "fullest": whole["fullest"] or {},
        "snapshots": whole["snapshots"],
        "phase_peaks": [{**asdict(one), "sentence": one.sentence} for one in overview.phase_peaks],
    }
    missing: dict[str, Any] = {key: {} if key in _MAPPINGS else [] for key in KEYS if key not in found}
    plain: dict[str, Any] = _plain({**{key: {**found, **missing}[key] for key in KEYS}, **found})
    return plain


def gap_json(ledger: Ledger) -> dict[str, Any]:
    """The `gap` section: a row a measured rank, each stage's expected ledger, and why the ends differ from their neighbours."""
    expected = ledger.expected
    return {"rows": [asdict(one) for one in ledger.gaps], "expected_stages": [asdict(row) for row in expected.stages.values()],
            "differences": [asdict(one) for one in ledger.differences], "assumptions": expected.assumptions, "reason": expected.reason}


def near_json(one: Near) -> dict[str, Any]:
    """A `near_limit` row with the names of the fixed face."""
    row = _plain(one)
    return {"rank": row.pop("rank"), "class": row.pop("near"), **row}


def oom_json(one: Oom) -> dict[str, Any]:
    """An `oom` row with the names of the fixed face."""
    row = asdict(one)
    source = row.pop("source")
    return {**{name: row.pop(name) for name in ("rank", "case", "numbers", "missing")}, "evidence": [source], **row}


def as_markdown(overview: Overview) -> str:
    """The report as Markdown: verdict, coverage, theory beside measured, stages, ranks."""
    parts = [f"# {_escaped(overview.run)} attempt {overview.run_index}", f"**{_escaped(overview.verdict.sentence)}**",
             _places(overview.verdict.evidence), f"Coverage: {overview.coverage.sentence}."]
    if theory := overview.theory:
        rows = [(one.printed, size_text(one.printed_bytes), f"rank {one.rank}, {one.measured}", size_text(one.measured_bytes), f"{one.ratio:.2f}")
                for one in theory.compared]
        parts += [f"## Printed theory\n\n{_places((theory.source,))}", _table(("printed", "size", "measured", "size", "measured / printed"), rows)]
    parts += _branch_parts(overview)
    stages = [(_or_dash(one.stage), one.ranks, *_sizes(one)) for one in overview.stages]
    heads = ("allocated", "peak allocated", "max reserved", "soft headroom", "hard headroom")
    parts += ["## Stages", _table(("stage", "ranks measured", *heads), stages)] if stages else []
    ranks = [(one.rank if one.rank is not None else _escaped(one.rank_label or ""), _or_dash(one.stage), *_sizes(one), _escaped(str(one.source)))
             for one in overview.ranks]
    if (logits := overview.logits) and logits.neighbour_stage is not None:
        parts += ["## Last stage: output weight, logits and loss", f"**{logits.verdict.replace('_', ' ')}**: {_escaped(logits.reason)}."]
    parts += ["## Ranks", _table(("rank", "stage", *heads, "read at"), ranks)] if ranks else []
    near = [(one.rank, one.near, one.kind, f"{one.near_steps} of {one.steps}", size_text(one.headroom_hard_bytes), size_text(one.headroom_soft_bytes))
            for one in overview.near_limit if one.kind]
    parts += ["## Near the limit", _table(("rank", "class", "kind", "steps near", "hard headroom", "soft headroom"), near)] if near else []
    parts += [f"Fullest rank: {_escaped(overview.fullest.sentence)}."] if overview.fullest else []
    phases = [(one.phase, one.rank, _or_dash(one.iteration), ("" if one.exact else "at most ") + size_text(one.peak_bytes),
               size_text(one.training_bytes), _escaped(one.sentence), _escaped(str(one.source))) for one in overview.phase_peaks]
    parts += ["## Peaks by phase", _table(("phase", "rank", "iteration", "peak", "training peak", "says", "read at"), phases)] if phases else []
    died = [(_or_dash(one.rank), size_text(one.numbers.get("requested_bytes")), size_text(one.numbers.get("free_bytes")),
             size_text(one.numbers.get("capacity_bytes")), one.case, _escaped(str(one.source))) for one in overview.ooms]
    parts += ["## Out of memory", _table(("rank", "requested", "free", "capacity", "case", "read at"), died)] if died else []
    parts += ["## Not measurable", "\n".join(f"- {name}: {_escaped(reason)}" for name, reason in overview.not_measurable.items())]
    return "\n\n".join(part for part in parts if part) + "\n"


def _branch_parts(overview: Overview) -> list[str]:
    """The branch card: what was applied, the formula's terms with the run's numbers, what it left out."""
    if overview.branch is None:
        return []
    card = overview.branch.card
    said = f"Branch **{_escaped(card.branch)}** ({card.confidence})" + (f", generations {', '.join(card.generations)}" if card.generations else "")
    terms = [(term.part.replace("_", " "), term.name.replace("_", " "), f"`{term.symbols}`", f"`{term.numbers}`", size_text(term.bytes))
             for term in card.terms]
    left = [(one.name.replace("_", " "), one.stage, size_text(one.bytes)) for one in card.left_out]
    return ["## Formula branch", f"{said}.", _table(("part", "term", "symbols", "numbers", "size"), terms) if terms else "",
            _table(("left out", "stage", "real minus printed"), left) if left else ""]


def _sizes(one: Rank | Stage) -> tuple[str, ...]:
    sizes = (one.allocated_bytes, one.max_allocated_bytes, one.max_reserved_bytes, one.soft_headroom_bytes, one.hard_headroom_bytes)
    return tuple(map(size_text, sizes))


def _table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _places(sources: tuple[Source, ...]) -> str:
    return "" if not sources else "Read at " + ", ".join(_escaped(str(source)) for source in sources) + "."


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _escaped(text: str) -> str:
    """Text of an artifact, harmless in Markdown."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>|#" else " " if char in "\r\n" else char for char in text)


def _plain(value: Any) -> Any:
    """Records as dictionaries, tuples as lists, times as text; without the deep copies of `asdict`."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if is_dataclass(value):
        kind: Any = type(value)
        return {name: _plain(getattr(value, name)) for name in _names(kind)}
    return value.isoformat() if isinstance(value, datetime) else value


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a record; asked once a class, not once a row of thousands."""
    return tuple(one.name for one in fields(kind))
