"""What every browser test needs: an app on an empty lake, and a browser of its own; a test file may put its own in their place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.driving import browsing, serving


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
