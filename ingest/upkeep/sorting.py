"""Rows of a query in the order in which a table's files hold them, as Arrow, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from ingest.upkeep.reading import columns_of
from ingest.upkeep.stored import ROW_GROUP_ROWS, Version

ORDER = ("run", "run_index", "iteration", "rank", "day", "artifact", "device", "event", "line")
"""Rows are sorted by those of these columns that the table has. Steps before ranks: the last steps of a long run, which are what is asked of it most,
lie together, where by rank they would be spread over every row group of their day."""


def in_order(connection: duckdb.DuckDBPyConnection, query: str, version: Version) -> Iterator[pa.Table]:
    """The rows of a query in order, with every column of the table; one that the query lacks is null."""
    present = set(columns_of(connection, query))
    quoted = ", ".join(f'"{field.name}"' for field in version.schema if field.name in present)
    order = ", ".join(name for name in ORDER if name in present)
    reader: Iterable[pa.RecordBatch] = connection.sql(f"SELECT {quoted} FROM ({query}) ORDER BY {order}").to_arrow_reader(ROW_GROUP_ROWS)
    for batch in reader:
        rows = pa.table(batch)
        yield pa.table([rows[field.name].cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
                        for field in version.schema], schema=version.schema)
