"""Tables that a query names and that no SQL text can make: worked out in Python when they are first named, put beside the views.

Storing them at ingest would tie ingest to the analysis and keep old answers. `filled` looks at the query, and only what it names is computed,
on connections for people's queries too: it adds a table in memory and touches no setting and no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

Columns = tuple[tuple[str, str, str], ...]
"""Name, type as in `ingest.tables`, meaning of each column."""
Row = dict[str, Any]

_CATALOGUE = re.compile(r"\b(?:show|describe|summarize|information_schema|duckdb_\w+|pragma_\w+|query_table|query)\b", re.IGNORECASE)
_TEXT = pa.string()
_TYPES: dict[str, Any] = {
    "string": _TEXT, "int32": pa.int32(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_(), "list<string>": pa.list_(_TEXT),
    "map<string,double>": pa.map_(_TEXT, pa.float64()), "map<string,int64>": pa.map_(_TEXT, pa.int64()), "map<string,string>": pa.map_(_TEXT, _TEXT),
}


def filled(connection: duckdb.DuckDBPyConnection, query: str, columns: Mapping[str, Columns],
           make: Callable[[duckdb.DuckDBPyConnection, list[str]], Mapping[str, Iterable[Row]]]) -> None:
    """Make the tables of `columns` that a query names, or all of them where it asks for the catalogue; those that are there stay.

    `make` gets the names wanted and gives the rows of each.
    """
    named = {match.group().lower() for match in re.finditer(rf"\b(?:{'|'.join(columns)})\b", query, re.IGNORECASE)}
    named = named or (set(columns) if _CATALOGUE.search(query) else set())
    if not named:
        return
    there = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    wanted = [name for name in columns if name in named and name not in there]
    for name, rows in (make(connection, wanted) if wanted else {}).items():
        schema = pa.schema([(column, _TYPES[kind]) for column, kind, _ in columns[name]])
        connection.register("worked_out", pa.Table.from_pylist(list(rows), schema=schema))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM worked_out")
        connection.unregister("worked_out")


def grouped(connection: duckdb.DuckDBPyConnection, query: str) -> Mapping[tuple[str, int], list[Row]]:
    """The rows of a query by (run, attempt)."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows_of(connection, query):
        found.setdefault((row["run"], row["run_index"]), []).append(row)
    return found


def rows_of(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[Row]:
    """The rows of a query as dictionaries."""
    result = connection.execute(query)
    names = [column[0] for column in result.description or ()]
    return (dict(zip(names, row, strict=True)) for row in result.fetchall())
