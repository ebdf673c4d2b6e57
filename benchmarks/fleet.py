"""Write the lake of a made fleet: 10,000 devices over 90 days, any number of records of `rank_memory`, as a nightly `compact` leaves it.

The rows do not go through a parser: the question is what the lake, its rollups and its queries do at a size that no log here has. Files are written
as `compact` leaves them, in parts whose memory does not grow with the lake; `artifacts` comes last, as in an ingest.

Usage: python benchmarks/fleet.py LAKE [--rows 10000000] [--days 90] [--share 1.0] [--pieces 4] [--workers 2]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import write_deltalake
from deltalake.transaction import AddAction

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fleet_lake.facts import facts, iterations, month
from benchmarks.fleet_lake.jobs import CLUSTER, Job, jobs
from benchmarks.fleet_lake.records import Block, day_rows, memory_rows, sizes_of
from ingest.lake import PARTITION, Lake
from ingest.upkeep import stored

TARGET_BYTES = 128 * 1024 * 1024
BLOCK_ROWS = 8 * stored.ROW_GROUP_ROWS
PART_ROWS = 10_000_000
TABLES = ("rank_memory", "rank_day", "iterations")


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks of one month that one worker writes, in the order of days, runs and ranks."""

    month: str
    blocks: tuple[Block, ...]

    @property
    def rows(self) -> int:
        """Records of `rank_memory`."""
        return sum(_rows(block) for block in self.blocks)


def make(root: Path, rows: int, days: int = 90, share: float = 1.0, pieces: int = 4, workers: int = 2) -> int:
    """Write the lake; the records of `rank_memory` are returned (as many a day for every rank, so near `rows`)."""
    every = list(jobs(days, share))
    records = max(1, round(rows / sum(job.kind.ranks * job.days for job in every)))
    lake = Lake(root)
    lake.create()
    for table in TABLES:
        lake._opened(table)
    parts = list(_parts(every, records, pieces))
    done, begun = 0, time.perf_counter()
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_written, str(root), part) for part in parts]):
            added, count = future.result()
            for table, actions in added.items():
                handle = lake._opened(table)
                handle.create_write_transaction(actions, "append", handle.schema(), PARTITION)
            done += count
            print(f"{done:,} records after {time.perf_counter() - begun:.0f} s", flush=True)
    for at in range(0, len(every), 2000):
        for table, own in facts(every[at:at + 2000], pieces, records).items():
            if own.num_rows:
                write_deltalake(lake._opened(table), own, mode="append")
    return done


def _rows(block: Block) -> int:
    ranks, days, records = block.shape
    return ranks * days * records


def _parts(every: Iterable[Job], records: int, pieces: int) -> Iterator[Part]:
    """The work in parts of one month each: day by day, as a nightly `compact` leaves files, and within a day in the order of runs and ranks."""
    days: dict[int, list[Block]] = {}
    for job in sorted(every, key=lambda one: one.run):
        for number in range(job.first, job.first + job.days):
            days.setdefault(number, []).extend(_slices(Block(job, 0, job.kind.ranks, number, number + 1, records, pieces)))
    held: list[Block] = []
    for number in sorted(days):
        if held and (month(held[0].first_day) != month(number) or sum(map(_rows, held)) >= PART_ROWS):
            yield Part(month(held[0].first_day), tuple(held))
            held = []
        held.extend(days[number])
    yield Part(month(held[0].first_day), tuple(held))


def _slices(block: Block) -> Iterator[Block]:
    """Ranks a block at a time, so that one fits in memory whatever the number of records."""
    _, days, records = block.shape
    step = max(1, BLOCK_ROWS // (days * records))
    for first in range(block.first_rank, block.last_rank, step):
        yield replace(block, first_rank=first, last_rank=min(first + step, block.last_rank))


def _written(root: str, part: Part) -> tuple[dict[str, list[AddAction]], int]:
    """Write the files of a part; they are not yet in any log."""
    lake = Lake(root)
    days: list[pa.Table] = []
    steps = [iterations(one.job, one.first_day, one.last_day, one.pieces, one.records) for one in part.blocks if one.first_rank == 0]
    added = {"rank_memory": _files(lake, "rank_memory", part.month, _batches(part.blocks, days)),
             "rank_day": _files(lake, "rank_day", part.month, _sliced(pa.concat_tables(days)))}
    if steps:
        added["iterations"] = _files(lake, "iterations", part.month, _sliced(pa.concat_tables(steps)))
    return added, part.rows


def _batches(blocks: Iterable[Block], days: list[pa.Table]) -> Iterator[pa.Table]:
    """Rows of `rank_memory`, small blocks together; those of `rank_day` are kept aside."""
    held: list[pa.Table] = []
    for block in blocks:
        sizes = sizes_of(block)
        held.append(memory_rows(block, sizes))
        days.append(day_rows(block, sizes))
        if sum(one.num_rows for one in held) >= BLOCK_ROWS // 2:
            yield pa.concat_tables(held).unify_dictionaries()
            held = []
    if held:
        yield pa.concat_tables(held).unify_dictionaries()


def _sliced(rows: pa.Table) -> Iterator[pa.Table]:
    for at in range(0, rows.num_rows, BLOCK_ROWS):
        yield rows.slice(at, BLOCK_ROWS)


def _files(lake: Lake, table: str, of_month: str, batches: Iterator[pa.Table]) -> list[AddAction]:
    """As `compact` writes them: zstd, its row groups, files of its size. Its own writer is not called because texts come as dictionaries."""
    folder = f"month={of_month}/cluster={CLUSTER}"
    (Path(lake.root) / table / folder).mkdir(parents=True, exist_ok=True)
    like = stored.StoredFile(f"{folder}/like", "", 0, 0, 0, (of_month, CLUSTER))
    files = pafs.SubTreeFileSystem(f"{lake.root}/{table}", pafs.LocalFileSystem())
    made: list[AddAction] = []
    while (first := next(batches, None)) is not None:
        path = f"{folder}/made-{uuid.uuid4()}.parquet"
        with files.open_output_stream(path) as sink, pq.ParquetWriter(sink, first.schema, compression="zstd", store_schema=False) as writer:
            for rows in stored._until_full(first, batches, sink, TARGET_BYTES):
                writer.write_table(rows, row_group_size=stored.ROW_GROUP_ROWS)
        made.append(stored._added(files, path, like))
    return made


def main() -> None:
    """Write a lake and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lake", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--pieces", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    begun = time.perf_counter()
    rows = make(given.lake, given.rows, given.days, given.share, given.pieces, given.workers)
    took, size = time.perf_counter() - begun, sum(one.stat().st_size for one in given.lake.rglob("*.parquet"))
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{rows:,} records in {took:.0f} s, {size / 1e9:.2f} GB, {size / rows:.1f} bytes a record; largest worker {peak_mb:,.0f} MB")


if __name__ == "__main__":
    main()
