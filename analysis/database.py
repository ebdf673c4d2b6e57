"""A DuckDB connection whose views stand on a lake, or on rows in memory: every answer of `analysis` is SQL on it.

Each table of `ingest.tables` is a view of its own name that holds visible rows only: a row counts if its `artifact` is a visible
row of `artifacts` (a closed piece, or the newest open tail of its source), so that what a crash left between two commits is never
seen. The stored rows lie in the schema `stored`. A table with no file yet is an empty view of the right types, and a column that old files lack
reads as null. The views of `VIEWS` are `.sql` files, one SELECT each, in the order they need one another; they keep to the SQL that DuckDB and
Spark share. No DuckDB extension is needed.

Opening costs the transaction logs and the table `artifacts` (read once: every query joins it), nothing else: the types come from
`ingest.tables`, so no file is opened; no view holds an answer, so one that asks for a run reads that run. `scoped` keeps what many questions
about one attempt share. What SQL cannot say (`rank_grid`, `load_rules`) is worked out by a function inside a view, for the attempts a query asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from analysis.fleet import views as fleet
from analysis.rank_layout import add_rank_grid
from analysis.steps.expert_load import add_load_rules
from ingest.errors import LedgerError
from ingest.lake import PARTITION
from ingest.tables import BY_NAME, TABLES, Table, arrow_schema

if TYPE_CHECKING:
    from ingest.lake import Lake

Row = Mapping[str, Any]

VIEWS = ("attempt_facts", "run_attempts", "rank_layout", "rank_latest", "rank_capacity", "rank_headroom", "rank_steps", "rank_load",
         "device_latest", "stage_memory", "coverage", "snapshot_levels", "rank_day_levels", "rank_days", *fleet.VIEWS)
"""Every view of `analysis/sql`, each after those it reads; `rank_grid` and `load_rules` stand after the first, others as `fleet.ADDED` says."""

WORKED_OUT = ("rank_grid", "load_rules", *fleet.WORKED_OUT)
"""Views that call Python, which no other engine can read as they are."""

TYPES = {
    "string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP",
    "list<string>": "VARCHAR[]", "map<string,string>": "MAP(VARCHAR, VARCHAR)", "map<string,double>": "MAP(VARCHAR, DOUBLE)",
    "map<string,int64>": "MAP(VARCHAR, BIGINT)",
}

_LOCKS = ("python_enable_replacements = false", "autoinstall_known_extensions = false", "autoload_known_extensions = false",
          "memory_limit = '2GB'", "temp_directory = ''", "threads = 2", "enable_external_access = false", "lock_configuration = true")

_VISIBLE = """
WITH closed AS (
    SELECT source, MAX(end_bytes) AS end_bytes, MAX(ingested_at) AS ingested_at FROM stored.artifacts WHERE status = 'closed' GROUP BY source
), newest AS (
    SELECT source, MAX(end_bytes) AS end_bytes FROM stored.artifacts WHERE status IN ('closed', 'tail') GROUP BY source
)
SELECT {columns}
FROM stored.artifacts AS piece
LEFT JOIN closed ON closed.source = piece.source
LEFT JOIN newest ON newest.source = piece.source
WHERE piece.status = 'closed'
   OR (piece.status = 'tail' AND piece.start_bytes = COALESCE(closed.end_bytes, 0) AND piece.end_bytes = newest.end_bytes)
   OR (piece.status = 'quarantined' AND (closed.ingested_at IS NULL OR closed.ingested_at < piece.ingested_at))
"""


def connect(lake: Lake) -> duckdb.DuckDBPyConnection:
    """An in-memory connection whose views read the lake's files of this moment. Raises LedgerError where the lake cannot be read."""
    uris = lake_files(lake)
    connection = _opened()
    if (reader := lake.file_system()) is not None:
        connection.register_filesystem(reader)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET parquet_metadata_cache = true")  # a file of the lake never changes under its name
    connection.begin()
    _make_views(connection)
    try:
        for table in TABLES:
            if uris[table.name]:
                connection.execute(f"DROP TABLE stored.{table.name}; CREATE VIEW stored.{table.name} AS {stored_text(table, uris[table.name])}")
        connection.execute(f"INSERT INTO artifacts {visible_text(BY_NAME['artifacts'])}")
        connection.commit()
    except duckdb.Error as error:
        raise damage(error) or error from error
    return connection


def _opened() -> duckdb.DuckDBPyConnection:
    """A new database in memory. By default it draws a bar on standard output under queries of more than two seconds, into the middle of JSON."""
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    return connection


def lake_files(lake: Lake) -> dict[str, list[str]]:
    """The Parquet files of each table at this moment.

    `artifacts` is looked at before the others: writers commit it last, so what it names is in every table looked at after it.
    """
    uris = {"artifacts": lake.uris("artifacts")}
    others = [name for name in BY_NAME if name != "artifacts"]
    with ThreadPoolExecutor() as pool:
        uris.update(zip(others, pool.map(lake.uris, others), strict=True))
    return uris


def from_rows(rows: Mapping[str, Sequence[Row]], run: str = "file", artifact: str | None = None) -> duckdb.DuckDBPyConnection:
    """The same views over rows in memory.

    Rows that name no run, attempt or artifact get `run`, 0 and `artifact` (default: `run`); an artifact that has no row of
    `artifacts` gets a closed one whose path is its own name.
    """
    connection = _opened()
    _make_views(connection)
    put_rows(connection, rows, run, artifact or run)
    return connection


