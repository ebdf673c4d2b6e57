"""docs/methods/snapshot.md tells the rules as they are declared today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from analysis.snapshot.rules import RULES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_of_rules_is_current():
    spec = importlib.util.spec_from_file_location("make_snapshot_rules", DOCS / "make_snapshot_rules.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = module.TARGET.read_text(encoding="utf-8")
    assert written == module.page(written)
    assert all(rule.frame in written for rule in RULES)
