"""SQL: one SELECT over the tables and views of the lake, run in a process that can read its files and nothing else.

A link holds the query (`?query=`): it fills the text and waits, so that opening a link from somebody runs nothing.
"""

from __future__ import annotations

import streamlit as st

from analysis.query.ask import Answer
from analysis.query.export import csv_for_spreadsheets, parquet
from analysis.query.process import answer
from analysis.query.schema_browser import schema_rows
from app_pages._shared import lake_root, lake_version, told_errors

ROWS = 1_000
LINK_CHARACTERS = 4_000
_FIRST = "SELECT run, run_index, rank, MAX(max_allocated_bytes) / 1073741824 AS peak_gib\nFROM rank_memory\nGROUP BY ALL ORDER BY peak_gib DESC"


def show() -> None:
    """The page."""
    st.header("SQL", anchor=False)
    if lake_version() == "none":
        st.info("No lake here yet.", icon=":material/inbox:")
        st.page_link("app_pages/start.py", label="Bring the artifacts of a run", icon=":material/upload_file:")
        return
    linked = st.query_params.get("query", "")[:LINK_CHARACTERS]
    if "sql_query" not in st.session_state:
        st.session_state["sql_query"] = linked or _FIRST
    with st.form("query", border=False):
        query = st.text_area("One SELECT", key="sql_query", height=140)
        asked = st.form_submit_button("Ask", type="primary", icon=":material/play_arrow:")
    if linked and not asked and "answer" not in st.session_state:
        st.caption("This query came with the link. Read it, then ask.")
    if asked:
        _ask(query)
    if found := st.session_state.get("answer"):
        _answer(found)
    _schema()


def _ask(query: str) -> None:
    """The answer into the session, and the query into the address, to be sent as a link."""
    st.session_state.pop("answer", None)
    if len(query) <= LINK_CHARACTERS:
        st.query_params["query"] = query
    else:
        st.query_params.pop("query", None)
    with told_errors(), st.spinner("Asking"):
        st.session_state["answer"] = answer(lake_root(), query, rows=ROWS)


def _answer(found: Answer) -> None:
    rows = found.rows
    st.dataframe({name: _column([_plain(row[at]) for row in rows]) for at, name in enumerate(_apart(found.columns))}, hide_index=True)
    st.caption(f"Only the first {ROWS:,} rows are shown; narrow the query." if found.capped else f"{len(rows):,} rows")
    left, right, _ = st.columns([1, 1, 4])
    left.download_button("CSV", csv_for_spreadsheets(found), "answer.csv", "text/csv", icon=":material/download:")
    with told_errors():
        right.download_button("Parquet", parquet(found), "answer.parquet", "application/vnd.apache.parquet", icon=":material/download:")


def _schema() -> None:
    with st.expander("Tables and views"):
        wanted = st.text_input("Find", placeholder="a table, a column or a word of its meaning").strip().lower()
        rows = [row for row in schema_rows() if wanted in " ".join(row.values()).lower()]
        columns = ("relation", "kind", "column", "type", "unit", "meaning")
        st.dataframe({name: [row[name] for row in rows] for name in columns}, hide_index=True, height=360)


def _plain(value: object) -> object:
    """Values that a table column can hold; maps, lists and other structures as text."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _column(values: list[object]) -> list[object]:
    """Whole numbers of more than 64 bits, which a table column has no place for, make their column text."""
    wide = any(isinstance(one, int) and not -(2**63) <= one < 2**63 for one in values)
    return [one if one is None else str(one) for one in values] if wide else values


def _apart(names: tuple[str, ...]) -> list[str]:
    """Column names, a number added where one comes twice."""
    return [name if names.index(name) == at else f"{name}_{at}" for at, name in enumerate(names)]


show()
