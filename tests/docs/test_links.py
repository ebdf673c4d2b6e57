"""Every relative link of README, CONTRIBUTING and docs leads to a file that is there, and to a heading that it has.

Headings become anchors as the forges make them: letters, digits, `-` and `_` kept, small, blanks as hyphens, a number where one comes twice.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from analysis.glossary import GROUPS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`|^ {4,}\S.*$", re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]\[]*\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", _FENCED.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(name if not seen[name] else f"{name}-{seen[name]}")
        seen[name] += 1
    return found | set(re.findall(r'<a id="([\w-]+)"></a>', text))


def broken(page: Path, target: str) -> str:
    """Why a link of the page leads nowhere; empty where it leads somewhere."""
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists():
        return f"{page.relative_to(ROOT)}: {target}: no such file"
    if anchor and (path.suffix != ".md" or anchor not in anchors(path.read_text(encoding="utf-8"))):
        return f"{page.relative_to(ROOT)}: {target}: no such heading"
    return ""


def links(page: Path) -> list[str]:
    """The relative links of a page, those in code left out."""
    text = _CODE.sub("", _FENCED.sub("", page.read_text(encoding="utf-8")))
    return [target for target in _LINK.findall(text) if "://" not in target and not target.startswith("mailto:")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [told for target in links(page) if (told := broken(page, target))] == []


def test_links_of_the_glossary_lead_somewhere() -> None:
    page = ROOT / "docs" / "glossary.md"
    assert [told for group in GROUPS for term in group.terms if term.more and (told := broken(page, term.more))] == []


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    assert [str(page.relative_to(ROOT)) for page in PAGES if "docs" in page.parts and page != index and page.resolve() not in named] == []


def test_anchors_are_those_of_the_forges() -> None:
    assert anchors("# Out of memory: which case?\n## TP, SP\n## TP, SP\n```\n# no heading\n```\n### `rank_days` and [more](x.md)\n") == {
        "out-of-memory-which-case", "tp-sp", "tp-sp-1", "rank_days-and-more"}


def test_a_broken_link_is_told(tmp_path: Path) -> None:
    page = ROOT / "docs" / "security.md"
    assert "no such file" in broken(page, "nowhere.md")
    assert "no such heading" in broken(page, "scale.md#nowhere")
    assert broken(page, "#threats") == broken(page, "operations.md#upkeep") == ""
