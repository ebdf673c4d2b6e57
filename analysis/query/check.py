"""What a person's query is, and what it may name: one SELECT over the tables and views of the lake, and functions that reach nothing else.

The text is taken apart by DuckDB's own parser (`json_serialize_sql` gives its syntax tree), so that comments, strings and quoting need no care.
Relations and table functions are allowed by name: a file in FROM, a reader of files, the engine's settings and secrets are all refused because
they are not on the list, also those that a later release of DuckDB may add. Functions of one value reach nothing, but for a few that are named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from analysis.database import VIEWS, WORKED_OUT
from analysis.query import ledger_views, theory_views
from analysis.query import limit_views as limit_tables
from analysis.snapshot import tables as snapshot_tables
from ingest.errors import LedgerError
from ingest.tables import TABLES

COMPUTED = (theory_views, ledger_views, snapshot_tables, limit_tables)
"""Modules of the tables that are worked out when a query names them; each offers `COLUMNS`, `GRAIN` and `make`."""
QUERY_BYTES = 200_000

_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
_CATALOGUE = frozenset({"tables", "columns"})
_REFUSED_FUNCTIONS = frozenset({"current_setting", "getenv", "getvariable", "write_log", "nextval", "currval", "setval", "setseed"})
_LISTS = '`hbmledger sql "SHOW TABLES"` lists the tables'


@dataclass(frozen=True, slots=True)
class Checked:
    """One SELECT that may run: what it names, in small letters, and whether it asks for the catalogue."""

    statement: duckdb.Statement
    relations: frozenset[str]
    catalogue: bool


def checked(connection: duckdb.DuckDBPyConnection, query: str) -> Checked:
    """The query's one statement. Raises LedgerError where it is not one SELECT, or names what it may not."""
    if len(query.encode("utf-8", "surrogatepass")) > QUERY_BYTES:
        raise LedgerError(f"the query is longer than {QUERY_BYTES:,} bytes", todo="shorten it")
    statement = _one_select(connection, query)
    tree = _tree(connection, query)
    relations, functions, made = _named(tree)
    known = {name.lower() for name in (*names(), *_there(connection))} | made
    for schema, name in relations:
        if not (schema in ("", "main", "stored") and name in known) and not (schema == "information_schema" and name in _CATALOGUE):
            raise LedgerError(f"there is no table or view {'.'.join(filter(None, (schema, name)))!r} that a query may read", todo=_LISTS)
    for name in sorted(functions):
        raise LedgerError(f"the function {name} is not allowed here: a query reads the lake and nothing else", todo=_LISTS)
    listing = any(node.get("show_type") == "SHOW_SPECIAL" for node in _nodes(tree)) or any(schema == "information_schema" for schema, _ in relations)
    return Checked(statement, frozenset(name for _, name in relations), listing)


def names() -> tuple[str, ...]:
    """Every table and view that a query may name."""
    return (*(table.name for table in TABLES), *VIEWS, *WORKED_OUT, *(name for module in COMPUTED for name in module.COLUMNS))


def _one_select(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.Statement:
    try:
        statements = connection.extract_statements(query)
    except (duckdb.Error, UnicodeError) as error:
        raise LedgerError(f"the query cannot be read: {str(error).strip().partition(chr(10))[0]}", todo="one SELECT would fit") from error
    if len(statements) != 1:
        raise LedgerError(f"{len(statements)} statements given; one SELECT would fit")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise LedgerError(f"{statements[0].type.name} is not allowed here; one SELECT would fit: the lake is read only")
    return statements[0]


def _tree(connection: duckdb.DuckDBPyConnection, query: str) -> Any:
    """The syntax tree of the statement."""
    try:
        rows = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
        tree = json.loads(rows[0][0])
    except RecursionError as error:
        raise LedgerError("the query is nested too deeply", todo="simplify it") from error
    if tree["error"]:
        raise LedgerError(f"the query cannot be read: {str(tree.get('error_message', 'not a SELECT')).partition(chr(10))[0]}")
    return tree["statements"]


def _named(tree: Any) -> tuple[set[tuple[str, str]], set[str], set[str]]:
    """(schema, name) of every relation, functions that are refused, and the names that WITH makes; all in small letters."""
    relations: set[tuple[str, str]] = set()
    functions: set[str] = set()
    made: set[str] = set()
    for node in _nodes(tree):
        kind = node.get("type")
        if kind == "BASE_TABLE" or (kind == "SHOW_REF" and node.get("show_type") == "SHOW"):
            relations.add((str(node.get("schema_name", "")).lower(), str(node.get("table_name", "")).lower()))
        elif kind == "TABLE_FUNCTION":
            name = str(node["function"]["function_name"]).lower()
            functions |= {name} - _TABLE_FUNCTIONS
        elif kind == "FUNCTION" or "function_name" in node:
            functions |= {str(node.get("function_name", "")).lower()} & _REFUSED_FUNCTIONS
        for entry in node["cte_map"].get("map", ()) if isinstance(node.get("cte_map"), dict) else ():
            made.add(str(entry["key"]).lower())
    return relations, functions, made


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of the tree; walked with a list, since a query may be nested deeper than Python calls."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _there(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Tables and views of the connection that are ours."""
    found = connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal "
                               "UNION SELECT view_name FROM duckdb_views() WHERE NOT internal")
    return [str(row[0]) for row in found.fetchall()]
