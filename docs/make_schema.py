"""Write docs/schema.md from `ingest.tables`: `python docs/make_schema.py`. A test holds the file to it."""

from __future__ import annotations

from pathlib import Path

from analysis.query.ask import COMPUTED
from ingest.tables import TABLES, Column, Table

TARGET = Path(__file__).with_name("schema.md")
COLUMNS = {name: columns for tables in COMPUTED for name, columns in tables.COLUMNS.items()}
GRAIN = {name: grain for tables in COMPUTED for name, grain in tables.GRAIN.items()}
_HEAD = """\
# Schema

Generated from `ingest/tables.py` and the tables of `analysis.query.ask.COMPUTED` by `docs/make_schema.py`; do not edit.

Every table is a Delta table of the lake and a view of the same name in `hbmledger sql`. Sizes are bytes, times of a step milliseconds; absent is
null, never 0 or -1. `timestamp` is in microseconds without a zone: the artifact's own clock, and UTC for `artifacts.ingested_at`.
"""


_COMPUTED = """\
# Tables worked out for a query

They are not stored: `hbmledger sql` and the app's SQL page compute them for every attempt of the lake when a query names one: about 4 ms an attempt
whose text comes out (300 attempts added 0.6 to 1.4 s of processor time), up to 0.3 s where nothing fits or vocabulary and ranks are unknown.
See `docs/methods/branch.md`, `theory.md`, `logits.md`,
`expected.md` and `gap.md`.
"""


def markdown() -> str:
    """The whole page."""
    shared = {column.name for column in TABLES[0].columns} - {column.name for column in TABLES[0].own}
    every = [column for column in TABLES[0].columns if column.name in shared]
    stored = [line for table in TABLES for line in _table(table)]
    return "\n".join([_HEAD, "## Columns of every table\n", *_rows(every), "", *stored, _COMPUTED, *_computed()])


def _table(table: Table) -> list[str]:
    return [f"## {table.name}\n", f"A row: {table.grain}.\n", *_rows(list(table.own)), ""]


def _computed() -> list[str]:
    return [line for name, columns in COLUMNS.items() for line in (
        f"## {name}\n", f"A row: {GRAIN[name]}.\n", "| column | type | meaning |", "|---|---|---|",
        *(f"| `{column}` | {kind} | {meaning} |" for column, kind, meaning in columns), "")]


def _rows(columns: list[Column]) -> list[str]:
    return ["| column | type | unit | meaning |", "|---|---|---|---|",
            *(f"| `{one.name}` | {one.type} | {one.unit} | {one.meaning.replace('|', chr(92) + '|')} |" for one in columns)]


if __name__ == "__main__":
    TARGET.write_text(markdown(), encoding="utf-8")
    print(TARGET)
