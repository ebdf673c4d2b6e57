"""Rows of parsers to Arrow tables of the lake's schema; a row that does not fit becomes a reject, never a crash.

A whole column is tried first, because that is fast; only where it fails are the rows tried one by one. A field that no column
takes goes to `other` as text. Not type inference: an empty column would get another type in every file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsers.base import Row
from ingest.tables import BY_NAME, arrow_schema

_BROKEN = (pa.ArrowException, ValueError, TypeError, OverflowError)


def to_arrow(table: str, rows: Sequence[Row]) -> tuple[pa.Table, list[tuple[Row, str]]]:
    """The rows that fit, and those that do not with the reason."""
    schema = arrow_schema(table)
    names = set(schema.names)
    tidy = [row if names.issuperset(row) and isinstance(row.get("other", _NOTHING), dict | None) else _tidied(row, names) for row in rows]
    try:
        return _columns(schema, tidy), []
    except _BROKEN:
        return _one_by_one(schema, tidy)


_NOTHING: dict[str, str] = {}


def _columns(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_arrays([pa.array([row.get(field.name) for row in rows], field.type) for field in schema], schema=schema)


def _tidied(row: Row, names: set[str]) -> Row:
    """Fields without a column moved to `other`."""
    other = dict(row.get("other") or {}) | {name: str(value) for name, value in row.items() if name not in names and value is not None}
    return {name: value for name, value in row.items() if name in names} | ({"other": other} if other else {})


def _one_by_one(schema: pa.Schema, rows: Sequence[Row]) -> tuple[pa.Table, list[tuple[Row, str]]]:
    fit, unfit = [], []
    for row in rows:
        if misfit := _misfit(schema, row):
            unfit.append((row, misfit))
        else:
            fit.append(row)
    return _columns(schema, fit), unfit


def _misfit(schema: pa.Schema, row: Row) -> str | None:
    for name, value in row.items():
        try:
            pa.array([value], schema.field(name).type)
        except _BROKEN as error:
            return f"{name} does not fit the schema: {error}"
    return None


def completed(table: str, given: pa.Table, keys: Mapping[str, Any]) -> pa.Table:
    """All columns of a table from those that a parser gave as Arrow; the keys of its artifact stand in dictionaries, a value once.

    Partition keys stay plain text, which the lake's writer needs. Raises ValueError for a column that the schema lacks or that does not fit.
    """
    schema = arrow_schema(table)
    if unknown := set(given.column_names) - set(schema.names):
        raise ValueError(f"{table} has no column {', '.join(sorted(unknown))}")
    columns = []
    for field in schema:
        if field.name in keys:
            columns.append(constant(keys[field.name], given.num_rows, encoded=field.name not in ("month", "cluster")))
        elif field.name in given.column_names:
            column = given[field.name]
            columns.append(column if pa.types.is_dictionary(column.type) else column.cast(field.type))
        elif field.name == "run_index":
            columns.append(pa.array([0], pa.int32()).take(pa.repeat(0, given.num_rows)))
        else:
            columns.append(pa.nulls(given.num_rows, field.type))
    return pa.table(columns, names=schema.names)


def constant(value: str, count: int, *, encoded: bool) -> pa.Array:
    """`value`, `count` times; `encoded` as a dictionary of one entry, one byte a row."""
    if not encoded:
        return pa.repeat(pa.scalar(value, pa.string()), count)
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), count), pa.array([value], pa.string()))


_OF_RANKS = frozenset(name for name, table in BY_NAME.items() if {"rank", "rank_label"} <= set(table.names))


def _with_rank(part: pa.Table, rank: int) -> pa.Table:
    """`rank` where a row has neither rank nor label."""
    place = part.schema.get_field_index("rank")
    unnamed = pc.and_(pc.is_null(part["rank"]), pc.is_null(part["rank_label"]))
    return part.set_column(place, part.schema.field(place), pc.if_else(unnamed, pa.scalar(rank, pa.int32()), part["rank"].cast(pa.int32())))


class Collector:
    """Rows of artifacts on their way to Arrow, with how many each artifact has kept and rejected; records that name no rank get `rank`."""

    def __init__(self, rank: int | None = None) -> None:
        self._rank = rank
        self.tables: dict[str, list[pa.Table]] = {}
        self.kept: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self._rows: dict[str, list[Row]] = {}
        self._waiting = 0

    def add(self, rows: dict[str, list[Row]], keys: Row) -> None:
        """Take rows of one artifact; `keys` are run, artifact, month and cluster."""
        for table, records in rows.items():
            if table not in BY_NAME:
                raise ValueError(f"there is no table {table}")
            for record in records:
                record.update(keys)
                record.setdefault("run_index", 0)
                if self._rank is not None and table in _OF_RANKS and record.get("rank") is None and not record.get("rank_label"):
                    record["rank"] = self._rank
            self._rows.setdefault(table, []).extend(records)
            self._waiting += len(records)
            (self.rejected if table == "rejects" else self.kept)[keys["artifact"]] += len(records)

    def add_tables(self, tables: Mapping[str, pa.Table], keys: Row) -> None:
        """Take rows that are Arrow columns already."""
        for table, given in tables.items():
            part = completed(table, given, keys)
            if self._rank is not None and table in _OF_RANKS:
                part = _with_rank(part, self._rank)
            self._append(table, part)
            self.kept[keys["artifact"]] += part.num_rows

    @property
    def count(self) -> int:
        """Rows of all tables."""
        return self.kept.total() + self.rejected.total()

    @property
    def nbytes(self) -> int:
        """Memory of what is converted."""
        return int(sum(part.nbytes for parts in self.tables.values() for part in parts))

    def squeeze(self, above: int = 0) -> None:
        """Convert what waits where it is more than `above` rows."""
        if self._waiting <= above:
            return
        rejects = self._rows.pop("rejects", [])
        for table, rows in self._rows.items():
            part, unfit = to_arrow(table, rows)
            self._append(table, part)
            rejects += [self._reject(table, row, reason) for row, reason in unfit]
        if rejects:
            self._append("rejects", to_arrow("rejects", rejects)[0])
        self._rows, self._waiting = {}, 0

    def take(self, other: Collector, artifact: str) -> None:
        """Take over the rows of one artifact whose name was not known while they were read."""
        for table, parts in other.tables.items():
            for part in parts:
                named = constant(artifact, part.num_rows, encoded=pa.types.is_dictionary(part.schema.field("artifact").type))
                self._append(table, part.set_column(part.schema.get_field_index("artifact"), "artifact", named))
        for table, rows in other._rows.items():
            for row in rows:
                row["artifact"] = artifact
            self._rows.setdefault(table, []).extend(rows)
        self._waiting += other._waiting
        self.kept[artifact] += other.kept.total()
        self.rejected[artifact] += other.rejected.total()

    def _append(self, table: str, part: pa.Table) -> None:
        if part.num_rows:
            self.tables.setdefault(table, []).append(part)

    def _reject(self, table: str, row: Row, reason: str) -> Row:
        self.kept[row["artifact"]] -= 1
        self.rejected[row["artifact"]] += 1
        keys: dict[str, Any] = {name: row.get(name) for name in ("run", "run_index", "artifact", "month", "cluster", "line")}
        text = str({name: value for name, value in row.items() if name not in keys})[:2000].encode("utf-8", "backslashreplace").decode()
        return keys | {"text": text, "reason": f"{table}: {reason}"}
