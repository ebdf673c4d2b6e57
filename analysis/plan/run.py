"""A plan for a run of a connection: the overview's ledger, ranks and capacity, asked again with other settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analysis.capacity import given_capacity
from analysis.expected.names import without_effect
from analysis.overview import environment_of, overview, seen_of
from analysis.plan.change import Plan, Sensitivity, before_of, plan, sensitivity
from analysis.plan.offload import Offload, offloads
from analysis.rows import Overview
from analysis.theory.arguments import native_args
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb


_STEP_TIME = "SELECT MEDIAN(elapsed_ms) FROM iterations WHERE run = ? AND run_index = ? AND elapsed_ms > 0"


def planned(connection: duckdb.DuckDBPyConnection, run: str, run_index: int | None, changes: Mapping[str, Any], device: str | None = None) -> Plan:
    """The run with other settings, on another device where one is named. Raises LedgerError for what Megatron would refuse."""
    found = overview(connection, run, run_index)
    return plan_of(found, changes, device)


def plan_of(found: Overview, changes: Mapping[str, Any], device: str | None = None) -> Plan:
    """The same from an overview."""
    if found.ledger is None or not found.ledger.expected.stages:
        reason = found.ledger.expected.reason if found.ledger else None
        raise LedgerError(reason or "the run's ledger is not known", where=found.run, todo="a log with an argument dump is needed")
    capacity = given_capacity(device).capacity_bytes if device else None
    expected = found.ledger.expected
    before = before_of(expected, found.ranks, capacity)
    made = plan(expected, before, changes)
    unknown = [name for name, value in changes.items() if expected.args.keys().isdisjoint(native_args({name: value}))]
    told = without_effect(unknown, changes, lambda given: plan(expected, before, given).stages, of="this run")
    return replace(made, assumptions=(*told, *made.assumptions))


def offload_of(connection: duckdb.DuckDBPyConnection, found: Overview) -> tuple[Offload, ...]:
    """What offload would move each step, against the run's own step time where its iterations tell it."""
    if found.ledger is None:
        return ()
    row = connection.execute(_STEP_TIME, [found.run, found.run_index]).fetchone()
    return offloads(found.ledger.expected, row[0] / 1000 if row and row[0] else None)


def sensitivities(connection: duckdb.DuckDBPyConnection, run: str, run_index: int | None) -> tuple[Sensitivity, ...]:
    """What each single change would save on the fullest rank."""
    return sensitivities_of(connection, overview(connection, run, run_index))


def sensitivities_of(connection: duckdb.DuckDBPyConnection, found: Overview) -> tuple[Sensitivity, ...]:
    """The same from an overview."""
    plan_of(found, {})
    assert found.ledger is not None
    seen = seen_of(connection, found, environment_of(connection, found.run, found.run_index))
    return sensitivity(seen, found.ledger.expected, before_of(found.ledger.expected, found.ranks))
