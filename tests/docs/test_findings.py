"""docs/findings.md is what the rules and the catalogue say today, and the pages it names are there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from analysis.findings import RULES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_findings_page_is_current():
    spec = importlib.util.spec_from_file_location("make_findings", DOCS / "make_findings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "findings.md").read_text(encoding="utf-8") == module.markdown(), "run `make docs`"


def test_each_rule_s_method_is_documented():
    assert {rule.source for rule in RULES if not (DOCS / rule.source).is_file()} == set()
