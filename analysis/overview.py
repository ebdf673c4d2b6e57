"""The one answer about an attempt of a run that every face renders: verdict, configuration, coverage, theory, branch, stages, ranks.

Asked by SQL of a connection of `analysis.database`; every figure carries the artifact and line it was read from. What cannot be measured
from the artifacts is listed with its reason instead of being left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from analysis.capacity import Capacity, capacity_of_device
from analysis.communication.nccl import communication
from analysis.coverage import coverage
from analysis.database import records
from analysis.device_table import device_table
from analysis.findings import findings
from analysis.findings.model import Seen
from analysis.last_stage_table import last_stage_of
from analysis.limits import near_limits, with_capacity
from analysis.oom.snapshot import run_snapshots
from analysis.oom.table import oom_table
from analysis.plan.change import before_of, saver
from analysis.rank_layout import sizes_of
from analysis.reconcile import Expected, expected_of, ledger_of
from analysis.rows import Branch, Configuration, HighLoad, Overview, Rank, Reject, Source, Theory
from analysis.run_facts import MODEL_ARGUMENTS, SIZE_ARGUMENTS, arguments_and_lines, arguments_of, configuration, record_counts, steps_before
from analysis.scope import Window, listed, remembered, scoped
from analysis.stage_table import stage_table, surpluses
from analysis.steps.attempt_steps import attempt_steps
from analysis.steps.chances import starts
from analysis.steps.fullest import Fullest, fullest
from analysis.steps.high_load import high_loads
from analysis.steps.load_proxy import load_proxies
from analysis.steps.outlook import stage_tail
from analysis.steps.phase_peaks import phase_peaks
from analysis.steps.staircase import staircase
from analysis.theory.arguments import native_args
from analysis.theory.run_card import run_cards
from analysis.theory_table import theory_of
from analysis.verdict import verdict
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

REJECTS_SHOWN = 20
_RANKS = """
SELECT
    headroom.rank, headroom.rank_label, headroom.pp, headroom.tp, headroom.cp, headroom.ep, headroom.dp, headroom.iteration, headroom.scope,
    headroom.records, headroom.allocated_bytes, headroom.max_allocated_bytes, headroom.reserved_bytes, headroom.max_reserved_bytes,
    headroom.device_used_bytes, headroom.outside_bytes, headroom.outside_source, headroom.capacity_bytes, headroom.capacity_source,
    headroom.peak_bytes, headroom.soft_headroom_bytes, headroom.hard_headroom_bytes, headroom.headroom_bound_bytes, headroom.peak_iteration,
    headroom.peak_phase, headroom.line, headroom.peak_line, COALESCE(piece.path, headroom.artifact) AS path,
    COALESCE(peak_piece.path, headroom.peak_artifact) AS peak_path
