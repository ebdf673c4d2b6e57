"""Every test that the threat list names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "security.md").read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_named_test_exists(file: str, test: str) -> None:
    assert not test or f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert (ROOT / "tests" / file).is_file()
