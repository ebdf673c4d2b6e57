"""A DuckDB connection for upkeep: it sorts and sums more than memory holds by writing to a temporary folder, and reads a lake where it lies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from ingest.errors import LedgerError
from ingest.lake import Lake, sentence
from ingest.upkeep.stored import StoredFile

MEMORY_BYTES = 1024**3
"""What DuckDB may hold; the files being written come on top."""


_TYPES = {
    "string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "date32[day]": "DATE",
    "timestamp[us]": "TIMESTAMP",
}


@contextmanager
def in_one_sentence(lake: Lake) -> Iterator[None]:
    """Errors of disk, memory and store as `LedgerError`: what was committed stays, a file that was not is left for `vacuum`."""
    try:
        yield
    except (OSError, DeltaError, duckdb.Error, pa.ArrowException) as error:
        raise LedgerError(f"upkeep stopped: {sentence(error)}", where=lake.root, todo=(
            "nothing is half done; check room, memory and permissions, and run the same command again")) from error


@contextmanager
def spilling(lake: Lake, memory_bytes: int = MEMORY_BYTES) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that is closed, and its temporary folder removed, at the end."""
    with tempfile.TemporaryDirectory(prefix="hbmledger-upkeep-") as folder:
        connection = duckdb.connect(config={"memory_limit": f"{memory_bytes}B", "temp_directory": folder, "threads": 2,
                                            "preserve_insertion_order": False})
        try:
            if files := lake.file_system():
                connection.register_filesystem(files)
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET enable_progress_bar = false")
            yield connection
        finally:
            connection.close()


def files_query(files: Sequence[StoredFile], columns: Sequence[str] = ("*",), schema: pa.Schema | None = None) -> str | None:
    """A SELECT over data files, columns by name; a file that lacks one gives null. None for no files.

    With the table's `schema` no file is opened to look for its columns: of a thousand small files that is half the time.
    """
    if not files:
        return None
    names = ", ".join(_quoted(one.uri) for one in files)
    types = {field.name: _type(field.type) for field in schema or ()}
    if not types or None in types.values():
        return f"SELECT {', '.join(columns)} FROM read_parquet([{names}], union_by_name = true, hive_partitioning = false)"
    told = ", ".join(f"{_quoted(name)}: {{'name': {_quoted(name)}, 'type': '{kind}', 'default_value': NULL}}" for name, kind in types.items())
    return f"SELECT {', '.join(columns)} FROM read_parquet([{names}], schema = MAP {{{told}}}, hive_partitioning = false)"


def _type(kind: pa.DataType) -> str | None:
    """DuckDB's name of a type; None for one that no table of any release has yet."""
    if pa.types.is_map(kind):
        key, item = _type(kind.key_type), _type(kind.item_type)
        return f"MAP({key}, {item})" if key and item else None
    if pa.types.is_list(kind):
        value = _type(kind.value_type)
        return f"{value}[]" if value else None
    return _TYPES.get(str(kind))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def columns_of(connection: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    """The names that a query gives."""
    return [row[0] for row in connection.execute(f"DESCRIBE {query}").fetchall()]
