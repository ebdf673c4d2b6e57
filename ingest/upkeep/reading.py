"""A DuckDB connection for upkeep: it sorts and sums more than memory holds by writing to a temporary folder, and reads a lake where it lies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb

from ingest.lake import Lake
from ingest.upkeep.stored import StoredFile

MEMORY_BYTES = 1024**3
"""What DuckDB may hold; the files being written come on top."""


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
            yield connection
        finally:
            connection.close()


def files_query(files: Sequence[StoredFile], columns: Sequence[str] = ("*",)) -> str | None:
    """A SELECT over data files, columns by name; a file that lacks one gives null. None for no files."""
    if not files:
        return None
    names = ", ".join("'" + one.uri.replace("'", "''") + "'" for one in files)
    return f"SELECT {', '.join(columns)} FROM read_parquet([{names}], union_by_name = true, hive_partitioning = false)"


def columns_of(connection: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    """The names that a query gives."""
    return [row[0] for row in connection.execute(f"DESCRIBE {query}").fetchall()]
