"""One page of the app, run without a browser on a given lake."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.conftest import ROOT


def page_of(name: str, lake: str, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    """The page as a link with this query opens it."""
    monkeypatch.setenv("HBMLEDGER_LAKE", lake)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.run()
    app.switch_page(f"app_pages/{name}.py")
    for key, value in query.items():
        app.query_params[key] = value
    return app.run()
