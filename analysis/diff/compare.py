"""What changed between two attempts: arguments, environment, printed theory, expected and measured memory, findings, and which change explains it.

Both sides are asked as `report` asks them. Stages stand beside each other by number where both have as many, else by the part they play
(first, fullest middle, last). What a changed argument explains is worked out by `analysis.diff.explained`, never guessed from its name; what
neither side's artifacts tell is listed with its reason, for an argument that one side does not print is no change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analysis.diff.explained import Explained, explained
from analysis.diff.rows import Change, Diff, Side, Size
from analysis.diff.sentences import sentences
from analysis.overview import environment_of, overview
from analysis.rows import Overview
from analysis.run_facts import arguments_and_lines
from analysis.theory.arguments import native_args

if TYPE_CHECKING:
    import duckdb

    from analysis.capacity import Capacity

MEASURES = ("allocated_bytes", "max_allocated_bytes", "max_reserved_bytes", "outside_bytes", "device_used_bytes")
"""Measured sizes set beside each other, of the stage's fullest rank in each."""
_FACTS = ("framework", "framework_version", "gpu_name", "world_size", "num_microbatches")


def side_of(connection: duckdb.DuckDBPyConnection, run: str, run_index: int | None = None, capacity: Capacity | None = None,
            called: str | None = None) -> Side:
    """One attempt (default: the last), its run `called` so where its name alone would not tell it. Raises LedgerError for an unknown one."""
    found = overview(connection, run, run_index, capacity=capacity)
    return side(connection, run, replace(found, run=called or run))


def side(connection: duckdb.DuckDBPyConnection, run: str, found: Overview) -> Side:
    """The same of an overview that is there already; `run` is its run's name in the records."""
    known = arguments_and_lines(connection, run, found.run_index)
    return Side(found, native_args(known.args), known.places, environment_of(connection, run, found.run_index))


def diff(before: Side, after: Side) -> Diff:
    """What is another in `after`."""
    changed = {name: (_value(before.args.get(name)), _value(after.args.get(name))) for name in _changed_arguments(before, after)}
    why = explained(before.overview.ledger, after.overview.ledger, {name: after.args.get(name) for name in changed})
    changes = sorted(_changes(before, after, changed, why),
                     key=lambda one: (-abs(one.explains_bytes or 0), one.explains_bytes is None, one.kind, one.name))
    pairs = _pairs(before.overview, after.overview)
    measured, expected = tuple(_measured(before.overview, after.overview, pairs)), tuple(_expected(before.overview, after.overview, pairs))
    known = [{one.id: one for one in side.overview.findings} for side in (before, after)]
    found = Diff(before.name, after.name, (), tuple(changes), why, tuple(_theory(before.overview, after.overview)), expected, measured,
                 appeared=tuple(one for name, one in known[1].items() if name not in known[0]),
                 gone=tuple(one for name, one in known[0].items() if name not in known[1]),
                 not_comparable=_not_comparable(before, after, measured, expected))
    return replace(found, sentences=tuple(sentences(found, before.overview, after.overview)))


def _changed_arguments(before: Side, after: Side) -> list[str]:
    """Names whose values differ. A name that one side does not print at all is a change only where the other sets it to something."""
    names = dict.fromkeys([*before.args, *after.args]) if before.args and after.args else {}
    return [name for name in names if _differs(name, before.args, after.args)]


