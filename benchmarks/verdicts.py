"""All verdicts on a large run: 4,096 ranks x 1,000 steps of `rank_memory` and load, from tables to a finished report, in a process of its own.

`python benchmarks/verdicts.py [--ranks 4096] [--steps 1000]` prints the time and the peak memory of the whole process, the making of the
tables left out of the time (it stands in for reading a lake's Parquet files).
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

GIB = 2**30


def main() -> None:
    """Make the tables, judge, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    connection = made(arguments.ranks, arguments.steps)
    start, before = time.perf_counter(), time.process_time()

    from analysis.overview import overview
    from analysis.report.keys import as_json

    found = overview(connection, "large")
    text = json.dumps(as_json(found))
    wall, cpu = time.perf_counter() - start, time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{arguments.ranks:,} ranks x {arguments.steps:,} steps: {wall:.1f} s, {cpu:.1f} s of processor time, {peak:.2f} GiB at the peak; "
          f"{len(found.near_limit):,} ranks judged, {len(found.high_loads):,} with a load, {len(found.risers):,} risers, "
          f"{len(found.findings)} findings, {len(text) / 2**20:.1f} MiB of JSON")


def made(ranks: int, steps: int):  # noqa: ANN201 - a DuckDB connection, imported late
    """A connection whose `rank_memory` holds one interval reading a rank and step, and a load beside it."""
    import numpy as np
    import pyarrow as pa

    from analysis.database import from_rows

    connection = from_rows({"rank_memory": [], "runs": [{"world_size": ranks, "line": 1}]}, run="large")
    connection.execute("SET threads = 2")
    chance = np.random.default_rng(7)
    count = ranks * steps
    load = (chance.gamma(40, 1e8, size=count)).astype(np.int64)
    peak = 40 * GIB + 6 * load
    columns = {"rank": np.repeat(np.arange(ranks, dtype=np.int32), steps), "iteration": np.tile(np.arange(1, steps + 1), ranks),
               "max_allocated_bytes": peak, "allocated_bytes": np.full(count, 40 * GIB), "reserved_bytes": peak + GIB,
               "max_reserved_bytes": peak + GIB, "device_used_bytes": peak + 4 * GIB, "load_bytes": load}
    connection.register("made", pa.table(columns))
    connection.execute(f"""
        INSERT INTO stored.rank_memory BY NAME
        SELECT * EXCLUDE (load_bytes), 'large' AS run, 0 AS run_index, 'large' AS artifact, 1 AS line, 'interval' AS scope, TRUE AS valid,
            {80 * GIB} AS device_total_bytes
        FROM made""")
    connection.execute("DROP VIEW IF EXISTS rank_load")
    connection.execute("CREATE TABLE load AS SELECT 'large' AS run, 0 AS run_index, rank, iteration, load_bytes FROM made")
    connection.execute("CREATE VIEW rank_load AS SELECT * FROM load")
    connection.unregister("made")
    return connection


if __name__ == "__main__":
    main()
