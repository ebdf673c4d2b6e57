"""Tables that are too long for a browser: what is shown, what is said, and that a link still reaches a row that is not listed."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from app_pages._table import ROWS


def page(count: int) -> None:
    """A page with one table of ranks; the ticked one is told below it."""
    import streamlit as st

    from app_pages._table import ticked

    rows = [{"rank": rank, "peak, GiB": rank / 2} for rank in range(count)]
    st.text(f"ticked {ticked(rows, 'ranks', 'rank', [str(rank) for rank in range(count)])}")


def shown(count: int, **link: str) -> AppTest:
    app = AppTest.from_function(page, default_timeout=60, args=(count,))
    for name, value in link.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def test_a_table_that_fits_is_whole_and_says_nothing() -> None:
    app = shown(ROWS)
    assert len(app.dataframe[0].value) == ROWS
    assert not app.caption
    assert not app.get("download_button")


def test_a_longer_one_lists_the_first_rows_and_gives_all_of_them_as_files() -> None:
    app = shown(ROWS + 5)
    assert list(app.dataframe[0].value["rank"]) == list(range(ROWS))
    assert [one.value for one in app.caption] == [f"The first {ROWS:,} of {ROWS + 5:,} rows are listed."]
    assert [one.label for one in app.get("download_button")] == ["CSV", "Parquet"]


@pytest.mark.parametrize("row", [7, ROWS + 3])
def test_a_link_reaches_its_row_listed_or_not(row: int) -> None:
    app = shown(ROWS + 5, rank=str(row))
    assert app.text[-1].value == f"ticked {row}"