FROM rank_headroom AS headroom
LEFT JOIN artifacts AS piece ON piece.artifact = headroom.artifact
LEFT JOIN artifacts AS peak_piece ON peak_piece.artifact = headroom.peak_artifact
WHERE headroom.run = ? AND headroom.run_index = ?
ORDER BY headroom.rank NULLS LAST, headroom.rank_label
"""
_REJECTS = """
SELECT rejects.*, COALESCE(artifacts.path, rejects.artifact) AS path
FROM rejects LEFT JOIN artifacts ON artifacts.artifact = rejects.artifact
WHERE rejects.run = ? AND COALESCE(rejects.run_index, 0) = ?
ORDER BY path, rejects.line, rejects.offset_bytes
"""
_ENVIRONMENT = "SELECT name, MIN(value) AS value FROM environment WHERE run = ? AND run_index = ? AND value IS NOT NULL GROUP BY name"
_STARTS = """
SELECT attempt.run_index, COUNT(event.run) > 0 AS died
FROM run_attempts AS attempt
LEFT JOIN oom_events AS event ON event.run = attempt.run AND event.run_index = attempt.run_index
WHERE attempt.run = ?
GROUP BY attempt.run_index
ORDER BY attempt.run_index
"""
_CHANGED = """
WITH said AS (
    SELECT name, run_index, MIN(COALESCE(value, '')) AS value FROM run_args WHERE run = $run AND list_contains($names, name) GROUP BY name, run_index
)
SELECT name FROM said GROUP BY name HAVING COUNT(DISTINCT value) > 1 ORDER BY name
"""
_FIRST_ERROR = """
SELECT COALESCE(artifacts.path, event.artifact) AS path, event.line
FROM oom_events AS event LEFT JOIN artifacts ON artifacts.artifact = event.artifact
WHERE event.run = ?
ORDER BY event.run_index, event.artifact, event.line
LIMIT 1
"""
_NO_COMMUNICATION = "no line and no setting of NCCL, RCCL or HCCL in the artifacts: run with NCCL_DEBUG=INFO"
_ARTIFACTS = "SELECT DISTINCT path FROM artifacts WHERE run = ? ORDER BY path"


def overview(connection: duckdb.DuckDBPyConnection, run: str, run_index: int | None = None, *, capacity: Capacity | None = None,
             records_at_most: int | None = None, attempts: Sequence[int] = ()) -> Overview:
    """Everything about one attempt (default: the last); `capacity` wins over the artifacts'. Raises LedgerError for an unknown run or attempt.

    With `records_at_most` a long attempt is judged by its last steps, and its coverage says so (`analysis.scope`); without, by all. `attempts` are
    the run's, ascending, where the caller has listed the lake; one that it does not name is looked for.
    """
    attempts = tuple(attempts) if run_index in attempts else _attempts_listed(connection, run, run_index, records_at_most)
    run_index = attempts[-1] if run_index is None else run_index
    with scoped(connection, run, run_index, records_at_most) as window:
        return _overview(connection, run, run_index, attempts, capacity, window)


def _attempts_listed(connection: duckdb.DuckDBPyConnection, run: str, run_index: int | None, records_at_most: int | None) -> tuple[int, ...]:
    """The attempts of a run, in a large lake without reading its records, where that finds the one asked for."""
    if records_at_most is not None:
        with suppress(LedgerError), listed(connection, records_at_most):
            return attempts_of(connection, run, run_index)
    return attempts_of(connection, run, run_index)


def _overview(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, attempts: tuple[int, ...], capacity: Capacity | None,
              window: Window | None) -> Overview:
    since = window.first_iteration if window else -1
    facts = configuration(connection, run, run_index)
    ranks = ranks_of(connection, run, run_index, capacity, facts.gpu_name)
    covered = coverage(connection, run, run_index, tuple(rank.rank for rank in ranks if rank.rank is not None))
    counts = record_counts(connection, run, run_index)
    if window:
        covered = replace(covered, sentence=f"{covered.sentence}; {window.sentence}")
        counts["rank_memory"] = window.records
    snapshots = run_snapshots(connection, run)
    ooms = oom_table(connection, run, run_index, snapshots)
    with attempt_steps(connection, run, run_index):
        loads, top, phases = high_loads(connection), fullest(connection), phase_peaks(connection, run, run_index, since)
        far, far_stage = stage_tail(connection, ranks)
        near = near_limits(connection, ranks, steps_before(connection, run, run_index), {one.rank for one in ooms})
        near = remembered(near, ranks) if window else near
        risers = staircase(connection, run, run_index, {one.rank: one.steps for one in loads})
    args = arguments_of(connection, run, run_index)
    stages = stage_table(ranks, args)
    logits = last_stage_of(connection, run, run_index, ranks, args, facts.num_microbatches)
    devices = device_table(connection, run, run_index)
    theory = theory_of(connection, run, run_index, ranks)
    rejected = records(connection, _REJECTS, [run, run_index])
    found = Overview(
        run=run, run_index=run_index, attempts=attempts, artifacts=tuple(row["path"] for row in records(connection, _ARTIFACTS, [run])),
        verdict=verdict(ranks, near, ooms, covered, devices), configuration=facts, coverage=covered, theory=theory,
        branch=_branch(connection, run, run_index), stages=stages, surpluses=surpluses(stages, facts.pp), ranks=ranks, near_limit=near, ooms=ooms,
        rejected=len(rejected), rejects=tuple(Reject(row["reason"] or "", row["text"] or "", Source(row["path"], row["line"]))
                                              for row in rejected[:REJECTS_SHOWN]),
        not_measurable=_not_measurable(connection, run, run_index, ranks, facts, theory) | _not_risen(ranks, loads, top)
        | ({"logits": logits.reason} if logits.verdict == "not_measurable" else {}),
        devices=devices, records=counts, high_loads=loads, risers=risers, logits=logits,
        fullest=top, snapshots=snapshots, phase_peaks=phases, tail=far, tail_stage=far_stage)
    found = replace(found, load_proxies=() if loads else load_proxies(connection, run, run_index, since),
                    communication=(shown := communication(connection, run, run_index, ranks, args)),
                    not_measurable=found.not_measurable | ({} if shown else {"communication": _NO_COMMUNICATION}))
    environment = environment_of(connection, run, run_index)
    ledger = ledger_of(expected_of(args, facts.num_microbatches, environment, facts.gpu_name), ranks, theory)
    missing = {"gap": ledger.expected.reason or "no rank's peak is known"} if not ledger.gaps else {}
    found = replace(found, ledger=ledger, not_measurable=found.not_measurable | missing)
    first = next((Source(row["path"], row["line"]) for row in records(connection, _FIRST_ERROR, [run])), None)
    found = replace(found, starts=starts([bool(row["died"]) for row in records(connection, _STARTS, [run])], first, _changed(connection, run)))
    return replace(found, findings=findings(seen_of(connection, found, environment)))


def _changed(connection: duckdb.DuckDBPyConnection, run: str) -> tuple[str, ...]:
    """Arguments that shape memory and differ between the attempts of a run, each attempt by the first value it prints."""
    names = [*MODEL_ARGUMENTS, *SIZE_ARGUMENTS]
    return tuple(row["name"] for row in records(connection, _CHANGED, {"run": run, "names": names}))


def environment_of(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> dict[str, str]:
    """The environment variables that the artifacts tell, by name; where ranks differ, one of them."""
    return {row["name"]: row["value"] for row in records(connection, _ENVIRONMENT, [run, run_index])}


def seen_of(connection: duckdb.DuckDBPyConnection, found: Overview, environment: Mapping[str, str]) -> Seen:
    """What the rules look at beside the overview: arguments with native values and their lines, the environment, and what a change would save."""
    known = arguments_and_lines(connection, found.run, found.run_index)
    expected = found.ledger.expected if found.ledger else Expected()
    return Seen(found, native_args(known.args), environment, saver(expected, before_of(expected, found.ranks)), known.places)


def attempts_of(connection: duckdb.DuckDBPyConnection, run: str, run_index: int | None = None) -> tuple[int, ...]:
    """The attempts of a run, ascending. Raises LedgerError, with the names that come near, where there is none, or not the one asked for."""
    found = tuple(row["run_index"] for row in records(connection, "SELECT run_index FROM run_attempts WHERE run = ? ORDER BY run_index", [run]))
    if not found and records(connection, "SELECT 1 FROM artifacts WHERE run = ? LIMIT 1", [run]):
        found = (0,)
    if not found:
        names = [row["run"] for row in records(connection, "SELECT DISTINCT run FROM run_attempts ORDER BY run")]
        within = [name for name in names if run.lower() in name.lower()]
        close = list(dict.fromkeys(within + get_close_matches(run, names, 5, 0.5)))[:5]
        raise LedgerError(f"no run {run!r}", todo=f"near it: {', '.join(close)}" if close else "`hbmledger runs` lists the runs of the lake")
    if run_index is not None and run_index not in found:
        raise LedgerError(f"run {run!r} has no attempt {run_index}", todo=f"it has {', '.join(f'{run}#{one}' for one in found)}")
    return found


def ranks_of(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, capacity: Capacity | None = None,
             gpu_name: str | None = None) -> tuple[Rank, ...]:
    """The measured ranks of an attempt; `capacity` wins over the artifacts', the usual one of `gpu_name` fills what they do not tell."""
    ranks = [_rank(row) for row in records(connection, _RANKS, [run, run_index])]
    usual = capacity_of_device(gpu_name) if gpu_name else None
    return tuple(with_capacity(rank, capacity) if capacity else with_capacity(rank, usual) if usual and rank.capacity_bytes is None else rank
                 for rank in ranks)


