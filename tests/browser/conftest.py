"""What every browser test needs: an app on an empty lake, and a browser of its own; a test file may put its own in their place.

Tests that only look share one app on a lake of all samples and one browser of their process (`visitor`): each page then costs about a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.browser.driving import browsing, serving
from tests.browser.visiting import Visitor
from tests.conftest import ROOT

TRIES = 5

@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of an app on an empty lake."""
    with serving(tmp_path / "lake", tmp_path) as address:
        yield address


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A browser of this test alone."""
    with browsing(tmp_path) as driver:
        yield driver


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of every sample run, all read within one minute of the clock, by which Start lists them."""
    for _ in range(TRIES):
        root = tmp_path_factory.mktemp("samples") / "lake"
        began = _minute()
        ingest([*sorted(path.parent for path in ROOT.glob("sample_data/*/train.log")), ROOT / "sample_data/moe_16ranks"], Lake(root))
        if _minute() == began:
            return root
    raise AssertionError(f"the samples were read {TRIES} times, never within one minute of the clock")


def _minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0)


@pytest.fixture(scope="session")
def visitor(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """One browser on one app with the samples, for all tests that leave nothing behind; so large that tables are drawn whole."""
    folder = tmp_path_factory.mktemp("browser")
    with serving(samples, folder) as address, browsing(folder, 2400, 5000) as driver:
        yield Visitor(driver, address)
