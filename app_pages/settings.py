"""Settings: what this session counts with and how it shows sizes, and what the app runs with.

What a person sets here is the session's own and goes with it; how the app runs is the operator's, and is only told.
"""

from __future__ import annotations

import os
import sys

import streamlit as st

from analysis.capacity import given_capacity
from app_pages._header import capacity_field
from app_pages._lakes import lake_root, own_root
from app_pages._shared import SERVER_ROOT, safe, section, told_errors
from app_pages._table import EXACT
from ingest.installation import compiled, versions
from ingest.lake import default_root


def show() -> None:
    """The page."""
    st.header("Settings", anchor=False)
    left, right = st.columns(2, gap="large")
    with left:
        _sizes()
        _theme()
        _device_memory()
    with right:
        _runs_with()


def _sizes() -> None:
    section("Sizes")
    st.toggle("Exact bytes in place of GiB", key=EXACT, persist_state="session", help="In the tables and figures of all pages, for this session")
    st.caption("Sentences keep their rounded figures; the exact ones stand in the tables beside them.")


def _theme() -> None:
    section("Light and dark")
    st.caption("The app follows the browser. The menu \N{VERTICAL ELLIPSIS} at the top right chooses: System, Light or Dark.")


def _device_memory() -> None:
    section("Device memory")
    given = capacity_field()
    if not given:
        st.caption("As the artifacts tell it. A size given here wins on all pages, and goes with every link.")
        return
    with told_errors():
        found = given_capacity(given)
        st.caption(safe(f"All pages count with {found.capacity_bytes:,} bytes for each device."))


def _runs_with() -> None:
    section("This app runs with")
    offered = os.environ.get(SERVER_ROOT)
    told = {"lake": default_root(), "this session looks at": "its own uploads" if lake_root() == own_root() else "the lake",
            "paths on the server": offered or "not offered", "upload limit": f"{st.config.get_option('server.maxUploadSize'):,} MiB a file",
            "listens on": str(st.config.get_option("server.address") or "every address"), "sign-in": _sign_in(), "python": sys.version.split()[0],
            **{package: found or "not installed" for package, found in versions().items()}, "compiled readers": compiled()}
    st.dataframe([{"what": name, "is": value} for name, value in told.items()], hide_index=True, height="content", key="runs_with")


def _sign_in() -> str:
    return "OpenID Connect" if st.secrets.load_if_toml_exists() and "auth" in st.secrets else "off: whoever reaches the app may use it"


show()
