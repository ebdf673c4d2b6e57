"""Where tests find shared data: `HBMLEDGER_SHARED`, else `../shared` beside the project."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared data folder, or a skip that says it is absent."""
    folder = Path(os.environ.get("HBMLEDGER_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"needs the shared data folder, looked in {folder} (set HBMLEDGER_SHARED)")
    return folder


@pytest.fixture(autouse=True)
def _main_stays() -> Iterator[None]:
    """A page run without a browser takes the place of the main module, which worker processes of a later test would load again."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--regenerate` writes golden outputs anew, where a test compares with some."""
    parser.addoption("--regenerate", action="store_true", help="write golden outputs and README sessions anew")
