"""Rows of `rank_memory` and `rank_day` of the made fleet, by whole arrays: a block of ranks, each over a stretch of days.

A rank keeps its weights (steady), peaks in every step (its stage's height and up to 64 MiB of jitter in printed digits), holds in reserved what it
needed and a staircase that rises every ninth day, and has some 2 GiB outside torch. Peaks of jobs without the probe never reset. Blocks are in the
order that `compact` leaves: run, attempt, iteration, rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.fleet_lake.jobs import CAPACITY_BYTES, STEPS_A_RECORD, Job, day, near_steps
from ingest.tables import arrow_schema
from ingest.upkeep.rollup import LEVEL_BITS

GIB, MIB = 2**30, 2**20
DIGIT_BYTES, ROUNDING_BYTES = 10_486, 5_243
"""Sizes are printed in MiB with two digits: the last one, and half of it."""
_DAY_US = 86_400_000_000
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Ranks `first_rank` to `last_rank` (not included) of a job over the days `first_day` to `last_day` (not included) of the fleet."""

    job: Job
    first_rank: int
    last_rank: int
    first_day: int
    last_day: int
    records: int
    pieces: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Ranks, days, records a day."""
        return self.last_rank - self.first_rank, self.last_day - self.first_day, self.records


def piece_of(job: Job, number: int, piece: int) -> str:
    """The name of a piece of a job's log: the `piece`-th of a day."""
    return f"made-{job.run}:{(number - job.first) * 1000 + piece:08}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of every record of a block: rank, day, record."""

    peak: Numbers
    reserved: Numbers
    used: Numbers


