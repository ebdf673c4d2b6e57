"""docs/sql.md names what a query may name, each with its line; its commands parse and its queries are answered."""

from __future__ import annotations

import re
import shlex

import pytest

from analysis.database import VIEWS, connect, locked
from analysis.query import ask
from analysis.query_check import COMPUTED
from cli import VERBS, build_parser
from docs.make_sql import TARGET, page
from ingest.lake import Lake
from ingest.tables import TABLES

PAGE = TARGET.read_text(encoding="utf-8")
COMMANDS = [line.split("  #")[0] for text in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in text.splitlines()]
QUERIES = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_is_current() -> None:
    assert page(PAGE) == PAGE, "run `make docs`"


def test_every_table_and_view_has_one_line_of_its_own() -> None:
    named = re.findall(r"^\| `(\w+)` \| .{10,}\.(?: \(.*\))? \|$", PAGE, re.MULTILINE)
    assert sorted(named) == sorted([*VIEWS, *(name for module in COMPUTED for name in module.COLUMNS), *(table.name for table in TABLES)])


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_parses(command: str) -> None:
    words = shlex.split(command.partition(" < ")[0])
    assert words[0] == "hbmledger"
    assert words[1] in VERBS
    build_parser(words[1]).parse_args(words[1:])


def test_each_query_is_answered(tmp_path) -> None:
    lake = locked(connect(Lake(tmp_path / "empty")))
    assert len(QUERIES) == 3
    assert [query for query in QUERIES if not ask(lake, query).columns] == []
