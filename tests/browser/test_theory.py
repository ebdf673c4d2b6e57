"""A real browser on the Theory page: the terms it shows add up to the number the log printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.browser.driving import NEEDS_BROWSER, browsing, drawn, requests_elsewhere, serving, shows

SAMPLE = Path(__file__).resolve().parent.parent.parent / "sample_data/dense_7b5_pp2/train.log"

pytestmark = NEEDS_BROWSER


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of an app on a lake with the dense sample."""
    ingest([SAMPLE], Lake(tmp_path / "lake"), run="dense")
    with serving(tmp_path / "lake", tmp_path) as address:
        yield address


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A browser of this test alone."""
    with browsing(tmp_path, height=3000) as driver:
        yield driver


def test_the_terms_on_the_page_add_up_to_what_the_log_printed(server: str, browser: Any) -> None:
    browser.get(f"{server}/theory?run=dense")
    shown = shows(browser, "The formula with this run's numbers", "MB as printed", "Last stage: output weight, logits and loss", "As printed")
    printed = re.findall(r"weight and optimizer=(\S+) MB, activation=(\S+) MB", SAMPLE.read_text())[-1]
    for part, figure in zip(("weight and optimizer", "activation"), printed, strict=True):
        line = next(line for line in shown.splitlines() if line.startswith(f"{part}: "))
        *addends, total = [int(number.replace(",", "")) for number in re.findall(r"[\d,]{4,}(?= \+| =| B)", line)]
        assert len(addends) > 2
        assert abs(sum(addends) - total) <= len(addends)
        assert f"{sum(addends) / 2**20:.2f}" == figure
    assert "without_sp, what the other branch would have said" in shown
    drawn(browser, 3)
    assert requests_elsewhere(browser) == []
