"""One query that a person wrote, answered from a locked connection: a single SELECT, with a time limit and a row cap that says so.

The statement is taken apart by DuckDB's own parser, not by looking for words: `COPY ... TO` would still write to allowed paths, and a second
statement may hide behind a semicolon. Comments and strings need no care that way.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import duckdb

from analysis import ledger_views, theory_views
from analysis.computed import filled
from analysis.snapshot import tables as snapshot_tables
from ingest.errors import LedgerError

ROW_LIMIT = 10_000
SECONDS_LIMIT = 30.0
COMPUTED = (theory_views, ledger_views, snapshot_tables)
"""Modules of the tables that are worked out when a query names them; each offers `COLUMNS`, `GRAIN` and `make`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns and rows of a query; `capped` tells that there were more rows than the limit."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    capped: bool


def ask(connection: duckdb.DuckDBPyConnection, query: str, *, rows: int = ROW_LIMIT, seconds: float = SECONDS_LIMIT) -> Answer:
    """The answer to one SELECT on a connection of `analysis.database.locked`. Raises LedgerError for anything else, an error in it, or a time-out."""
    statement = _only_select(connection, query)
    for tables in COMPUTED:
        filled(connection, query, tables.COLUMNS, tables.make)
    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    try:
        result = connection.execute(statement)
        columns = tuple(column[0] for column in result.description or ())
        found = result.fetchmany(rows + 1)
    except duckdb.InterruptException as error:
        raise LedgerError(f"the query ran longer than {seconds:g} s and was stopped", todo="narrow it, or raise the limit") from error
    except duckdb.Error as error:
        raise LedgerError(f"the query failed: {_first_lines(error)}", todo="`hbmledger sql \"SHOW TABLES\"` lists the tables") from error
    finally:
        timer.cancel()
    return Answer(columns, tuple(found[:rows]), len(found) > rows)


def _only_select(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.Statement:
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise LedgerError(f"the query cannot be read: {_first_lines(error)}") from error
    if len(statements) != 1:
        raise LedgerError(f"{len(statements)} statements given; one SELECT would fit")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise LedgerError(f"a {statements[0].type.name} statement is not allowed here; one SELECT would fit: the lake is read only")
    return statements[0]


def _first_lines(error: Exception) -> str:
    """DuckDB's message with its caret line, without the trailing blank."""
    return str(error).strip()
