"""Tables that a query names and that no SQL text can make: worked out in Python when they are first named, put beside the views.

Storing them at ingest would tie ingest to the analysis and keep old answers. `filled` is told what the query names, and only that is computed,
on connections for people's queries too: it adds a table in memory and touches no setting and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

Columns = tuple[tuple[str, str, str], ...]
"""Name, type as in `ingest.tables`, meaning of each column."""
Row = dict[str, Any]

_TEXT = pa.string()
_TYPES: dict[str, Any] = {
    "string": _TEXT, "int32": pa.int32(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_(), "list<string>": pa.list_(_TEXT),
    "map<string,double>": pa.map_(_TEXT, pa.float64()), "map<string,int64>": pa.map_(_TEXT, pa.int64()), "map<string,string>": pa.map_(_TEXT, _TEXT),
}


def filled(connection: duckdb.DuckDBPyConnection, named: Collection[str], columns: Mapping[str, Columns],
           make: Callable[[duckdb.DuckDBPyConnection, list[str]], Mapping[str, Iterable[Row]]]) -> None:
    """Make the tables of `columns` that a query names (in small letters); those that are there stay. `make` gives the rows of each name wanted."""
    there = _there(connection) if not columns.keys().isdisjoint(named) else set()
    wanted = [name for name in columns if name in named and name not in there]
    for name, rows in (make(connection, wanted) if wanted else {}).items():
        _put(connection, name, columns[name], rows)


@contextmanager
def listed_empty(connection: duckdb.DuckDBPyConnection, columns: Mapping[str, Columns]) -> Iterator[None]:
    """The tables of `columns` without rows, for as long as a query asks for the catalogue: their names and types cost no answer."""
    missing = [name for name in columns if name not in _there(connection)]
    for name in missing:
        _put(connection, name, columns[name], ())
    try:
        yield
    finally:
        for name in missing:
            connection.execute(f"DROP TABLE {name}")


def _there(connection: duckdb.DuckDBPyConnection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


def _put(connection: duckdb.DuckDBPyConnection, name: str, columns: Columns, rows: Iterable[Row]) -> None:
    schema = pa.schema([(column, _TYPES[kind]) for column, kind, _ in columns])
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
