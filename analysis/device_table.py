"""Devices as nvidia-smi, rocm-smi and npu-smi list them: no rank is proven by a device index, so they stand beside the ranks, not in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.database import records
from analysis.rows import Device, Source

if TYPE_CHECKING:
    import duckdb

_QUERY = """
SELECT reading.*, COALESCE(artifacts.path, reading.artifact) AS path
FROM device_latest AS reading
LEFT JOIN artifacts ON artifacts.artifact = reading.artifact
WHERE reading.run = ? AND reading.run_index = ?
ORDER BY reading.host, reading.device, reading.rank, reading.source
"""


def device_table(connection: duckdb.DuckDBPyConnection, run: str, run_index: int) -> tuple[Device, ...]:
    """One row a device at its fullest reading."""
    return tuple(Device(row["host"], row["device"], row["rank"], row["device_name"], row["source"], row["used_bytes"], row["total_bytes"],
                        row["left_bytes"], row["readings"], Source(row["path"], row["line"]))
                 for row in records(connection, _QUERY, [run, run_index]))
