"""How a lake of many small commits compacts: `python benchmarks/upkeep.py [COMMITS]`; a line of JSON.

The commits are made without the table format, which would take much longer for fifty thousand: one Parquet file and one entry of the log each, as
an ingest of one small file writes them, and a checkpoint every five thousand (writers leave one every hundred). `compact` then runs in a process
of its own, whose peak memory is that of the process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.lake import Batch, Lake
from ingest.tables import arrow_schema

ROWS = 8
CHECKPOINT = 5_000
PARTITION = "month=2026-11/cluster=default"
_CHILD = """
import json, sys, time
from benchmarks.snapshot import peak_bytes
from ingest.lake import Lake
from ingest.upkeep.compact import compact
began = time.monotonic()
done = compact(Lake(sys.argv[1]), ["rank_memory"])[0]
print(json.dumps({"seconds": time.monotonic() - began, "peak_bytes": peak_bytes(),
                  "files": done.files_after, "bytes_before": done.bytes_before, "bytes_after": done.bytes_after, "commits": done.commits}))
"""


def _keys(commit: int) -> dict[str, Any]:
    return {"run": f"run-{commit % 50:03d}", "run_index": 0, "artifact": f"source-{commit % 5000}:{commit // 5000}-{commit // 5000 + 1}~0",
            "month": "2026-11", "cluster": "default"}


def made(root: Path, commits: int) -> Lake:
    """A lake whose `rank_memory` has that many commits of `ROWS` records."""
    lake = Lake(root)
    lake.create()
    artifacts = [{**_keys(commit), "source": f"source-{commit % 5000}", "path": "p", "status": "closed", "start_bytes": commit // 5000,
                  "end_bytes": commit // 5000 + 1, "ingested_at": datetime(2026, 11, 1)} for commit in range(commits)]
    lake.commit(Batch(artifacts=artifacts, expected={piece["source"]: None for piece in artifacts}))
    lake._opened("rank_memory")
    table = root / "rank_memory"
    (table / PARTITION).mkdir(parents=True)
    schema = pa.schema([field for field in arrow_schema("rank_memory") if field.name not in ("month", "cluster")])
    now = int(datetime.now(UTC).timestamp() * 1000)
    for commit in range(commits):
        name = f"{PARTITION}/part-{commit:06d}.parquet"
        rows = [{**_keys(commit), "rank": commit % 64, "iteration": commit * ROWS + row, "allocated_bytes": commit * 2**20 + row}
                for row in range(ROWS)]
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), table / name)
        entry = {"path": name, "partitionValues": {"month": "2026-11", "cluster": "default"}, "size": (table / name).stat().st_size,
                 "modificationTime": now + commit, "dataChange": True, "stats": json.dumps({"numRecords": ROWS})}
        lines = ({"commitInfo": {"timestamp": now + commit, "operation": "WRITE"}}, {"txn": {"appId": f"source-{commit % 5000}", "version": commit}},
                 {"add": entry})
        (table / "_delta_log" / f"{commit + 1:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if (commit + 1) % CHECKPOINT == 0 or commit + 1 == commits:
            lake._opened("rank_memory").create_checkpoint()
    return lake


def totals(lake: Lake) -> list[Any]:
    """What a reader sees: rows, and sums that miss none."""
    from analysis.database import connect

    return connect(lake).execute("SELECT COUNT(*), SUM(iteration), SUM(allocated_bytes), COUNT(DISTINCT artifact) FROM rank_memory").fetchall()


def timed_open(lake: Lake) -> float:
    """Seconds to open the table."""
    began = time.monotonic()
    lake._open("rank_memory")
    return time.monotonic() - began


def measured(commits: int) -> dict[str, Any]:
    """Make, compact in a process of its own, compare."""
    with tempfile.TemporaryDirectory(prefix="hbmledger-upkeep-") as folder:
        began = time.monotonic()
        lake = made(Path(folder) / "lake", commits)
        making, opening, before = time.monotonic() - began, timed_open(lake), totals(lake)
        child = subprocess.run([sys.executable, "-c", _CHILD, lake.root], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
        told = json.loads(child.stdout.splitlines()[-1])
        return {"records": commits * ROWS, "making_seconds": making, "open_before_seconds": opening, "open_after_seconds": timed_open(lake),
                "same": totals(lake) == before, **told, "load": os.getloadavg()[0]}


if __name__ == "__main__":
    print(json.dumps({"commits_made": (wanted := int(sys.argv[1]) if len(sys.argv) > 1 else 50_000), **measured(wanted)}))
    print(f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB", file=sys.stderr)
