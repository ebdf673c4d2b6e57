"""One page of the app, run without a browser on a given lake, and everything that it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.conftest import ROOT

PAGES = tuple(sorted(path.stem for path in (ROOT / "app_pages").glob("[!_]*.py")))
"""Every page: a file of `app_pages` that no underscore keeps back."""
_KINDS = ("markdown", "caption", "text", "code", "info", "warning", "error", "success", "title", "header", "subheader")


def app_on(lake: str | Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """A session that looks at this lake, nothing opened yet."""
    monkeypatch.setenv("HBMLEDGER_LAKE", str(lake))
    monkeypatch.delenv("HBMLEDGER_SERVER_ROOT", raising=False)
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)


def page_of(name: str, lake: str, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    """The page as a link with this query opens it."""
    app = app_on(lake, monkeypatch)
    app.run()
    return go(app, name, **query)


def go(app: AppTest, name: str, **query: str) -> AppTest:
    """The session on another page, as a link with this query opens it."""
    app.switch_page(f"app_pages/{name}.py")
    app.query_params.clear()
    for key, value in query.items():
        app.query_params[key] = value
    return app.run()


def said(app: AppTest) -> str:
    """Everything the page says: its texts without the escapes of Markdown, its figures, the names and cells of its tables."""
    texts = [str(one.value) for kind in _KINDS for one in getattr(app, kind)]
    figures = [f"{one.label}: {one.value}" for one in app.metric]
    cells = [_cell(value) for table in app.dataframe for name in table.value.columns for value in (name, *table.value[name])]
    return "\n".join((re.sub(r"\\(.)", r"\1", "\n".join(texts)), *figures, *cells))


def runs_on_start(app: AppTest) -> list[str]:
    """The runs that the start page lists, as they are called there."""
    links = (one.proto for one in app.get("page_link") if one.proto.icon == ":material/grid_view:")
    return [re.sub(r"\\(.)", r"\1", link.label) for link in links if not link.label.startswith("Open ")]


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
