"""SQL: one SELECT over the tables and views of the lake, on a connection that can read its files and nothing else."""

from __future__ import annotations

import csv
import io

import streamlit as st

from analysis.database import VIEWS, locked
from analysis.query import COMPUTED, Answer, ask
from app_pages._shared import lake_root, lake_version, told_errors
from ingest.lake import Lake
from ingest.tables import TABLES

ROWS = 1_000
_FIRST = "SELECT run, run_index, rank, MAX(max_allocated_bytes) / 1073741824 AS peak_gib\nFROM rank_memory\nGROUP BY ALL ORDER BY peak_gib DESC"


def show() -> None:
    """The page."""
    st.header("SQL", anchor=False)
    if lake_version() == "none":
        st.info("No lake here yet.", icon=":material/inbox:")
        st.page_link("app_pages/start.py", label="Bring the artifacts of a run", icon=":material/upload_file:")
        return
    with st.form("query", border=False):
        query = st.text_area("One SELECT", _FIRST, height=140)
        asked = st.form_submit_button("Ask", type="primary", icon=":material/play_arrow:")
    if asked:
        with told_errors(), st.spinner("Asking"):
            st.session_state["answer"] = ask(locked(Lake(lake_root())), query, rows=ROWS)
    if answer := st.session_state.get("answer"):
        _answer(answer)
    _schema()


def _answer(answer: Answer) -> None:
    st.dataframe({name: [_plain(row[at]) for row in answer.rows] for at, name in enumerate(_apart(answer.columns))}, hide_index=True)
    st.caption(f"Only the first {ROWS:,} rows are shown; narrow the query." if answer.capped else f"{len(answer.rows):,} rows")
    text = io.StringIO()
    csv.writer(text).writerows([answer.columns, *answer.rows])
    st.download_button("CSV", text.getvalue(), "answer.csv", "text/csv", icon=":material/download:")


def _schema() -> None:
    with st.expander("Tables and views"):
        st.text("views: " + ", ".join((*VIEWS, *(name for tables in COMPUTED for name in tables.COLUMNS))))
        st.dataframe([{"table": table.name, "column": column.name, "type": column.type, "meaning": column.meaning}
                      for table in TABLES for column in table.own], hide_index=True, height=360)


def _plain(value: object) -> object:
    """Values that a table column can hold; maps and lists as text."""
    return str(value) if isinstance(value, dict | list) else value


def _apart(names: tuple[str, ...]) -> list[str]:
    """Column names, a number added where one comes twice."""
    return [name if names.index(name) == at else f"{name}_{at}" for at, name in enumerate(names)]


show()
