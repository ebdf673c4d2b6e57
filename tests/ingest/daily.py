"""Random histories of a lake by itself: pieces, open ends, late data, writers that die; and what days must show of the records that count."""

import random
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from ingest.lake import Batch, Lake
from ingest.tables import arrow_schema

GIB = 2**30

_DAY = """COALESCE(CAST(r."at" AS DATE), CAST(a.ingested_at AS DATE))"""
_KEYS = f"""r.run, COALESCE(r.run_index, 0) AS run_index, r.cluster, r.rank,
    CASE WHEN r.rank IS NULL THEN COALESCE(r.rank_label, 'not told') END AS rank_label, {_DAY} AS day"""
_RECORDS = f"""
SELECT {_KEYS}, r.scope, r.iteration, r."at", r.device_used_bytes, r.device_total_bytes,
    GREATEST(r.allocated_bytes, r.max_allocated_bytes) AS allocated,
    GREATEST(r.reserved_bytes, r.max_reserved_bytes) AS reserved, NULL AS active, NULL AS retries, 1 AS record, 0 AS oom,
    CASE WHEN r.device_used_bytes >= r.reserved_bytes THEN r.device_used_bytes - r.reserved_bytes END AS outside
FROM rank_memory AS r JOIN artifacts AS a ON a.artifact = r.artifact WHERE COALESCE(r.valid, TRUE)
UNION ALL
SELECT {_KEYS}, NULL, r.iteration, r."at", NULL, NULL, NULL, NULL, r.active_bytes_all_peak_bytes, r.num_alloc_retries, 0, 0, NULL
FROM memory_stats AS r JOIN artifacts AS a ON a.artifact = r.artifact WHERE COALESCE(r.valid, TRUE)
UNION ALL
SELECT {_KEYS}, NULL, r.iteration, r."at", NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, NULL
FROM oom_events AS r JOIN artifacts AS a ON a.artifact = r.artifact
"""
DAYS_OF_RECORDS = f"""
WITH record AS ({_RECORDS})
SELECT run, run_index, cluster, rank, rank_label, day, SUM(record) AS records, SUM(CASE WHEN scope = 'interval' THEN record ELSE 0 END),
    MAX(allocated), MAX(reserved), MAX(active), MAX(device_used_bytes), MAX(outside), MIN(device_total_bytes), MAX(retries), SUM(oom),
    MIN(iteration), MAX(iteration), MIN("at"), MAX("at")
FROM record GROUP BY ALL ORDER BY ALL
"""
LEVELS_OF_RECORDS = f"""
WITH record AS ({_RECORDS})
SELECT run, run_index, cluster, rank, rank_label, day, scope, CAST(FLOOR(reserved / 268435456) AS INTEGER),
    CAST(FLOOR(allocated / 268435456) AS INTEGER),
    COUNT(*), MIN(allocated), MAX(allocated), MIN(reserved), MAX(reserved)
FROM record WHERE record = 1
GROUP BY run, run_index, cluster, rank, rank_label, day, scope, 8, 9 ORDER BY ALL
"""


def assert_days_are_those_of_the_records(connection: duckdb.DuckDBPyConnection) -> int:
    """The views on `rank_day` against the records themselves; how many days there were."""
    days = connection.execute("SELECT * FROM rank_days ORDER BY ALL").fetchall()
    assert days == connection.execute(DAYS_OF_RECORDS).fetchall()
    assert connection.execute("SELECT * FROM rank_day_levels ORDER BY ALL").fetchall() == connection.execute(LEVELS_OF_RECORDS).fetchall()
    return len(days)


class Died(Exception):
    """A writer ended between two commits."""


class Fleet:
    """A lake that writers add to, each in the way of `ingest`: closed pieces one after another, an open end that the next piece replaces."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random = lake, random.Random(seed)
        self.closed: dict[str, int | None] = {f"source-{number}": None for number in range(4)}
        self.now = datetime(2026, 10, 28)

    def write(self) -> None:
        """One ingest: some sources grow."""
        batch = self.batch()
        self._commit(batch)
        for piece in batch.artifacts:
            if piece["status"] == "closed":
                self.closed[piece["source"]] = piece["end_bytes"]

    def batch(self) -> Batch:
        """What one ingest reads."""
        self.now += timedelta(hours=self.random.choice([1, 7, 30]))
        batch = Batch()
        for source in self.random.sample(sorted(self.closed), self.random.randint(1, 3)):
            batch.expected[source] = self.closed[source]
            start = self.closed[source] or 0
            for _ in range(self.random.randint(0, 2)):
                end = start + self.random.randint(1, 50)
                self._piece(batch, source, start, end, "closed")
                start = end
            if self.random.random() < 0.6:
                self._piece(batch, source, start, start + self.random.randint(1, 60), "tail")
        return batch

    def _commit(self, batch: Batch) -> None:
        """A writer that dies is started again at once, or its source is read anew, with other bytes, at the next time."""
        try:
            assert self.lake.commit(batch) == set()
        except Died:
            if self.random.random() < 0.5:
                raise
            assert self.lake.commit(batch) == set()

    def _piece(self, batch: Batch, source: str, start: int, end: int, status: str) -> None:
        tag = self.random.randrange(10**6)
        keys = {"run": f"run-{source[-1:]}", "run_index": 0, "artifact": f"{source}:{start}-{end}{'t' if status == 'tail' else ''}~{tag}",
                "month": f"{self.now:%Y-%m}", "cluster": "default"}
        batch.artifacts.append({
            **keys, "source": source, "path": source, "start_bytes": start, "end_bytes": end, "status": status, "size_bytes": end,
            "prefix_bytes": end, "prefix_hash": "h", "ingested_at": self.now, "parser": "toy", "parser_version": 1})
        for table, make in (("rank_memory", self._memory), ("memory_stats", self._stats), ("oom_events", self._oom)):
            rows = [{**keys, **self._rank(), **make()} for _ in range(self.random.choice([0, 1, 6]))]
            if rows:
                batch.tables.setdefault(table, []).append(pa.Table.from_pylist(rows, schema=arrow_schema(table)))

    def _rank(self) -> dict[str, Any]:
        late = self.now - timedelta(days=self.random.choice([0, 0, 1, 40]), minutes=self.random.randrange(1440))
        rank = self.random.choice([0, 1, 2, None])
        return {"rank": rank, "rank_label": self.random.choice([None, "last"]), "iteration": self.random.choice([None, 1, 2, 3, 90]),
                "at": self.random.choice([None, late]), "valid": self.random.choice([True, True, None, False])}

    def _memory(self) -> dict[str, Any]:
        sizes = {name: self.random.choice([None, self.random.randrange(80 * GIB)]) for name in (
            "allocated_bytes", "max_allocated_bytes", "reserved_bytes", "max_reserved_bytes", "device_used_bytes", "device_total_bytes")}
        return {"scope": self.random.choice(["interval", "cumulative", None]), **sizes}

    def _stats(self) -> dict[str, Any]:
        return {"active_bytes_all_peak_bytes": self.random.choice([None, self.random.randrange(80 * GIB)]),
                "num_alloc_retries": self.random.choice([None, 0, 3])}

    def _oom(self) -> dict[str, Any]:
        return {"requested_bytes": 1}
