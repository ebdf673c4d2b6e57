"""Which lake a session looks at: the one that everybody shares, or its own, in which its uploads stay until it publishes them.

A session's own lake lies in a temporary folder of its own and goes with the session, as its uploads do. What the pages cache is keyed by the
lake's place, so that no session is ever shown another's.
"""

from __future__ import annotations

import streamlit as st

from app_pages._upload import Folder
from ingest.lake import default_root

SHARED, OWN = "Lake", "Only mine"


def lake_root() -> str:
    """The lake this session looks at."""
    return own_root() or default_root() if st.session_state.get("view") == OWN else default_root()


def own_root() -> str | None:
    """The session's own lake, once there is one."""
    folder: Folder | None = st.session_state.get("own")
    return str(folder.path / "lake") if folder else None


def target(publish: bool) -> str:
    """The lake that an upload goes to; the session looks at it from now on."""
    if not publish and "own" not in st.session_state:
        st.session_state["own"] = Folder()
    look_at(SHARED if publish else OWN)
    return lake_root()


def look_at(view: str) -> None:
    """Show one lake or the other from the next run of the script on."""
    st.session_state["view"] = view
    st.session_state["views"] = st.session_state.get("views", 0) + 1


def choose() -> None:
    """The choice, in the sidebar of a session that has a lake of its own."""
    if own_root() is None:
        return
    current = st.session_state.get("view", SHARED)
    chosen = st.sidebar.segmented_control("Runs of", (SHARED, OWN), default=current, required=True, key=f"view{st.session_state.get('views', 0)}",
                                          help="What you brought and did not publish is shown to this session alone, and goes with it.")
    if chosen != current:
        st.session_state["view"] = chosen
        st.rerun()
