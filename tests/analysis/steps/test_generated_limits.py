"""Two hundred generated runs whose truth is planted: the class of every rank, judged by nothing that the rules share code with."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from analysis.database import from_rows
from analysis.limits import near_limits
from analysis.overview import ranks_of
from analysis.steps.attempt_steps import attempt_steps

GIB = 2**30
CAPACITY = 80 * GIB
MARGIN = int(2.4 * GIB)  # 3 % of 80 GiB, worked out by hand


def _run(seed: int):
    """Rows of one run, and for each rank the class planted."""
    chance = random.Random(seed)
    steps = chance.choice((12, 40, 100, 300))
    scope = "cumulative" if chance.random() < 0.25 else "interval"
    with_used = chance.random() < 0.85
    loaded = chance.random() < 0.5 and scope == "interval"
    outside = chance.randint(1 * GIB, 6 * GIB)
    limit = CAPACITY - outside - MARGIN  # a peak of this many bytes is just near
    rows, loads, truth = [], [], {}
    for rank in range(chance.choice((2, 8, 16))):
        planted = chance.choice(("stable", "occasional", "clear", "few"))
        if chance.random() < 0.1:
            continue  # a rank that left nothing behind
        count = chance.randint(1, 4) if planted == "few" else steps
        high = sorted(chance.sample(range(count), max(1, count // 10)))
        near = {"stable": high if loaded else range(count), "occasional": high[:max(1, len(high) // 3)], "clear": (), "few": ()}[planted]
        if planted == "stable" and not loaded:
            near = sorted(chance.sample(range(count), int(count * 0.9) + 1)) if count > 10 else range(count)
        top = 0
        for step in range(count):
            short = step in near
            peak = limit + chance.randint(0, GIB) if short else limit - chance.randint(GIB // 4, 20 * GIB)
            top = max(top, peak)
            held = min(max(peak, top if scope == "cumulative" else peak), CAPACITY - outside)
            row = {"rank": rank, "iteration": step + 1, "scope": scope, "allocated_bytes": peak // 2, "line": step + 1,
                   "max_allocated_bytes": top if scope == "cumulative" else peak, "max_reserved_bytes": held, "reserved_bytes": held,
                   "device_total_bytes": CAPACITY, "device_used_bytes": held + outside if with_used else None}
            rows.append(row)
            if loaded:
                heavy = 1.3 if step in high else 1.0
                loads.append((rank, step + 1, int((heavy + chance.uniform(-0.01, 0.01)) * GIB)))
        truth[rank] = (_expected(planted, count, scope, with_used, loaded, near, high), planted)
    return rows, loads, truth


def _expected(planted, count, scope, with_used, loaded, near, high):
    """What can honestly be said of the planted class from what was left behind."""
    judged = len(high) if loaded else count
    if planted == "few" and scope == "interval" and with_used:
        return {"insufficient"}
    if scope == "cumulative":
        return {"clear", "insufficient"} if not near and with_used else {"insufficient", "occasional", "undetermined"}
    if judged < 5:
        return {"insufficient"} if with_used else {"insufficient", "undetermined"}
    if with_used:
        return {planted}
    return {"undetermined", "insufficient", planted} if planted != "clear" else {"undetermined", "insufficient"}


def _connection(rows, loads):
    """Rows of `rank_memory`, and (run, rank, iteration, bytes) of load, as a lake would show them."""
    connection = from_rows({"rank_memory": rows})
    connection.execute("DROP VIEW IF EXISTS rank_load")
    given = pa.table({name: [load[at] for load in loads] for at, name in enumerate(("run", "rank", "iteration", "load_bytes"))},
                     schema=pa.schema([("run", pa.string()), ("rank", pa.int32()), ("iteration", pa.int64()), ("load_bytes", pa.int64())]))
    connection.register("given_load", given)
    connection.execute("CREATE VIEW rank_load AS SELECT run, 0 AS run_index, rank, iteration, load_bytes FROM given_load")
    return connection


def _judge(connection, run):
    with attempt_steps(connection, run, 0):
        return {one.rank: one for one in near_limits(connection, ranks_of(connection, run, 0), 0, set())}


@pytest.fixture(scope="module")
def judged():
    made = {f"run{seed}": _run(seed) for seed in range(200)}
    rows = [{**row, "run": run} for run, (rows, _, _) in made.items() for row in rows]
    connection = _connection(rows, [(run, *load) for run, (_, loads, _) in made.items() for load in loads])
    return [(truth, _judge(connection, run), rows[0]) for run, (rows, _, truth) in made.items() if rows]


def test_at_least_95_percent_of_the_ranks_get_the_planted_class(judged):
    right = [near[rank].near in classes for truth, near, _ in judged for rank, (classes, _) in truth.items()]
    assert len(right) > 1000
    assert sum(right) >= 0.95 * len(right)


def test_where_all_is_told_the_class_is_the_planted_one(judged):
    told = [(near[rank].near, planted) for truth, near, row in judged for rank, (classes, planted) in truth.items() if len(classes) == 1]
    assert len(told) > 500
    assert all(found in (planted, "insufficient") for found, planted in told)


def test_no_planted_stable_rank_is_ever_called_clear(judged):
    assert not [rank for truth, near, _ in judged for rank, (_, planted) in truth.items() if planted == "stable" and near[rank].near == "clear"]
    assert not [rank for truth, near, _ in judged for rank, (_, planted) in truth.items() if planted == "occasional" and near[rank].near == "clear"]


def test_without_device_used_nothing_is_called_clear(judged):
    blind = [one for _, near, row in judged if row["device_used_bytes"] is None for one in near.values()]
    assert blind
    assert "clear" not in {one.near for one in blind}


def test_the_bounds_cover_at_their_rate():
    chance, trials = random.Random(7), 400
    shares = [chance.choice((0.0, 0.02, 0.1, 0.5, 0.9)) for _ in range(trials)]
    rows = [{"rank": trial, "iteration": step + 1, "scope": "interval", "line": 1, "allocated_bytes": GIB, "device_total_bytes": CAPACITY,
             "max_allocated_bytes": (78 if chance.random() < share else 40) * GIB, "max_reserved_bytes": 40 * GIB, "reserved_bytes": 40 * GIB,
             "device_used_bytes": 41 * GIB} for trial, share in enumerate(shares) for step in range(60)]
    found = _judge(_connection(rows, []), "file")
    assert sum(found[trial].low <= share <= found[trial].high for trial, share in enumerate(shares)) / trials >= 0.93
