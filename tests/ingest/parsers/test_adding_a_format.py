"""docs/adding-a-format.md shows code that stands in the tree, and little of it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/adding-a-format.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"`(\S+\.py)`:\n\n```python\n(.*?)```\n", PAGE, re.DOTALL)


def test_the_page_s_code_is_the_tree_s() -> None:
    assert [name for name, code in SHOWN if (ROOT / name).read_text(encoding="utf-8") != code] == []
    assert {Path(name).name.split("_")[0] for name, _ in SHOWN} == {"shares.py", "test"}


def test_the_addition_is_under_sixty_lines_and_listed() -> None:
    assert sum(code.count("\n") for _, code in SHOWN) + 2 < 60
    listed = (ROOT / "ingest/parsers/log/recognizers.py").read_text(encoding="utf-8")
    assert listed.count("MemoryShares") == 2
    assert "memory_nearly_full" in (ROOT / "docs/formats.md").read_text(encoding="utf-8")


def test_every_file_the_page_names_exists() -> None:
    named = set(re.findall(r"`((?:ingest|tests|docs)/[\w/.-]+\.\w+)`", PAGE))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
