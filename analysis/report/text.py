"""An overview as text for a terminal of 100 columns: what matters first, sizes in GiB, each section with the place it was read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from analysis.coverage import shown_ranks
from analysis.report.communication import communication_lines
from analysis.report.findings import finding_lines
from analysis.report.ledger import ledger_lines
from analysis.report.limits import RANKS_SHOWN, near_lines, oom_lines, outlook_lines, phase_lines, staircase_lines
from analysis.report.lines import clean, places, wrapped
from analysis.report.theory import last_stage_lines, other_branch_lines
from analysis.rows import Configuration, Overview, Rank, Stage, StageSurplus
from analysis.theory.terms_text import term_lines

GIB = 2**30
_MEASURES = {"allocated_bytes": "allocated", "max_allocated_bytes": "peak allocated", "max_reserved_bytes": "max reserved"}
_COLUMNS = (("alloc", "allocated_bytes"), ("peak", "max_allocated_bytes"), ("reserved", "max_reserved_bytes"), ("dev used", "device_used_bytes"),
            ("outside", "outside_bytes"), ("soft left", "soft_headroom_bytes"), ("hard left", "hard_headroom_bytes"))
_LABEL = 24


def as_text(overview: Overview) -> str:
    """The report of one attempt."""
    sections: tuple[Callable[[Overview], Iterator[str]], ...] = (
        _head, finding_lines, _run, _theory, _branch, _stages, last_stage_lines, ledger_lines, _ranks, _devices, communication_lines, outlook_lines,
        phase_lines, staircase_lines, oom_lines, _rest)
    return "\n".join(clean("\n".join(lines)) for section in sections if (lines := list(section(overview)))) + "\n"


def _head(overview: Overview) -> Iterator[str]:
    others = [str(one) for one in overview.attempts if one != overview.run_index]
    named = "" if not others else f" ({'also attempt' if len(others) == 1 else 'also attempts'} {', '.join(others)}: {overview.run}#{others[-1]})"
    yield from wrapped(f"{overview.run}, attempt {overview.run_index}{named}")
    yield ""
    yield from wrapped(overview.verdict.sentence, "  ")
    yield from places(overview.verdict.evidence)


def _run(overview: Overview) -> Iterator[str]:
    facts = overview.configuration
    yield "\nRun"
    rows = [("program", " ".join(filter(None, (facts.framework, facts.framework_version)))), ("sizes", _sizes(facts)),
            ("batch", _batch(facts)), ("model", _model(facts)), ("device", facts.gpu_name or ""), ("iterations", _iterations(facts)),
            ("time", _time(facts)), ("snapshots", _snapshots(overview)),
            ("coverage", overview.coverage.sentence), ("ranks seen", shown_ranks(overview.coverage.ranks))]
    for name, text in rows:
        if text:
            yield from wrapped(text, f"  {name:<12}", "  " + " " * 12)
    if facts.source:
        yield from places((facts.source,))


def _theory(overview: Overview) -> Iterator[str]:
    theory = overview.theory
    if theory is None:
        return
    when = "" if theory.iteration is None else f" at iteration {theory.iteration}"
    yield f"\nTheory, printed{when}" + (f" by {theory.producer}" if theory.producer else "")
    sizes = (("weight and optimizer", theory.weight_and_optimizer_bytes), ("activation", theory.activation_bytes), ("total", theory.total_bytes))
    for name, size in sizes:
        own = [one for one in theory.compared if one.printed == name]
        if size is None:
            continue
        first = f"  {name:<22}{_gib(size):>9} GiB"
        yield first if not own else first + "   measured/printed"
        for one in own:
            who = f"rank {one.rank}" if one.rank is not None else "an unnamed rank"
            who += "" if one.stage is None else f" (stage {one.stage})"
            yield f"    {who + ', ' + one.measured:<44}{_gib(one.measured_bytes):>9} GiB {one.ratio:>10.2f}"
    yield from places((theory.source,))


def _branch(overview: Overview) -> Iterator[str]:
    if overview.branch is None:
        return
    card = overview.branch.card
    yield "\nFormula branch"
    which = f"{card.branch} ({card.confidence})" + (f", generations {', '.join(card.generations)}" if card.generations else "")
    yield from wrapped(which, "  ")
    for one in (*card.contradictions,):
        yield from wrapped(f"contradicts: {one.sentence}", "  ", "    ")
    for left in card.left_out:
        what = f"{left.name.replace('_', ' ')}, {left.sentence}"
        yield from wrapped(f"left out {left.bytes / GIB:+.2f} GiB on the {left.stage} stage: {what}", "  ", "    ")
    if card.terms:
        yield from wrapped(f"term by term, as {card.generations[-1]} counts it:", "  ")
        yield from term_lines(card.terms, "  ", least=0.001)
    yield from other_branch_lines(card)


def _stages(overview: Overview) -> Iterator[str]:
    if not overview.stages or all(one.stage is None for one in overview.stages):
        return
    yield "\nStages, each by its fullest measured rank, GiB"
    alike = [list(group) for _, group in groupby(overview.stages, _as_shown)]
    yield from _memory_table("stage", [(_span(group), str(sum(one.ranks for one in group)), group[0]) for group in alike])
    held: dict[str, list[int]] = {}
    for one in overview.stages:
        if one.stage is not None and one.holds:
            held.setdefault(one.holds, []).append(one.stage)
    for holds, stages in held.items():
        yield from wrapped(f"stage{'s' * (len(stages) > 1)} {shown_ranks(tuple(stages))}: {holds}", "  ", "    ")
    for which in ("first", "last"):
        parts = [_above(one) for one in overview.surpluses if one.which == which]
        if parts:
            middle = next(one.middle_stages for one in overview.surpluses if one.which == which)
            yield from wrapped(f"{which} stage against the median of {middle} middle stage{'s' * (middle > 1)}: {', '.join(parts)}", "  ", "    ")
    if overview.configuration.pp == 2 and (reason := overview.not_measurable.get("surpluses")):
        yield from wrapped(f"first and last against the middle: {reason}", "  ", "    ")


def _ranks(overview: Overview) -> Iterator[str]:
    if not overview.ranks:
        return
    alike: dict[tuple[str, ...], list[Rank]] = {}
    for one in sorted(overview.ranks, key=_fullest_first):
        alike.setdefault(_as_shown(one), []).append(one)
    shown = list(alike.values())[:RANKS_SHOWN]
    count = sum(map(len, shown))
    yield "\nRanks" + (f", the {count} fullest of {len(overview.ranks)}" if count < len(overview.ranks) else "") + ", GiB"
    rows = [(_ranks_of(group), "?" if group[0].stage is None else str(group[0].stage), group[0]) for group in shown]
    yield from _memory_table("rank", rows, second="stage")
    if any(_bound(group[0]) is not None for group in shown):
        yield "  left <: capacity - reserved, at most, where nothing outside torch is known"
    yield from near_lines(overview)
    if overview.fullest and overview.fullest.steps > 1:
        yield from wrapped(overview.fullest.sentence, "  ", "    ")
    if reason := overview.not_measurable.get("headroom"):
        yield from wrapped(f"headroom: {reason}", "  ", "    ")
    yield from places((shown[0][0].source,))


def _devices(overview: Overview) -> Iterator[str]:
    """Devices that no rank of the table above already told of: other ranks' and those of no proven rank."""
    told = {one.rank for one in overview.ranks if one.device_used_bytes is not None}
    shown = [one for one in overview.devices if one.rank is None or one.rank not in told]
    if not shown:
        return
    yield "\nDevices, each at its fullest reading, GiB"
    for one in shown[:RANKS_SHOWN]:
        name = " ".join(filter(None, (one.host, f"device {one.device}" if one.device is not None else f"rank {one.rank}", one.device_name)))
        yield f"  {name:<52}{_gib(one.used_bytes):>9} of {_gib(one.total_bytes):>7}  {one.source or ''}"
    if len(shown) > RANKS_SHOWN:
        yield f"  and {len(shown) - RANKS_SHOWN} more"
    yield from places((shown[0].read_at,))


