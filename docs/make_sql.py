"""Write what a query may name into docs/sql.md, one line each: `python -m docs.make_sql`. A test holds the page to the tree.

A view is told by the first sentence above its SELECT, a stored or computed table by its grain: the words that the SQL page shows too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analysis.database import VIEWS, WORKED_OUT
from analysis.query.check import COMPUTED
from analysis.query.export_db import heading
from ingest.tables import TABLES

TARGET = Path(__file__).with_name("sql.md")
START = "<!-- written by docs/make_sql.py, do not edit below -->"


def page(text: str) -> str:
    """The page with what there is now."""
    return text[:text.index(START)] + "\n".join([START, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    yield from _list("Views over a whole fleet", "from daily rollups",
                     {name: _first(heading(name)) for name in VIEWS if name.startswith("fleet_")})
    yield from _list("Views on runs, ranks and steps", "from the records",
                     {name: _first(heading(name)) for name in VIEWS if not name.startswith("fleet_")})
    yield from _list("Worked out for a query", "computed when a query names one; columns in [schema.md](schema.md#tables-worked-out-for-a-query)",
                     {name: f"A row: {module.GRAIN[name]}." for module in COMPUTED for name in module.COLUMNS})
    yield from _list("Stored tables", "columns in [schema.md](schema.md)", {table.name: f"A row: {table.grain}." for table in TABLES})
    helpers = ", ".join(f"`{name}`" for name in WORKED_OUT)
    yield from ("", f"The views {helpers} are worked out from the arguments of each attempt; the others read them.")


def _list(title: str, note: str, meanings: dict[str, str]) -> Iterator[str]:
    yield from ("", f"### {title}", f"{note[0].upper()}{note[1:]}.", "", "| name | holds |", "|---|---|")
    yield from (f"| `{name}` | {meaning} |" for name, meaning in meanings.items())


def _first(text: str) -> str:
    """The first sentence."""
    return text.partition(". ")[0].rstrip(".") + "."


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    print(TARGET)
