"""`snapshot_peak_classes`: what each class held at the peak of every stored snapshot, as a table for SQL.

Classes come from rules in Python, so they are worked out when a query names the table and never stored: a better rule changes the next
answer, not a lake. A snapshot of which only the summary was kept has no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from analysis.snapshot.stored import Stored, from_lake, stored
from analysis.snapshot.view import devices
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

PEAK_CLASSES = "snapshot_peak_classes"
_SCHEMA = pa.schema([("run", pa.string()), ("run_index", pa.int32()), ("artifact", pa.string()), ("rank", pa.int32()), ("device", pa.int32()),
                     ("peak_event", pa.int64()), ("class", pa.string()), ("bytes", pa.int64()), ("blocks", pa.int64()), ("ratio", pa.float64())])


def prepared_for(query: str) -> Callable[[duckdb.DuckDBPyConnection], None] | None:
    """What makes the computed tables that a query names; null where it names none."""
    return with_peak_classes if PEAK_CLASSES in query.lower() else None


def with_peak_classes(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table `snapshot_peak_classes` on a connection that is not locked yet."""
    rows = [row for one in stored(connection) for row in peak_class_rows(connection, one)]
    connection.register("peak_class_rows", pa.Table.from_pylist(rows, schema=_SCHEMA))
    connection.execute(f"CREATE TABLE {PEAK_CLASSES} AS SELECT * FROM peak_class_rows")
    connection.unregister("peak_class_rows")


def peak_class_rows(connection: duckdb.DuckDBPyConnection, one: Stored) -> list[dict[str, Any]]:
    """One row a class at the peak of a stored device, the most first; none where only its summary was kept."""
    try:
        device = devices(from_lake(connection, one.artifact, one.device))[0]
    except LedgerError:
        return []
    whole = max(device.peak.bytes, 1)
    key = {"run": one.run, "run_index": one.run_index, "artifact": one.artifact, "rank": one.rank, "device": one.device,
           "peak_event": device.peak.event}
    return [{**key, "class": share.name, "bytes": share.bytes, "blocks": share.blocks, "ratio": share.bytes / whole}
            for share in device.by_class(device.peak.event)]