def _rest(overview: Overview) -> Iterator[str]:
    lines = [(name, overview.not_measurable[name]) for name in ("ranks", "theory", "stages") if name in overview.not_measurable]
    if lines or overview.rejected:
        yield "\nNot in the artifacts" if lines else ""
    for name, reason in lines:
        yield from wrapped(f"{name}: {reason}", "  ", "    ")
    if overview.rejected:
        yield f"  {overview.rejected} stretch{'es' * (overview.rejected > 1)} looked like a record and could not be read, the first at:"
        yield from places(tuple(one.source for one in overview.rejects[:3]))


def _as_shown(row: Rank | Stage) -> tuple[str, ...]:
    """What a line of the table shows: stages in a row, and ranks of a stage, that read alike share one."""
    apart = (str(row.stage), str(row.rank_label)) if isinstance(row, Rank) else (str(row.stage is None),)
    return (*(_gib(getattr(row, name)) for _, name in _COLUMNS), _gib(_bound(row)), *apart)


def _ranks_of(group: Sequence[Rank]) -> str:
    """The ranks of a line, cut where they are many and scattered."""
    if group[0].rank is None:
        return group[0].rank_label or "?"
    text = shown_ranks(tuple(sorted(one.rank for one in group if one.rank is not None)))
    return text if len(text) <= _LABEL else f"{text[:_LABEL - 9].rpartition(',')[0]}, ... {len(group)}"


