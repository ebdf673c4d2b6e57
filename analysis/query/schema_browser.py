"""What a query may name, for people to look through: every table, view and computed table with its columns, types, units and meanings.

Stored columns are told by `ingest.tables`; a view by the comment above its SELECT, and its columns by the stored column of the same name, where
there is one; a computed table by its own list. Types of a view's columns come from the engine, on empty tables.
"""

from __future__ import annotations

from functools import lru_cache

from analysis.database import VIEWS, WORKED_OUT, from_rows
from analysis.query.check import COMPUTED
from analysis.query.export_db import heading
from ingest.tables import TABLES

_UNITS = {"_bytes": "bytes", "_ms": "ms", "_us": "µs", "_ratio": "ratio", "_gib": "GiB", "_mib": "MiB", "_seconds": "s"}


@lru_cache(maxsize=1)
def schema_rows() -> tuple[dict[str, str], ...]:
    """A row a column: `relation`, `kind`, `column`, `type`, `unit`, `meaning`; the first of each relation has no column and says what it holds."""
    rows = []
    for table in TABLES:
        rows.append(_row(table.name, "table", meaning=table.grain))
        rows += [_row(table.name, "table", column.name, column.type, column.unit or "", column.meaning) for column in table.columns]
    return (*rows, *_views(), *_computed())


def _views() -> list[dict[str, str]]:
    known = {column.name: column for table in TABLES for column in table.columns}
    rows = []
    with from_rows({}) as connection:
        for name in (*VIEWS, *WORKED_OUT):
            rows.append(_row(name, "view", meaning=heading(name) if name in VIEWS else "worked out from the arguments of each attempt"))
            for column, kind, *_ in connection.execute(f"DESCRIBE {name}").fetchall():
                told = known.get(column)
                rows.append(_row(name, "view", column, kind.lower(), _unit(column), told.meaning if told else ""))
    return rows


def _computed() -> list[dict[str, str]]:
    rows = []
    for module in COMPUTED:
        for name, columns in module.COLUMNS.items():
            rows.append(_row(name, "computed", meaning=module.GRAIN[name]))
            rows += [_row(name, "computed", column, kind, _unit(column), meaning) for column, kind, meaning in columns]
    return rows


def _unit(column: str) -> str:
    return next((unit for ending, unit in _UNITS.items() if column.endswith(ending)), "")


def _row(relation: str, kind: str, column: str = "", type_: str = "", unit: str = "", meaning: str = "") -> dict[str, str]:
    return {"relation": relation, "kind": kind, "column": column, "type": type_, "unit": unit, "meaning": meaning}