def sizes_of(block: Block) -> Sizes:
    """Peak allocated, reserved and device used of every record of a block."""
    job = block.job
    ranks = np.arange(block.first_rank, block.last_rank, dtype=np.int64)[:, None, None]
    days = np.arange(block.first_day, block.last_day, dtype=np.int64)[None, :, None]
    height = 66 * GIB - 2 * GIB * (ranks // job.stride) // max(1, job.kind.pipeline - 1) - (ranks % 13) * 40 * MIB
    draw = np.random.default_rng([job.slot, job.first, block.first_rank, block.first_day])
    jitter = draw.integers(0, 6_400, block.shape, dtype=np.int64) * DIGIT_BYTES if job.kind.interval else np.zeros(block.shape, np.int64)
    peak = height + jitter
    reserved = height + 96 * MIB + np.minimum((days - job.first) // 9, 3) * 256 * MIB + np.zeros(block.shape, np.int64)
    outside = 2 * GIB + (ranks % 7) * 100 * MIB
    for at, rank in enumerate(range(block.first_rank, block.last_rank)):
        for on, number in enumerate(range(block.first_day, block.last_day)):
            if count := near_steps(job, rank, number, block.records):
                peak[at, on, :count] = CAPACITY_BYTES - int(outside[at, 0, 0]) - GIB
                reserved[at, on, :count] = peak[at, on, :count]
    return Sizes(peak, reserved, reserved + outside)


def memory_rows(block: Block, sizes: Sizes) -> pa.Table:
    """Rows of `rank_memory` without the partition's columns."""
    peak, reserved, used = sizes.peak, sizes.reserved, sizes.used
    count, scope = peak.size, "interval" if block.job.kind.interval else "cumulative"
    ranks, places = np.arange(block.first_rank, block.last_rank), np.arange((block.last_day - block.first_day) * block.records)
    record = (block.first_day - block.job.first) * block.records + places
    steady = 40 * GIB + (ranks % 5) * 64 * MIB
    wander = np.random.default_rng([block.first_rank, block.first_day]).integers(0, 200, count) * DIGIT_BYTES
    known: dict[str, pa.Array] = {
        "run": _same(block.job.run, count), "run_index": pa.repeat(pa.scalar(0, pa.int32()), count), "artifact": _artifacts(block, len(ranks)),
        "rank": pa.array(np.repeat(ranks.astype(np.int32), len(places))), "iteration": pa.array(np.tile((record + 1) * STEPS_A_RECORD, len(ranks))),
        "phase": _same("train", count), "source": _same("megatron_log", count), "scope": _same(scope, count),
        "allocated_bytes": pa.array(np.repeat(steady, len(places)) + wander), "max_allocated_bytes": pa.array(peak.reshape(-1)),
        "reserved_bytes": pa.array(reserved.reshape(-1)), "max_reserved_bytes": pa.array(reserved.reshape(-1)),
        "device_used_bytes": pa.array(used.reshape(-1)), "device_total_bytes": pa.repeat(pa.scalar(CAPACITY_BYTES, pa.int64()), count),
        "rounding_bytes": pa.repeat(pa.scalar(ROUNDING_BYTES, pa.int64()), count), "valid": pa.repeat(True, count),
        "at": pa.array(np.tile(_times(block), len(ranks))).cast(pa.timestamp("us")),
        "line": pa.array((np.tile(record, len(ranks)) * block.job.kind.ranks + np.repeat(ranks, len(places)) + 1).astype(np.int64)),
    }
    by_step = np.arange(count).reshape(len(ranks), len(places)).T.reshape(-1)
    return _whole("rank_memory", known, count).take(by_step)


def day_rows(block: Block, sizes: Sizes) -> pa.Table:
    """Rows of `rank_day` as `compact` leaves them: one a rank, day and level."""
    peak, reserved, used = sizes.peak, sizes.reserved, sizes.used
    ranks, days, records = block.shape
    at_level, held_level = peak >> LEVEL_BITS, reserved >> LEVEL_BITS
    key = ((np.arange(ranks)[:, None, None] * days + np.arange(days)[None, :, None]) << 24) | (held_level << 12) | at_level
    iteration = np.broadcast_to((np.arange(records) + 1) * STEPS_A_RECORD, block.shape)
    groups = pa.table({"key": key.reshape(-1), "peak": peak.reshape(-1), "held": reserved.reshape(-1), "used": used.reshape(-1),
                       "place": iteration.reshape(-1)}).group_by("key", use_threads=False).aggregate(
        [("key", "count"), *((name, how) for name in ("peak", "held", "place") for how in ("min", "max")), ("used", "max")])
    found = {name: groups[name].to_numpy() for name in groups.column_names}
    number, rank = (found["key"] >> 24) % days + block.first_day, (found["key"] >> 24) // days + block.first_rank
    before = (number - block.job.first) * block.records
    step_us = _DAY_US // records
    midnight = np.array([_midnight_us(one) for one in range(block.first_day, block.last_day)])[number - block.first_day]
    first, last = found["place_min"] // STEPS_A_RECORD - 1, found["place_max"] // STEPS_A_RECORD - 1
    count = len(number)
    known: dict[str, pa.Array] = {
        "run": pa.repeat(block.job.run, count), "run_index": pa.repeat(pa.scalar(0, pa.int32()), count),
        "artifact": pa.array([piece_of(block.job, int(one), 0) for one in number], pa.string()), "rank": pa.array(rank.astype(np.int32)),
        "day": pa.array((midnight // _DAY_US).astype(np.int32)).cast(pa.date32()),
        "scope": pa.repeat("interval" if block.job.kind.interval else "cumulative", count),
        "reserved_level": pa.array(((found["key"] >> 12) & 4095).astype(np.int32)),
        "allocated_level": pa.array((found["key"] & 4095).astype(np.int32)), "records": pa.array(found["key_count"]),
        "max_allocated_bytes": pa.array(found["peak_max"]), "min_allocated_bytes": pa.array(found["peak_min"]),
        "max_reserved_bytes": pa.array(found["held_max"]), "min_reserved_bytes": pa.array(found["held_min"]),
        "max_device_used_bytes": pa.array(found["used_max"]), "max_outside_bytes": pa.array(2 * GIB + (rank % 7) * 100 * MIB),
        "device_total_bytes": pa.repeat(pa.scalar(CAPACITY_BYTES, pa.int64()), count), "ooms": pa.repeat(pa.scalar(0, pa.int64()), count),
        "first_iteration": pa.array(before * STEPS_A_RECORD + found["place_min"]),
        "last_iteration": pa.array(before * STEPS_A_RECORD + found["place_max"]),
        "first_at": pa.array(midnight + first * step_us).cast(pa.timestamp("us")),
        "last_at": pa.array(midnight + last * step_us).cast(pa.timestamp("us")),
        "pieces": pa.repeat(pa.scalar(block.pieces, pa.int64()), count),
    }
    return _whole("rank_day", known, count)


def _artifacts(block: Block, ranks: int) -> pa.Array:
    """The piece of each record: those of a day follow one another, the same for every rank."""
    numbers = range(block.first_day, block.last_day)
    names = pa.array([piece_of(block.job, number, piece) for number in numbers for piece in range(block.pieces)])
    of_record = np.concatenate([on * block.pieces + np.arange(block.records) * block.pieces // block.records for on in range(len(numbers))])
    return pa.DictionaryArray.from_arrays(pa.array(np.tile(of_record.astype(np.int32), ranks)), names)


def _same(text: str, count: int) -> pa.Array:
    """One text for every row, as a dictionary: it is stored as plain text, and need not be copied until then."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _times(block: Block) -> Numbers:
    inside = np.arange(block.records, dtype=np.int64) * (_DAY_US // block.records)
    return np.concatenate([_midnight_us(number) + inside for number in range(block.first_day, block.last_day)])


def _midnight_us(number: int) -> int:
    one = day(number)
    return int((datetime(one.year, one.month, one.day) - datetime(1970, 1, 1)).total_seconds()) * 1_000_000


def _whole(table: str, known: dict[str, pa.Array], count: int) -> pa.Table:
    """Every column of a table's files, null where nothing is known; the partition stands in their path."""
    schema = pa.schema([field for field in arrow_schema(table) if field.name not in ("month", "cluster")])
    return pa.table([known[field.name] if field.name in known else pa.nulls(count, field.type) for field in schema], names=schema.names)


