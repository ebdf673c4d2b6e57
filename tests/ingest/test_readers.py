"""Eight readers poll a lake while a writer adds to it and upkeep compacts and vacuums it without pause: no answer is ever wrong."""

import json
import os
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from analysis.database import connect
from ingest.lake import Batch, Lake
from ingest.tables import arrow_schema
from ingest.upkeep.compact import Limits, compact
from ingest.upkeep.vacuum import vacuum
from tests.conftest import ROOT

RECORDS = 40
READER = """
import json, sys
from analysis.database import connect
from ingest.lake import Lake
lake, reads = Lake(sys.argv[1]), int(sys.argv[2])
wrong, seen = [], []
print("ready", flush=True)
for _ in range(reads):
    connection = connect(lake)
    told = dict(connection.execute("SELECT artifact, rows FROM artifacts").fetchall())
    found = dict(connection.execute("SELECT artifact, COUNT(*) FROM rank_memory GROUP BY artifact").fetchall())
    days = connection.execute("SELECT CAST(SUM(records) AS BIGINT), MAX(last_iteration) FROM rank_days").fetchall()
    raw = connection.execute("SELECT COUNT(*), MAX(iteration) FROM rank_memory").fetchall()
    if told != found or days != raw:
        wrong.append([len(told), len(found), sum(told.values()), sum(found.values()), days, raw])
    seen.append(len(told))
    connection.close()
print(json.dumps({"wrong": wrong, "seen": seen}))
"""


def written(lake: Lake, number: int) -> None:
    """One ingest of four growing files: a closed piece each, and an open end that replaces the last one."""
    batch = Batch()
    for source in (f"s{at}" for at in range(4)):
        batch.expected[source] = 10 * number or None
        for status, start, end in (("closed", 10 * number, 10 * number + 10), ("tail", 10 * number + 10, 10 * number + 15)):
            keys: dict[str, Any] = {"run": f"run-{source}", "run_index": 0, "artifact": f"{source}:{start}-{end}{'t' if status == 'tail' else ''}~0",
                                    "month": "2026-11", "cluster": "c"}
            batch.artifacts.append({**keys, "source": source, "path": source, "status": status, "start_bytes": start, "end_bytes": end,
                                    "rows": RECORDS, "ingested_at": datetime(2026, 11, 1)})
            rows = [{**keys, "rank": rank, "iteration": number, "reserved_bytes": number * 2**20} for rank in range(RECORDS)]
            batch.tables.setdefault("rank_memory", []).append(pa.Table.from_pylist(rows, schema=arrow_schema("rank_memory")))
    assert lake.commit(batch) == set()


def readers(lake: Lake, count: int, reads: int) -> list[subprocess.Popen[str]]:
    command = [sys.executable, "-c", READER, lake.root, str(reads)]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)]
    assert [reader.stdout.readline() for reader in started if reader.stdout] == ["ready\n"] * count
    return started


def answers(started: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    ended = [(reader.communicate(), reader.returncode) for reader in started]
    assert [(err, code) for (_, err), code in ended] == [("", 0)] * len(started)
    return [json.loads(out) for (out, _), _ in ended]


@pytest.mark.parametrize(("count", "reads"), [(2, 3), pytest.param(8, 25, marks=pytest.mark.long)])
def test_no_answer_is_wrong_while_a_lake_is_compacted(tmp_path: Path, count: int, reads: int) -> None:
    lake = Lake(tmp_path)
    for number in range(6):
        written(lake, number)
    started, number, commits = readers(lake, count, reads), 6, 0
    try:
        while any(reader.poll() is None for reader in started):
            written(lake, number)
            number += 1
            if number % 3 == 0:
                limits = Limits(bin_files=number, grace=timedelta(seconds=20))
                commits += sum(one.commits for one in compact(lake, ["artifacts", "rank_memory", "rank_day"], limits))
        found = answers(started)
    finally:
        for reader in started:
            reader.kill()
            reader.communicate()
    assert [one["wrong"] for one in found] == [[]] * count
    assert sum(len(one["seen"]) for one in found) == count * reads
    assert len({seen for one in found for seen in one["seen"]}) > 1, "the lake grew under the readers"
    assert commits > 1, "it was compacted under the readers"


def test_a_reader_that_began_before_a_vacuum_reads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    for number in range(4):
        written(lake, number)
    with monkeypatch.context() as patch:
        now = time.time()
        patch.setattr("ingest.upkeep.stored.time.time", lambda: now - 3 * 86400)
        compact(lake, limits=Limits(grace=timedelta(0)))
    written(lake, 4)
    reader = connect(lake)
    compact(lake, limits=Limits(grace=timedelta(0)))
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path, (now - 10 * 86400,) * 2)
    assert sum(one.files for one in vacuum(lake, timedelta(days=2))) > 4
    assert reader.execute("SELECT COUNT(*) FROM rank_memory").fetchall() == [(RECORDS * 4 * 6,)]
    assert connect(lake).execute("SELECT COUNT(*) FROM rank_memory").fetchall() == [(RECORDS * 4 * 6,)]
