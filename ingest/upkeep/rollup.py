"""What the records of each piece add to a rank's day: rows of `rank_day`, worked out when a piece is committed.

A sum over days must not change when late data comes, when an open tail is replaced or when a writer is killed. So nothing is ever updated:
a piece brings its own rows, they carry its name, and count exactly where its records count (`ingest.lake`). What a row holds must
add up over pieces in any order, which counts, maxima and minima do; a number of distinct steps, a quantile or a headroom does not.

Headroom = capacity - outside - peak, and capacity and outside are known only over the whole run (other ranks, other files, later
records). So rows hold what headroom follows from: how many records had their peak reserved and peak allocated in which level of 256 MiB, with
the smallest and the largest peak of each level. Once capacity and outside are known, a count of records within a margin is exact, unless the
threshold falls between the smallest and the largest of one level; then it is bounded by that level's records.
Levels are absolute: a share of capacity would need the capacity. 256 MiB is an eighth of the smallest margin (2 GiB).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.tables import arrow_schema

LEVEL_BITS = 28
"""A level is 2**28 bytes, 256 MiB."""

TEXT_KEYS = ("run", "artifact", "month", "cluster", "rank_label", "scope")
KEYS = (*TEXT_KEYS, "run_index", "rank", "day", "reserved_level", "allocated_level")
"""What tells rows of `rank_day` apart as a piece brings them."""

FOLDED = ("run", "run_index", "rank", "rank_label", "day", "scope", "reserved_level", "allocated_level")
"""What tells rows of one partition apart once pieces are summed."""

SUMS: Mapping[str, str] = {
    "records": "sum", "max_allocated_bytes": "max", "min_allocated_bytes": "min", "max_reserved_bytes": "max", "min_reserved_bytes": "min",
    "max_device_used_bytes": "max", "max_outside_bytes": "max", "device_total_bytes": "min", "max_active_bytes": "max", "alloc_retries": "max",
    "ooms": "sum", "first_iteration": "min", "last_iteration": "max", "first_at": "min", "last_at": "max", "pieces": "sum",
}
"""How each figure of a row adds up."""

_LARGEST_LEVEL = 2**31 - 1


def rank_day_of(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Rows of `rank_day` for the given rows of `rank_memory`, `memory_stats` and `oom_events`; other tables are left alone."""
    made = [make(_plain(tables[name])) for name, make in _MADE.items() if name in tables]
    figures = pa.concat_tables([part for part in made if part.num_rows] or [_figures({}, 0)])
    rows = summed(figures, KEYS)
    return rows.set_column(rows.schema.get_field_index("pieces"), "pieces", _times(1, rows))


def summed(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows alike in `keys` as one row of `rank_day`; columns that are neither key nor figure are null."""
    schema = arrow_schema("rank_day")
    texts = {name: rows[name].combine_chunks() for name in keys if pa.types.is_string(schema.field(name).type)}
    encoded = {name: pc.dictionary_encode(column) for name, column in texts.items()}
    plain = [encoded[name].indices if name in encoded else rows[name] for name in keys]
    figures = [rows[name] for name in SUMS]
    groups = pa.table([*plain, *figures], names=[*keys, *SUMS]).group_by(list(keys), use_threads=False).aggregate(list(SUMS.items()))
    found = {name: groups[name] if name not in encoded else encoded[name].dictionary.take(groups[name].combine_chunks()) for name in keys}
    found |= {name: groups[f"{name}_{how}"] for name, how in SUMS.items()}
    absent = pa.nulls(groups.num_rows)
    return pa.table([found.get(field.name, absent) for field in schema], names=schema.names).cast(schema)


def _plain(rows: pa.Table) -> pa.Table:
    """The columns that are read here, in one chunk: a batch of ten thousand files comes in as many. Keys may have come as dictionaries."""
    names = [name for name in _READ if name in rows.column_names]
    return pa.table([_decoded(rows[name]).combine_chunks() for name in names], names=names)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _of_memory(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.fill_null(rows["valid"], True))
    allocated = pc.max_element_wise(rows["allocated_bytes"], rows["max_allocated_bytes"])
    reserved = pc.max_element_wise(rows["reserved_bytes"], rows["max_reserved_bytes"])
    beside = pc.subtract(rows["device_used_bytes"], rows["reserved_bytes"])
    return _figures({
        **_keys(rows), "scope": rows["scope"], "reserved_level": _level(reserved), "allocated_level": _level(allocated),
        "records": _times(1, rows), "max_allocated_bytes": allocated, "min_allocated_bytes": allocated,
        "max_reserved_bytes": reserved, "min_reserved_bytes": reserved, "max_device_used_bytes": rows["device_used_bytes"],
        "max_outside_bytes": pc.if_else(pc.greater_equal(beside, 0), beside, None), "device_total_bytes": rows["device_total_bytes"],
    }, rows.num_rows)


def _of_stats(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.fill_null(rows["valid"], True))
    return _figures({**_keys(rows), "max_active_bytes": rows["active_bytes_all_peak_bytes"], "alloc_retries": rows["num_alloc_retries"]},
                    rows.num_rows)


def _of_ooms(rows: pa.Table) -> pa.Table:
    return _figures({**_keys(rows), "ooms": _times(1, rows)}, rows.num_rows)


def _keys(rows: pa.Table) -> dict[str, Any]:
    """A rank that is known needs no label; one that is not stands under its label, or under `not told`, as in `rank_latest`."""
    label = pc.if_else(pc.is_null(rows["rank"]), pc.fill_null(rows["rank_label"], "not told"), pa.scalar(None, pa.string()))
    return {
        **{name: rows[name] for name in ("run", "artifact", "month", "cluster", "rank")}, "run_index": pc.fill_null(rows["run_index"], 0),
        "rank_label": label, "day": rows["at"].cast(pa.date32(), safe=False), "first_iteration": rows["iteration"],
        "last_iteration": rows["iteration"], "first_at": rows["at"], "last_at": rows["at"],
    }


def _figures(known: Mapping[str, Any], count: int) -> pa.Table:
    """All keys and figures; null where not known, 0 where counted."""
    schema = arrow_schema("rank_day")
    columns = {name: known[name] if name in known else pa.nulls(count, schema.field(name).type) for name in (*KEYS, *SUMS)}
    return pa.table([_zero(name, column) for name, column in columns.items()], schema=pa.schema([schema.field(name) for name in columns]))


def _zero(name: str, column: Any) -> Any:
    return pc.fill_null(column, 0) if name in ("records", "ooms") else column


def _level(peak: Any) -> Any:
    return pc.min_element_wise(pc.shift_right(peak, LEVEL_BITS), _LARGEST_LEVEL, skip_nulls=False).cast(pa.int32())


def _times(value: int, rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows)


_MADE = {"rank_memory": _of_memory, "memory_stats": _of_stats, "oom_events": _of_ooms}
_READ = (
    "run", "run_index", "artifact", "month", "cluster", "rank", "rank_label", "iteration", "scope", "at", "valid", "allocated_bytes",
    "max_allocated_bytes", "reserved_bytes", "max_reserved_bytes", "device_used_bytes", "device_total_bytes", "active_bytes_all_peak_bytes",
    "num_alloc_retries",
)