def _differs(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    one, other = before.get(name), after.get(name)
    if name in before and name in after:
        return bool(one != other)
    unset = (None, False, 1) if name.endswith("_parallel_size") else (None, False)
    return one not in unset or other not in unset


def _value(value: Any) -> str | None:
    return None if value is None else str(value)


def _changes(before: Side, after: Side, arguments: Mapping[str, tuple[str | None, str | None]], why: Explained) -> Iterator[Change]:
    for name, (old, new) in arguments.items():
        size, reason = why.alone.get(name, (None, why.reason))
        yield Change("argument", name, old, new, size, reason, before.lines.get(name), after.lines.get(name))
    for name in dict.fromkeys([*before.environment, *after.environment]) if before.environment and after.environment else ():
        was, now = before.environment.get(name), after.environment.get(name)
        if was != now:
            yield Change("version" if "version" in name.lower() else "environment", name, was, now, None, None)
    for name in _FACTS:
        pair = getattr(before.overview.configuration, name), getattr(after.overview.configuration, name)
        if name not in arguments and None not in pair and pair[0] != pair[1]:
            yield Change("fact", name, str(pair[0]), str(pair[1]), None, None)


def _pairs(before: Overview, after: Overview) -> dict[str, tuple[int | None, int | None]]:
    """Which stage stands beside which, by how the pair is called."""
    old, new = _stages(before), _stages(after)
    if len(old) == len(new) or not old or not new:
        return {"stage unknown" if stage is None else f"stage {stage}": (stage, stage) for stage in dict.fromkeys([*old, *new])}
    if None in (*old, *new):
        return {"fullest rank": (_fullest(before, old), _fullest(after, new))}
    middle = _fullest(before, old[1:-1] or old), _fullest(after, new[1:-1] or new)
    return {"first stage": (old[0], new[0]), "fullest middle stage": middle, "last stage": (old[-1], new[-1])}


def _stages(found: Overview) -> Sequence[int | None]:
    """Every stage of the attempt, known by its arguments or by its measured ranks."""
    if found.ledger is not None and found.ledger.expected.stages:
        return sorted(found.ledger.expected.stages)
    return sorted({rank.stage for rank in found.ranks}, key=lambda stage: -1 if stage is None else stage)


def _fullest(found: Overview, among: Sequence[int | None]) -> int | None:
    """The stage with the largest measured peak, else the largest expected one."""
    expected = found.ledger.expected.stages if found.ledger else {}
    return max(among, key=lambda stage: (_most(found, stage, "max_allocated_bytes") or 0,
                                         expected[stage].peak_allocated_bytes if stage is not None and stage in expected else 0))


def _most(found: Overview, stage: int | None, measure: str) -> int | None:
    return max((size for rank in found.ranks if rank.stage == stage and (size := getattr(rank, measure)) is not None), default=None)


def _measured(before: Overview, after: Overview, pairs: Mapping[str, tuple[int | None, int | None]]) -> Iterator[Size]:
    for where, (old, new) in pairs.items():
        sizes = [Size(where, measure, _most(before, old, measure), _most(after, new, measure)) for measure in MEASURES]
        yield from (one for one in sizes if one.before_bytes is not None or one.after_bytes is not None)


def _expected(before: Overview, after: Overview, pairs: Mapping[str, tuple[int | None, int | None]]) -> Iterator[Size]:
    """The expected peak of each pair by class, classes that stay the same left out; the whole first."""
    stages = [one.ledger.expected.stages if one.ledger else {} for one in (before, after)]
    for where, (old, new) in pairs.items():
        if old is None or new is None or old not in stages[0] or new not in stages[1]:
            continue
        was, now = stages[0][old], stages[1][new]
        yield Size(where, "peak", was.peak_allocated_bytes, now.peak_allocated_bytes)
        yield Size(where, "after a step", was.steady_allocated_bytes, now.steady_allocated_bytes)
        names = dict.fromkeys([*was.peak_classes, *now.peak_classes])
        sizes = [Size(where, name, was.peak_classes.get(name, 0), now.peak_classes.get(name, 0)) for name in names]
        yield from sorted((one for one in sizes if one.change_bytes), key=lambda one: -abs(one.change_bytes or 0))


def _theory(before: Overview, after: Overview) -> Iterator[Size]:
    for name in ("weight_and_optimizer_bytes", "activation_bytes", "total_bytes"):
        pair = [getattr(one.theory, name) if one.theory else None for one in (before, after)]
        if any(size is not None for size in pair):
            yield Size("printed", name, *pair)


def _not_comparable(before: Side, after: Side, measured: tuple[Size, ...], expected: tuple[Size, ...]) -> dict[str, str]:
    reasons: dict[str, str] = {}

    def lacking(section: str, what: str, has: tuple[bool, bool]) -> None:
        if not all(has):
            reasons[section] = f"{what} of {' and '.join(side.name for side, known in zip((before, after), has, strict=True) if not known)}"

    lacking("arguments", "no argument dump in the artifacts", (bool(before.args), bool(after.args)))
    lacking("environment", "no environment in the artifacts", (bool(before.environment), bool(after.environment)))
    lacking("theory", "no footprint was printed in the artifacts", (before.overview.theory is not None, after.overview.theory is not None))
    if not any(one.change_bytes is not None for one in measured):
        reasons["measured"] = "no stage was measured in both"
    if not expected:
        reasons["expected"] = next((one.overview.ledger.expected.reason for one in (before, after) if one.overview.ledger and
                                    one.overview.ledger.expected.reason), None) or "the stages cannot be set beside each other"
    return reasons
