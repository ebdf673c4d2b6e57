"""The pages that docs/pictures show say what they said when the pictures were taken: words only, because pixels differ from browser to browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.make_pictures import PICTURES, REPORT, SHOTS, Shot, reported, shown
from tests.browser.driving import NEEDS_BROWSER
from tests.browser.visiting import Visitor
from tests.conftest import ROOT

pytestmark = NEEDS_BROWSER
REDRAW = "the pictures are older than the pages: run `python -m docs.make_pictures`"


def recorded(name: str) -> list[str]:
    """The words that stand beside a picture."""
    return (PICTURES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module", autouse=True)
def _anew(visitor: Visitor) -> None:
    """Whatever other tests chose on these pages is forgotten: the next page is loaded, not turned to."""
    visitor.run = None


@pytest.mark.parametrize("shot", [shot for shot in SHOTS if shot.width > 500], ids=lambda shot: shot.name)
def test_a_picture_s_page_says_what_it_said(shot: Shot, visitor: Visitor) -> None:
    assert shown(visitor, shot).splitlines() == recorded(shot.name), REDRAW


def test_a_narrow_window_shows_the_same_words() -> None:
    assert recorded("overview_narrow") == recorded("overview_moe"), REDRAW


def test_the_report_says_what_it_said(visitor: Visitor, samples: Path, tmp_path: Path) -> None:
    visitor.run = None
    assert reported(visitor.browser, samples, tmp_path).splitlines() == recorded(REPORT), REDRAW


def test_each_picture_is_shown_in_the_documentation_and_has_its_words() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
    names = {REPORT, *(shot.name for shot in SHOTS)}
    assert {path.stem for path in PICTURES.glob("*.png")} == names == {path.stem for path in PICTURES.glob("*.txt")}
    assert set(re.findall(r"pictures/(\w+)\.png", text)) == names


def test_no_record_holds_a_place_of_this_machine_or_a_time() -> None:
    told = "".join((PICTURES / f"{name}.txt").read_text(encoding="utf-8") for name in {REPORT, *(shot.name for shot in SHOTS)})
    assert str(ROOT) not in told
    assert re.findall(r"/tmp/\S*|127\.0\.0\.1:\d+", told) == []