def put_rows(connection: duckdb.DuckDBPyConnection, rows: Mapping[str, Sequence[Row]], run: str, artifact: str) -> None:
    """The rows of `from_rows` into views that hold none."""
    filled = {table.name: [_filled(row, run, artifact) for row in rows.get(table.name, ())] for table in TABLES}
    filled["artifacts"] += _artifacts_of(filled, run, artifact)
    for table in TABLES:
        if filled[table.name]:
            given = pa.Table.from_pylist(filled[table.name], schema=arrow_schema(table.name))
            connection.register("given_rows", given)
            connection.execute(f"INSERT INTO stored.{table.name} SELECT * FROM given_rows")
            connection.unregister("given_rows")
    connection.execute(f"INSERT INTO artifacts {visible_text(BY_NAME['artifacts'])}")


def locked(source: Lake | duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A connection for queries that people write: it reads the lake's files and nothing else, and its settings cannot be changed.

    A connection that is given is locked itself: give one of your own. Writing is kept out by `analysis.query.ask.ask`, which takes one SELECT.
    """
    if isinstance(source, duckdb.DuckDBPyConnection):
        connection, uris = source, []
    else:
        connection, uris = connect(source), [uri for table in TABLES for uri in source.uris(table.name)]
    connection.execute(f"SET allowed_paths = [{', '.join(_quoted(uri) for uri in uris)}]")
    for setting in _LOCKS:
        connection.execute(f"SET {setting}")
    return connection


def records(connection: duckdb.DuckDBPyConnection, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[dict[str, Any]]:
    """The rows of a query as dictionaries by column name."""
    try:
        result = connection.execute(query, dict(parameters) if isinstance(parameters, Mapping) else list(parameters))
    except duckdb.Error as error:
        raise damage(error) or error from error
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def damage(error: BaseException) -> LedgerError | None:
    """What to tell a person where the engine could not read a file of the lake; None for any other error."""
    reason = str(error).strip().partition("\n")[0]
    table = re.search(r"/(\w+)/month=", reason)
    if not isinstance(error, duckdb.Error) or table is None or table[1] not in BY_NAME:
        return None
    return LedgerError(f"a file of the table {table[1]} is lost or damaged: {reason}", where="lake",
                       todo="restore the file, or ingest the artifacts into a new lake")


def orphans(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Stored rows, by table, that no visible artifact holds: open tails since replaced, and what a stopped ingest left. They are never read."""
    counts = ((table.name, connection.execute(f"SELECT (SELECT COUNT(*) FROM stored.{table.name}) - (SELECT COUNT(*) FROM {table.name})").fetchall())
              for table in TABLES)
    return {name: rows[0][0] for name, rows in counts if rows[0][0]}


def view_text(name: str) -> str:
    """The SELECT of a view of `VIEWS`."""
    return files("analysis").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8").strip().rstrip(";")


def asked_text(name: str) -> str:
    """A query with parameters of `analysis/sql/asked`."""
    return view_text(f"asked/{name}")


def _make_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Every view, on empty tables: the engine binds a view that is made through all those below it, which on files would take most of an opening."""
    connection.execute("CREATE SCHEMA stored")
    for table in TABLES:
        columns = ", ".join(f'"{column.name}" {TYPES[column.type]}' for column in table.columns)
        connection.execute(f"CREATE TABLE stored.{table.name} ({columns})")
        made = f"TABLE artifacts ({columns})" if table.name == "artifacts" else f"VIEW {table.name} AS {visible_text(table)}"
        connection.execute(f"CREATE {made}")
    for name in VIEWS:
        connection.execute(f"CREATE VIEW {name} AS {view_text(name)}")
        for add in fleet.ADDED.get(name, ()):
            add(connection)
        if name == "attempt_facts":
            add_rank_grid(connection)
            add_load_rules(connection)


def visible_text(table: Table) -> str:
    """The SELECT of the view `table`: the rows of `stored` that a visible artifact holds."""
    columns = ", ".join(f'piece."{name}"' for name in table.names)
    if table.name == "artifacts":
        return _VISIBLE.format(columns=columns)
    return f"SELECT {columns} FROM stored.{table.name} AS piece WHERE piece.artifact IN (SELECT artifact FROM artifacts)"


def stored_text(table: Table, uris: Sequence[str]) -> str:
    """Every column of a table's files by name; null of the right type where a file lacks it. The types are given: none is opened to look."""
    names = ", ".join(_quoted(uri) for uri in uris)
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    typed = ", ".join(f"'{column.name}': {{'name': '{column.name}', 'type': '{TYPES[column.type]}', 'default_value': NULL}}"
                      for column in table.columns if column.name not in PARTITION)
    return f"SELECT {columns} FROM read_parquet([{names}], schema = MAP {{{typed}}}, hive_partitioning = true, hive_types_autocast = false)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _filled(row: Row, run: str, artifact: str) -> dict[str, Any]:
    keys = {"run": row.get("run") or run, "run_index": row.get("run_index") or 0, "artifact": row.get("artifact") or artifact}
    return {**row, **keys}


def _artifacts_of(rows: Mapping[str, Sequence[Row]], run: str, artifact: str) -> list[dict[str, Any]]:
    """A closed row of `artifacts` for each artifact the rows name without one, and for `artifact` where nothing was found in it."""
    known = {row["artifact"] for row in rows["artifacts"]}
    named = {row["artifact"]: row["run"] for table in BY_NAME for row in rows[table] if row["artifact"] not in known}
    if not named and not known:
        named = {artifact: run}
    return [{"run": of, "run_index": 0, "artifact": name, "source": name, "path": name, "start_bytes": 0, "end_bytes": 0, "status": "closed",
             "rejected": sum(row["artifact"] == name for row in rows["rejects"])} for name, of in named.items()]
