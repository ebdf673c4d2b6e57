"""The same tables and views on a Spark cluster, through Spark Connect: for lakes that one machine no longer answers in time.

The `.sql` files are those of DuckDB: they keep to the SQL that both engines share, and a test compares every view on a real cluster. The client reads
the lake's transaction logs and hands over the addresses of its Parquet files (never a folder: before a vacuum it holds files that no longer
count), so the workers must see the lake at the same path. What only Python can work out comes from a DuckDB connection of the client, and only the
views that a query needs are made. A query is first read by DuckDB's parser and bound to the views there: what Spark alone would accept
(files in FROM, Java calls, commands) never reaches it.
"""

from __future__ import annotations

import re
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa

from analysis.database import VIEWS, WORKED_OUT, connect, lake_files, view_text, visible_text
from analysis.query.ask import ROW_LIMIT, SECONDS_LIMIT, Answer, answer_of, one_line, too_slow
from analysis.query.check import COMPUTED, checked
from analysis.query.computed import filled
from ingest.errors import LedgerError
from ingest.tables import BY_NAME, Table

if TYPE_CHECKING:
    from ingest.lake import Lake

REACH_SECONDS = 5.0
_CONF = {"spark.sql.session.timeZone": "UTC", "spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.ansi.enabled": "true",
         "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
_TYPES = {
    "string": "STRING", "int32": "INT", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP_NTZ",
    "list<string>": "ARRAY<STRING>", "map<string,string>": "MAP<STRING, STRING>", "map<string,double>": "MAP<STRING, DOUBLE>",
    "map<string,int64>": "MAP<STRING, BIGINT>",
}
_COMPUTED = {name: module for module in COMPUTED for name in module.COLUMNS}
_ONLY_SPARK = re.compile(r"[\\`$]")
_GLOB = re.compile(r"[\\{}*?\[\]]")


@contextmanager
def session(remote: str) -> Iterator[Any]:
    """A session of its own on a Spark Connect server. Raises LedgerError where the client package is missing or no server answers."""
    host, port = _place(remote)
    try:
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.session import SparkSession as _  # noqa: F401 - its parts (grpc, pandas) come with the extra
    except ImportError as error:
        raise LedgerError(f"the client of Spark is not installed: {one_line(error)}", todo="pip install 'hbmledger[spark]'") from error
    try:
        socket.create_connection((host, port), REACH_SECONDS).close()
    except OSError as error:
        raise LedgerError(f"no Spark Connect server answers: {error.strerror or error}", where=remote,
                          todo="start one (sbin/start-connect-server.sh of Spark) or name another with --remote") from error
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            opened = SparkSession.builder.remote(remote).create()
    except Exception as error:
        raise LedgerError(f"the Spark Connect server refused the session: {one_line(error)}", where=remote) from error
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")  # no frame of pandas is used here
            for name, value in _CONF.items():
                opened.conf.set(name, value)
            yield opened
    finally:
        opened.stop()


def ask(session: Any, lake: Lake, query: str, *, rows: int = ROW_LIMIT, seconds: float = SECONDS_LIMIT) -> Answer:
    """The answer to one SELECT that both engines can read. Raises LedgerError for anything else, an error in it, or a time-out."""
    if (found := _ONLY_SPARK.search(query)) is not None:
        raise LedgerError(f"the two engines read {found[0]!r} differently", todo="write the query without it, or leave out --engine spark")
    with connect(lake) as local:
        wanted = checked(local, query)
        if wanted.catalogue:
            raise LedgerError("the catalogue is not asked of Spark", todo="leave out --engine spark: the tables and views are the same")
        _bound(local, query, wanted.relations)
        late = threading.Event()
        timer = threading.Timer(seconds, _interrupt, [session, late])
        timer.start()
        try:
            make_views(session, lake, local, wanted.relations)
            return answer_of(session.sql(query).limit(rows + 1).toArrow(), rows)
        except LedgerError:
            raise
        except Exception as error:
            raise too_slow(seconds) if late.is_set() else LedgerError(f"Spark could not answer the query: {one_line(error)}") from error
        finally:
            timer.cancel()


def _interrupt(session: Any, late: threading.Event) -> None:
    late.set()
    session.interruptAll()


def make_views(session: Any, lake: Lake, local: duckdb.DuckDBPyConnection, names: Sequence[str] | frozenset[str]) -> None:
    """The temporary views `names`, and those they read, in the session; `local` is a connection on the same lake."""
    needed = _needed(names)
    uris = lake_files(lake)
    for name in (table for table in BY_NAME if table in needed):
        _stored(session, BY_NAME[name], uris[name], f"{lake.root}/{name}").createOrReplaceTempView(f"stored_{name}")
    for name in ("artifacts", *(table for table in BY_NAME if table in needed and table != "artifacts")):
        session.sql(visible_text(BY_NAME[name]).replace("stored.", "stored_")).createOrReplaceTempView(name)
        if name == "artifacts":
            session.catalog.cacheTable(name)
    for name in (*WORKED_OUT, *_COMPUTED):
        if name in needed:
            given(session, _worked_out(local, name)).createOrReplaceTempView(name)
    for name in VIEWS:
        if name in needed:
            session.sql(view_text(name)).createOrReplaceTempView(name)


def given(session: Any, rows: pa.Table) -> Any:
    """Rows of this machine as a frame of the cluster, an empty one with its types too."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return session.createDataFrame(rows, schema=from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def _needed(names: Sequence[str] | frozenset[str]) -> set[str]:
    """The relations that a query needs: those it names, and those their texts name."""
    known: Mapping[str, str] = {**dict.fromkeys(BY_NAME, ""), **dict.fromkeys((*WORKED_OUT, *_COMPUTED), ""),
                                **{name: re.sub(r"--[^\n]*", "", view_text(name)) for name in VIEWS}}
    needed, waiting = {"artifacts"}, [name for name in names if name in known]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [word for word in set(re.findall(r"\w+", known[name])) if word in known]
    return needed


def _stored(session: Any, table: Table, uris: Sequence[str], root: str) -> Any:
    """Every column of the table's files by name; null of the right type where a file lacks it. The types are given: no file is opened to look."""
    if not uris:
        nulls = (f"CAST(NULL AS {_TYPES[column.type]}) AS `{column.name}`" for column in table.columns)
        return session.sql(f"SELECT {', '.join(nulls)} WHERE FALSE")
    schema = ", ".join(f"`{column.name}` {_TYPES[column.type]}" for column in table.columns)
    read = session.read.schema(schema).option("basePath", _address(root)).parquet(*(_address(uri) for uri in uris))
    return read.select(*table.names)


def _address(uri: str) -> str:
    """A file or folder as Hadoop names it. Raises LedgerError for a name that it would take for a pattern."""
    if (found := _GLOB.search(uri)) is not None:
        raise LedgerError(f"Spark cannot address a lake with {found[0]!r} in its path", where=uri, todo="move the lake, or leave out --engine spark")
    return uri if "://" in uri else f"file:{Path(uri).absolute()}"


def _worked_out(local: duckdb.DuckDBPyConnection, name: str) -> pa.Table:
    if name in _COMPUTED:
        filled(local, {name}, _COMPUTED[name].COLUMNS, _COMPUTED[name].make)
    return local.sql(f"SELECT * FROM {name}").to_arrow_table()


def _bound(local: duckdb.DuckDBPyConnection, query: str, relations: frozenset[str]) -> None:
    """Bind the query to the same views on this machine: names, types and functions that DuckDB does not know are no common SQL."""
    for module in COMPUTED:
        filled(local, relations, module.COLUMNS, module.make)
    try:
        local.execute(f"EXPLAIN {query}")
    except duckdb.Error as error:
        raise LedgerError(f"the query is not SQL that both engines read: {one_line(error)}") from error


def _place(remote: str) -> tuple[str, int]:
    try:
        parts = urlsplit(remote)
        host, port = parts.hostname, parts.port or 15002
    except ValueError:
        host, port = None, 0
    if not remote.startswith("sc://") or not host:
        raise LedgerError("--remote is the address of a Spark Connect server", where=remote, todo="such as sc://127.0.0.1:15002")
    return host, port
