"""`snapshot_peak_classes`: what each class held at the peak of every stored snapshot, as a table for SQL.

Classes come from rules in Python, so they are worked out when a query names the table and never stored: a better rule changes the next
answer, not a lake. A snapshot of which only the summary was kept has no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from analysis.query.computed import Columns, Row
from analysis.snapshot.stored import Stored, from_lake, stored
from analysis.snapshot.view import devices
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

COLUMNS: dict[str, Columns] = {
    "snapshot_peak_classes": (
        ("run", "string", "name of the run"), ("run_index", "int32", "which attempt of the run, from 0"),
        ("artifact", "string", "the snapshot's artifact"), ("rank", "int32", "global rank that wrote it"), ("device", "int32", "device index"),
        ("peak_event", "int64", "event after which requested peaks, -1 where that was before the trace"),
        ("class", "string", "weights, activations, ... by the rules of docs/methods/snapshot.md"),
        ("bytes", "int64", "requested bytes of the class then"),
        ("blocks", "int64", "blocks of the class then"), ("ratio", "double", "share of the peak")),
}
GRAIN = {"snapshot_peak_classes": "one class at the peak of one device of a stored snapshot; none where only its summary was kept"}


def make(connection: duckdb.DuckDBPyConnection, wanted: list[str]) -> Mapping[str, Iterable[Row]]:
    """The rows of the tables wanted."""
    return {name: [row for one in stored(connection) for row in peak_class_rows(connection, one)] for name in wanted}


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
