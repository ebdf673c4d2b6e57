"""How long questions to the lake of a made fleet take (`benchmarks/fleet.py` writes it), beside the same asked of the raw records.

Answers are checked: near days against what was planted, ratios against the raw records. Seconds are of the whole question in one process with
two threads; processor seconds stand beside them, because a busy machine stretches only the former.

Usage: python benchmarks/fleet_queries.py LAKE [--month 2026-10] [--raw] [--run pretrain-000-0901]
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import duckdb

from analysis.database import connect, records
from analysis.overview import overview
from analysis.query.ask import ask
from analysis.query.questions import questions
from analysis.scope import RECORDS_TO_LOOK_AT, listed
from analysis.steps.step_heat import step_heat
from benchmarks.fleet_lake.jobs import CAPACITY_BYTES, MARGIN_BYTES, day, jobs, near_steps
from ingest.lake import Lake

NEAR = """
SELECT CAST(COALESCE(SUM(near_least), 0) AS BIGINT) AS least, CAST(COALESCE(SUM(near_most), 0) AS BIGINT) AS most
FROM fleet_near_limit WHERE month = ?
"""
RAW_NEAR = f"""
WITH known AS (
    SELECT run, run_index, rank, MAX(device_used_bytes - reserved_bytes) AS outside_bytes
    FROM rank_memory WHERE month = $1 GROUP BY run, run_index, rank
)
SELECT COUNT(*) AS near
FROM rank_memory AS one
JOIN known ON known.run = one.run AND known.run_index = one.run_index AND known.rank = one.rank
WHERE one.month = $1 AND GREATEST(one.max_allocated_bytes, one.max_reserved_bytes) >= {CAPACITY_BYTES} - known.outside_bytes - {MARGIN_BYTES}
"""
RATIO = """
SELECT run, MAX(max_allocated_bytes) AS peak, MAX(over_printed_ratio) AS ratio
FROM fleet_ratio WHERE SUBSTRING(CAST(first_day AS STRING), 1, 7) = ? GROUP BY run ORDER BY run
"""
RAW_RATIO = """
WITH peak AS (
    SELECT run, run_index, MAX(max_allocated_bytes) AS peak, MIN(rank_memory.at) AS first_at FROM rank_memory GROUP BY run, run_index
), printed AS (
    SELECT run, run_index, MAX(total_bytes) AS total FROM theory_reports GROUP BY run, run_index
)
SELECT peak.run, peak.peak, peak.peak * 1.0 / printed.total AS ratio
FROM peak JOIN printed ON printed.run = peak.run AND printed.run_index = peak.run_index
WHERE SUBSTRING(CAST(CAST(peak.first_at AS DATE) AS STRING), 1, 7) = ? ORDER BY peak.run
"""


def timed(name: str, ask: Callable[[], Any]) -> Any:
    """The answer, its time printed."""
    begun, busy = time.perf_counter(), time.process_time()
    answer = ask()
    print(f"{name:<58} {time.perf_counter() - begun:8.2f} s {time.process_time() - busy:8.2f} cpu-s   load {os.getloadavg()[0]:.1f}", flush=True)
    return answer


def planted(connection: duckdb.DuckDBPyConnection, month: str) -> int:
    """Records that were planted near the limit on days of a month."""
    each = records(connection, "SELECT MAX(n) AS n FROM (SELECT SUM(records) AS n FROM rank_days GROUP BY run, rank, day)")[0]["n"]
    days = records(connection, "SELECT COUNT(DISTINCT day) AS n FROM rank_days")[0]["n"]
    return sum(near_steps(job, rank, number, int(each)) for job in jobs(days) for number in range(job.first, job.first + job.days)
               if f"{day(number):%Y-%m}" == month for rank in range(5, job.kind.ranks, 97))


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lake")
    parser.add_argument("--month", default="2026-10")
    parser.add_argument("--run", default="pretrain-000-0901")
    parser.add_argument("--raw", action="store_true")
    given = parser.parse_args()
    connection = timed("open the lake", lambda: connect(Lake(given.lake)))
    connection.execute("SET threads = 2")
    connection.execute("SET memory_limit = '4GB'")
    count = timed("count records", lambda: connection.execute("SELECT COUNT(*) FROM stored.rank_memory").fetchall()[0][0])
    print(f"{count:,} records of rank_memory, {connection.execute('SELECT COUNT(*) FROM artifacts').fetchall()[0][0]:,} pieces")
    near = timed(f"fleet_near_limit, {given.month}", lambda: records(connection, NEAR, [given.month]))[0]
    expected = planted(connection, given.month)
    right = "as planted" if near["least"] == near["most"] == expected else "WRONG"
    print(f"    planted {expected:,}; found at least {near['least']:,}, at most {near['most']:,}: {right}")
    ratio = timed(f"fleet_ratio, {given.month}", lambda: records(connection, RATIO, [given.month]))
    with listed(connection):
        timed("list of attempts, as the app asks", lambda: records(connection, "SELECT * FROM run_attempts"))
    found = timed(f"overview of {given.run}, as the app asks", lambda: overview(connection, given.run, 0, records_at_most=RECORDS_TO_LOOK_AT))
    print(f"    {found.coverage.sentence}")
    timed("its picture of ranks by steps", lambda: step_heat(connection, given.run, 0, found.ranks, RECORDS_TO_LOOK_AT))
    if given.raw:
        raw = timed(f"raw records: near in {given.month}", lambda: records(connection, RAW_NEAR, [given.month]))[0]["near"]
        print(f"    {raw:,}: {'as the rollup' if raw == near['least'] == near['most'] else 'NOT AS THE ROLLUP'}")
        raw_ratio = timed(f"raw records: ratio of attempts begun in {given.month}", lambda: records(connection, RAW_RATIO, [given.month]))
        same = [(one["run"], one["peak"]) for one in raw_ratio] == [(one["run"], one["peak"]) for one in ratio]
        print(f"    {len(raw_ratio)} attempts: {'as the rollup' if same else 'NOT AS THE ROLLUP'}")
    for question in questions():
        timed(f"question: {question.title}"[:58], lambda sql=question.sql: ask(connection, sql, seconds=600))
    print(f"peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
