"""Out-of-memory errors of one attempt: the numbers of each message, those it lacks, and a case only where the message alone proves it.

Proven by a message alone: a request above the whole device (D), a process that is not torch (E), host memory (F), a cap below capacity (G).
Full, cached but unusable, or outside torch (A, B, C) need the allocator's state or the expected ledger, so they stay unknown here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.database import records
from analysis.rows import Oom, Source

if TYPE_CHECKING:
    import duckdb

NUMBERS = ("requested_bytes", "capacity_bytes", "free_bytes", "process_bytes", "allocated_bytes", "private_pool_bytes", "reserved_unallocated_bytes",
           "reserved_bytes", "allowed_bytes")
_NEEDED = ("requested_bytes", "capacity_bytes", "free_bytes", "allocated_bytes")
_NOT_TORCH = ("nccl", "cublas", "driver")
_QUERY = """
SELECT event.*, COALESCE(artifacts.path, event.artifact) AS path, layout.pp
FROM oom_events AS event
LEFT JOIN artifacts ON artifacts.artifact = event.artifact
LEFT JOIN rank_layout AS layout ON layout.run = event.run AND layout.run_index = event.run_index AND layout.rank = event.rank
WHERE event.run = ? AND event.run_index = ?
ORDER BY event.at NULLS LAST, event.artifact, event.line
"""


def oom_table(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> tuple[Oom, ...]:
    """One row a message, in the order of time or of the artifact."""
    return tuple(_oom(row) for row in records(connection, _QUERY, [run, run_index]))


def _oom(row: dict[str, Any]) -> Oom:
    numbers = {name: row[name] for name in NUMBERS if row[name] is not None}
    case, reason = _case(row)
    missing = tuple(name for name in _NEEDED if name not in numbers)
    if row["reserved_unallocated_bytes"] is None and row["reserved_bytes"] is None:
        missing += ("reserved_bytes",)
    return Oom(row["rank"], row["rank_label"], row["pp"], row["iteration"], row["kind"], case, reason, numbers, missing, row["frame"],
               row["allocator_hint"], row["text"], Source(row["path"], row["line"]))


def _case(row: dict[str, Any]) -> tuple[str, str]:
    asked, capacity, allowed = row["requested_bytes"], row["capacity_bytes"], row["allowed_bytes"]
    if row["kind"] == "host":
        return "F", "host memory, not the device's"
    if row["kind"] in _NOT_TORCH:
        return "E", f"the request that failed is {row['kind']}'s, not torch's"
    if asked is not None and capacity is not None and asked > capacity:
        return "D", "the request alone is larger than the device"
    if allowed is not None and capacity is not None and allowed < capacity:
        return "G", "a cap below the device's capacity is in force"
    return "unknown", "the message alone does not tell full from cached or outside memory"