def _span(stages: Sequence[Stage]) -> str:
    numbers = tuple(one.stage for one in stages if one.stage is not None)
    return shown_ranks(numbers) or "?"


def _memory_table(first: str, rows: Sequence[tuple[str, str, Rank | Stage]], second: str = "ranks") -> Iterator[str]:
    """A table of the columns that any row has; `left <` is the bound that stands where nothing outside torch is known."""
    columns = [(head, name) for head, name in _COLUMNS if any(getattr(row, name) is not None for _, _, row in rows)]
    bounds = [_bound(row) for _, _, row in rows]
    width = max(len(first), *(len(label) for label, _, _ in rows))
    yield f"  {first:>{width}} {second:>6}" + "".join(f"{head:>10}" for head, _ in columns) + (f"{'left <':>10}" if any(bounds) else "")
    for (label, count, row), bound in zip(rows, bounds, strict=True):
        sizes = [_gib(getattr(row, name)) for _, name in columns] + ([_gib(bound)] if any(bounds) else [])
        yield f"  {label:>{width}} {count:>6}" + "".join(f"{size:>10}" for size in sizes)


def _bound(row: Rank | Stage) -> int | None:
    return row.headroom_bound_bytes if row.soft_headroom_bytes is None else None


def _fullest_first(rank: Rank) -> tuple[float, float, int]:
    left = rank.soft_headroom_bytes if rank.soft_headroom_bytes is not None else rank.headroom_bound_bytes
    return (left if left is not None else float("inf"), -(rank.max_reserved_bytes or rank.max_allocated_bytes or 0), rank.rank or 0)


def _sizes(facts: Configuration) -> str:
    named = [(name, getattr(facts, name.lower())) for name in ("TP", "PP", "VPP", "CP", "EP", "ETP", "DP")]
    quiet = {"VPP": 1, "CP": 1, "EP": 1, "ETP": facts.etp if (facts.ep or 1) == 1 else facts.tp}
    shown = ", ".join(f"{name} {size}" for name, size in named if size is not None and size != quiet.get(name))
    return ": ".join(filter(None, (f"{facts.world_size} ranks" if facts.world_size else "", shown)))


def _batch(facts: Configuration) -> str:
    micro, whole = facts.model.get("micro_batch_size"), facts.model.get("global_batch_size")
    parts = (f"micro-batch {micro}" if micro else "", f"global batch {whole}" if whole else "",
             f"{facts.num_microbatches} micro-batch{'es' * (facts.num_microbatches > 1)} a step" if facts.num_microbatches else "",
             f"sequence {facts.model['seq_length']}" if "seq_length" in facts.model else "")
    return ", ".join(filter(None, parts))


def _model(facts: Configuration) -> str:
    apart = ("micro_batch_size", "global_batch_size", "seq_length")
    shown = [name.replace("_", " ") + ("" if value == "True" else f" {value}") for name, value in facts.model.items() if name not in apart]
    vocabulary = [f"padded vocabulary {facts.padded_vocab_size}"] if facts.padded_vocab_size else []
    return ", ".join(shown + vocabulary)


def _iterations(facts: Configuration) -> str:
    if facts.last_iteration is None:
        return ""
    planned = f" of {facts.train_iterations} planned" if facts.train_iterations else ""
    return f"{facts.first_iteration} to {facts.last_iteration}{planned}"


def _snapshots(overview: Overview) -> str:
    """The memory snapshots of the run; `hbmledger snapshot` and the page Snapshot open one."""
    named = [(f"rank {one.rank}" if one.rank is not None else one.rank_label or "rank not told") + (", out of memory" if one.trigger == "oom" else "")
             + ("" if one.iteration is None else f", step {one.iteration}") for one in overview.snapshots]
    more = f"; and {len(named) - RANKS_SHOWN} more" if len(named) > RANKS_SHOWN else ""
    return f"{len(named)}: {'; '.join(named[:RANKS_SHOWN])}{more}" if named else ""


def _time(facts: Configuration) -> str:
    times = [f"{at:%Y-%m-%d %H:%M:%S}" for at in (facts.started_at, facts.ended_at) if at]
    return " to ".join(dict.fromkeys(times))


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / GIB:.2f}"


def _above(one: StageSurplus) -> str:
    return f"{_MEASURES[one.measure]} {_signed(one.surplus_bytes / GIB, '.2f')} GiB ({_signed(one.surplus_ratio * 100, '.1f')} %)"


def _signed(value: float, form: str) -> str:
    """With its sign; what rounds to nothing has none."""
    text = format(value, "+" + form)
    return text[1:] if not float(text) else text
