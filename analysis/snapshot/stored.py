"""A snapshot back from the lake: the tables an ingest wrote, one device at a time, as the shape the analysis works on.

A million events come back in a fraction of a second, since actions and states are turned into codes by the engine. What the tables do
not hold (stacks of segments, pools of events) nothing here needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from analysis.database import records
from analysis.snapshot.trace import (
    ACTIONS,
    STATES,
    Action,
    Annotation,
    Blocks,
    Events,
    Segments,
    Snapshot,
    Trace,
    addresses,
    ints,
    out_of_range,
    sizes,
)
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

_FILES = """
SELECT snapshot.run, snapshot.run_index, snapshot.artifact, snapshot.path, snapshot.rank, snapshot.file_bytes, device.device, device.events,
       device.peak_requested_bytes, device.peak_reserved_bytes, device.end_requested_bytes
FROM snapshots AS snapshot
JOIN snapshot_devices AS device ON device.artifact = snapshot.artifact
ORDER BY snapshot.run, snapshot.run_index, snapshot.rank NULLS LAST, snapshot.path, device.device
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """One device of one snapshot of the lake; `events` of its trace, whether or not they were kept."""

    run: str
    run_index: int
    artifact: str
    path: str
    rank: int | None
    device: int
    events: int
    peak_requested_bytes: int | None
    peak_reserved_bytes: int | None
    end_requested_bytes: int | None
    file_bytes: int | None


def stored(connection: duckdb.DuckDBPyConnection, run: str | None = None) -> tuple[Stored, ...]:
    """Every device of every snapshot of the lake, or of one run."""
    return tuple(Stored(**row) for row in records(connection, _FILES) if run is None or row["run"] == run)


def from_lake(connection: duckdb.DuckDBPyConnection, artifact: str, device: int) -> Snapshot:
    """One device of a stored snapshot. Raises LedgerError where only its summary was kept."""
    known = records(connection, "SELECT * FROM snapshots WHERE artifact = ?", [artifact])
    if not known:
        raise LedgerError("no such snapshot in the lake", where=artifact, todo="ingest it")
    trace = Trace(device, _events(connection, artifact, device), *_held(connection, artifact, device), _annotations(connection, artifact, device))
    summary = connection.execute("SELECT events, end_requested_bytes FROM snapshot_devices WHERE artifact = ? AND device = ?", [artifact, device])
    events, held = summary.fetchone() or (0, 0)
    if (events and not len(trace.events)) or (held and not len(trace.blocks.size)):
        raise LedgerError("only the summary of this snapshot is in the lake", where=artifact,
                          todo="ingest it into another lake with --snapshot-detail full")
    stacks = _stacks(connection, artifact)
    settings = json.loads(known[0]["allocator_settings"] or "{}")
    return Snapshot((trace,), stacks, settings if isinstance(settings, dict) else {}, {}, str(known[0]["reader"] or ""), known[0]["file_bytes"] or 0)


def _events(connection: duckdb.DuckDBPyConnection, artifact: str, device: int) -> Events:
    codes = _coded("action", {name: int(code) for name, code in ACTIONS.items()}, int(Action.OTHER))
    table = _arrow(connection, f"SELECT event, {codes} AS action, address, size_bytes, stream, stack, time_us FROM snapshot_events "
                   "WHERE artifact = ? AND device = ?", artifact, device)
    event = ints(table["event"])
    if (event[1:] < event[:-1]).any():
        table = table.take(pa.array(np.argsort(event, kind="stable")))
    times = table["time_us"]
    other = connection.execute("SELECT action, COUNT(*) FROM snapshot_events WHERE artifact = ? AND device = ? GROUP BY action", [artifact, device])
    return Events(action=ints(table["action"]).astype(np.int32), address=addresses(table["address"]), size=sizes(table["size_bytes"]),
                  stream=ints(table["stream"], 0), impossible=out_of_range(table["size_bytes"]), stack=ints(table["stack"]).astype(np.int32),
                  time_us=None if times.null_count == len(times) else ints(times, 0),
                  other={name: count for name, count in other.fetchall() if name not in ACTIONS})


def _held(connection: duckdb.DuckDBPyConnection, artifact: str, device: int) -> tuple[Segments, Blocks]:
    segments = _arrow(connection, "SELECT address, size_bytes, stream, pool, expandable FROM snapshot_segments WHERE artifact = ? AND device = ? "
                      "ORDER BY address", artifact, device)
    address = addresses(segments["address"])
    pools = [str(pool or "large") for pool in segments["pool"].to_pylist()]
    states = _coded("state", {name: int(code) for name, code in STATES.items()}, STATES["inactive"])
    blocks = _arrow(connection, f"SELECT segment, address, size_bytes, requested_bytes, {states} AS state, stack FROM snapshot_blocks "
                    "WHERE artifact = ? AND device = ? ORDER BY address", artifact, device)
    return (Segments(address, sizes(segments["size_bytes"]), ints(segments["stream"], 0), tuple(_kind(pool) for pool in pools),
                     tuple(_pool_id(pool) for pool in pools), np.array([bool(one) for one in segments["expandable"].to_pylist()], np.bool_),
                     np.full(len(address), -1, np.int32)),
            Blocks(np.searchsorted(address, addresses(blocks["segment"])).astype(np.int32), addresses(blocks["address"]), sizes(blocks["size_bytes"]),
                   sizes(blocks["requested_bytes"]), ints(blocks["state"]).astype(np.int32), ints(blocks["stack"]).astype(np.int32)))


def _annotations(connection: duckdb.DuckDBPyConnection, artifact: str, device: int) -> tuple[Annotation, ...]:
    rows = connection.execute("SELECT name, stage, time_us FROM snapshot_annotations WHERE artifact = ? AND (device IS NULL OR device IN (?, -1)) "
                              "ORDER BY time_us", [artifact, device]).fetchall()
    return tuple(Annotation(name or "", (stage or "").upper(), time) for name, stage, time in rows)


def _stacks(connection: duckdb.DuckDBPyConnection, artifact: str) -> tuple[tuple[str, ...], ...]:
    rows = connection.execute("SELECT stack, frames FROM snapshot_stacks WHERE artifact = ? ORDER BY stack", [artifact]).fetchall()
    found: list[tuple[str, ...]] = [()] * (1 + max((row[0] for row in rows), default=-1))
    for stack, frames in rows:
        found[stack] = tuple(frames or ())
    return tuple(found)


def _arrow(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> pa.Table:
    return connection.sql(query, params=list(parameters)).to_arrow_table()


def _coded(column: str, codes: dict[str, int], other: int) -> str:
    """SQL that turns the names of a column into codes."""
    cases = " ".join(f"WHEN '{name}' THEN {code}" for name, code in codes.items())
    return f"CASE {column} {cases} ELSE {other} END"


def _kind(pool: str) -> str:
    return "small" if pool.startswith("small") else "large"


def _pool_id(pool: str) -> str:
    """The private pool's id in a text such as `large 0,1`; the default pool's where it names none."""
    digits = [part for part in pool.replace(",", " ").replace("(", " ").replace(")", " ").split() if part.isdigit()]
    return ",".join(digits) if len(digits) == 2 else "0,0"
