"""Rejects: what looked like a record and was not understood, and the files that could not be read at all."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from analysis.database import records
from analysis.rows import Source
from analysis.verdict import rejects_text
from app_pages._header import run_page
from app_pages._origin import origin
from app_pages._shared import asked, shown
from app_pages._table import ticked

ROWS = 500
_REJECTS = """
SELECT COALESCE(artifacts.path, rejects.artifact) AS path, rejects.line, rejects.offset_bytes, rejects.reason, rejects.text
FROM rejects LEFT JOIN artifacts ON artifacts.artifact = rejects.artifact
WHERE rejects.run = ? AND COALESCE(rejects.run_index, 0) = ?
ORDER BY path, rejects.line, rejects.offset_bytes
LIMIT ?
"""
_QUARANTINED = "SELECT path, reason FROM artifacts WHERE run = ? AND status = 'quarantined' ORDER BY path LIMIT ?"


def show() -> None:
    """The page."""
    found = run_page("Rejects")
    _quarantined(found.run)
    if not found.rejected:
        st.success("Every stretch that looked like a record was read.", icon=":material/check:")
        return
    own, run = asked(found.run)
    rows = records(own, _REJECTS, [run, found.run_index, ROWS])
    st.caption(f"{rejects_text(found.rejected)} and could not be read: that counts in no figure."
               + (f" The first {ROWS} are shown." if found.rejected > ROWS else ""))
    picked = ticked([{"read at": shown(row["path"]), "line": row["line"], "reason": row["reason"], "text": row["text"]} for row in rows], "rejects",
                    "reject", [f"{Path(row['path']).name}:{row['line'] or row['offset_bytes']}" for row in rows])
    if picked is None:
        st.caption("Tick a row to see its whole text and the lines around it.")
        return
    st.code(rows[picked]["text"] or "", language=None, wrap_lines=True)
    origin(Source(rows[picked]["path"], rows[picked]["line"]))


def _quarantined(run: str) -> None:
    own, name = asked(run)
    rows = records(own, _QUARANTINED, [name, ROWS])
    if rows:
        st.warning(f"{len(rows)} file{'s' * (len(rows) > 1)} of this run could not be read.", icon=":material/report:")
        st.dataframe([{"file": shown(row["path"]), "reason": shown(row["reason"] or "")} for row in rows], hide_index=True)


show()