def _rank(row: dict[str, Any]) -> Rank:
    same = ("rank", "rank_label", "tp", "cp", "ep", "dp", "iteration", "scope", "records", "allocated_bytes", "max_allocated_bytes", "reserved_bytes",
            "max_reserved_bytes", "device_used_bytes", "outside_bytes", "outside_source", "capacity_bytes", "capacity_source", "peak_bytes",
            "soft_headroom_bytes", "hard_headroom_bytes", "headroom_bound_bytes", "peak_iteration",
            "peak_phase")
    return Rank(stage=row["pp"], source=Source(row["path"], row["line"]), peak_source=Source(row["peak_path"], row["peak_line"]),
                **{name: row[name] for name in same})


def _branch(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> Branch | None:
    found = [card for card in run_cards(connection, run) if card.run_index == run_index] if attempts_known(connection, run) else []
    if not found or (found[0].artifact is None and found[0].card.branch == "undecided"):
        return None
    card = found[0]
    if card.artifact is None:
        return Branch(card.card, None)
    path = records(connection, "SELECT path FROM artifacts WHERE artifact = ?", [card.artifact])
    return Branch(card.card, Source(path[0]["path"] if path else card.artifact, card.line))


def attempts_known(connection: duckdb.DuckDBPyConnection, run: str) -> bool:
    """Whether any record tells of the run (an empty artifact has none)."""
    return bool(records(connection, "SELECT 1 FROM run_attempts WHERE run = ? LIMIT 1", [run]))


def _not_measurable(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, ranks: Sequence[Rank], facts: Configuration,
                    theory: Theory | None) -> dict[str, str]:
    reasons: dict[str, str] = {}
    if not ranks:
        reasons["ranks"] = "no record of a rank's memory in the artifacts"
    if isinstance(sizes := sizes_of(connection, run, run_index), str):
        reasons["stages"] = sizes
    elif facts.pp is not None and facts.pp < 3:
        reasons["surpluses"] = f"with {facts.pp} stage{'s' * (facts.pp > 1)} there is no middle stage to compare with"
    if theory is None:
        reasons["theory"] = "no theoretical footprint in the artifacts: Megatron-LM prints it since 2023-11, on rank 0 only"
    if ranks and all(rank.capacity_bytes is None for rank in ranks):
        reasons["headroom"] = "no capacity in the artifacts; give --capacity"
    elif ranks and all(rank.outside_bytes is None for rank in ranks):
        reasons["headroom"] = "what lies outside torch is in no artifact; run with --log-device-memory-used"
    return reasons


def _not_risen(ranks: Sequence[Rank], loads: Sequence[HighLoad], top: Fullest | None) -> dict[str, str]:
    """Why no staircase, no step of high load and no fullest rank can be told, where that is so."""
    reasons = {} if loads else {"high_load_steps": "no routing data (tokens per expert) in the artifacts: the load of a step is unknown, not low"}
    if top is None:
        reasons["fullest"] = "no step was read on two ranks: there is nothing to compare"
    if all(rank.max_reserved_bytes is None or rank.records < 2 for rank in ranks):
        reasons["staircase"] = "no rank's reserved memory was read twice"
    return reasons

