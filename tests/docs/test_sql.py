"""docs/sql.md names what a query may name, each with its line; its queries are answered."""

from __future__ import annotations

import re

from analysis.database import VIEWS, connect, locked
from analysis.query.ask import ask
from analysis.query.check import COMPUTED
from docs.make_sql import TARGET, page
from ingest.lake import Lake
from ingest.tables import TABLES

PAGE = TARGET.read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_is_current() -> None:
    assert page(PAGE) == PAGE, "run `make docs`"


def test_every_table_and_view_has_one_line_of_its_own() -> None:
    named = re.findall(r"^\| `(\w+)` \| .{10,}\.(?: \(.*\))? \|$", PAGE, re.MULTILINE)
    assert sorted(named) == sorted([*VIEWS, *(name for module in COMPUTED for name in module.COLUMNS), *(table.name for table in TABLES)])


def test_each_query_is_answered(tmp_path) -> None:
    lake = locked(connect(Lake(tmp_path / "empty")))
    assert len(QUERIES) == 3
    assert [query for query in QUERIES if not ask(lake, query).columns] == []
