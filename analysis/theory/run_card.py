"""Branch cards of a run in a lake: one for each attempt, from its printed block and its own arguments.

Reads the views `theory_reports`, `run_args` and `run_attempts` by SQL. Megatron may print its block several times; the last one
counts. Arguments that nothing can be computed with do not stop the card: the lines speak alone, and the sentence that says what
is missing is part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis.theory.branch import Card, Evidence, branch_card
from analysis.theory.run_arguments import RunArguments, run_arguments
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

_REPORTS = "SELECT run_index, artifact, line, iteration, producer, text FROM theory_reports WHERE run = ? ORDER BY run_index, line"
_ARGUMENTS = "SELECT run_index, name, value, origin, line FROM run_args WHERE run = ?"
_ATTEMPTS = "SELECT * FROM run_attempts WHERE run = ? ORDER BY run_index"
_MEGATRON = (None, "megatron-lm")


@dataclass(frozen=True, slots=True)
class RunCard:
    """The card of one attempt; `line` is that of the block's footprint, its last, in `artifact`. The card's own line numbers count the lines of
    the block's text from 1: other ranks' lines may fall between them in the artifact."""

    run: str
    run_index: int
    artifact: str | None
    line: int | None
    iteration: int | None
    card: Card


def run_cards(connection: duckdb.DuckDBPyConnection, run: str) -> list[RunCard]:
    """One card an attempt of `run`, in order. Raises LedgerError for a run the lake does not hold."""
    attempts = list(_rows(connection, _ATTEMPTS, run))
    if not attempts:
        raise LedgerError(f"no run {run!r} in this lake", todo="`hbmledger runs` lists them")
    arguments, reports = list(_rows(connection, _ARGUMENTS, run)), list(_rows(connection, _REPORTS, run))
    return [_card(run, attempt, [row for row in arguments if row["run_index"] == attempt["run_index"]],
                  [row for row in reports if row["run_index"] == attempt["run_index"]]) for attempt in attempts]


def _card(run: str, attempt: dict[str, Any], arguments: list[dict[str, Any]], reports: list[dict[str, Any]]) -> RunCard:
    known = run_arguments(arguments, [attempt])
    last: dict[str, Any] = reports[-1] if reports else {"artifact": None, "line": None, "iteration": None, "producer": None, "text": ""}
    card = card_of(last["text"] or "", last["producer"], known, has_arguments=bool(arguments))
    return RunCard(run, attempt["run_index"], last["artifact"], last["line"], last["iteration"], card)


def card_of(text: str, producer: str | None, known: RunArguments, *, has_arguments: bool) -> Card:
    """The card of one attempt's last block: of the lines alone where there are no arguments, or none that can be computed with."""
    return _judged(text, known, has_arguments=has_arguments) if producer in _MEGATRON else _foreign(str(producer))


def _judged(text: str, known: RunArguments, *, has_arguments: bool) -> Card:
    if not has_arguments:
        return branch_card(text)
    try:
        return branch_card(text, known.args, known.microbatches, argument_lines=known.lines)
    except LedgerError as error:
        alone = branch_card(text)
        return replace(alone, evidence=(*alone.evidence, Evidence("arguments", f"no arithmetic: {error.what}")))


def _foreign(producer: str) -> Card:
    return Card("undecided", (), (), "none", (Evidence("shape", f"printed by {producer}, not by Megatron-LM's own formula"),))


def _rows(connection: duckdb.DuckDBPyConnection, query: str, run: str) -> Iterator[dict[str, Any]]:
    """Rows as dictionaries by column name."""
    result = connection.execute(query, [run])
    names = [column[0] for column in result.description or ()]
    return (dict(zip(names, row, strict=True)) for row in result.fetchall())
