"""docs/schema.md is what `ingest.tables` says today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ingest.tables import TABLES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_schema_page_is_current():
    spec = importlib.util.spec_from_file_location("make_schema", DOCS / "make_schema.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "schema.md").read_text(encoding="utf-8") == module.markdown(), "run `make docs`"


def test_every_column_has_its_meaning_and_bytes_say_so():
    for table in TABLES:
        assert len(set(table.names)) == len(table.names)
        for column in table.own:
            assert column.meaning
            assert (column.unit == "bytes") == column.name.endswith("_bytes"), (table.name, column.name)
