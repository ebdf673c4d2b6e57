"""What a page works out of a run beyond its overview: once for all readers of one version of the lake, kept in a bounded number.

A page's script runs again for each click; what depends on the run and the device memory alone is not worked out again for it. What is kept is shared
as it is: pages read it and change nothing in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import streamlit as st

from analysis.rows import Overview
from app_pages._shared import DEVICE_MEMORY, lake_root, lake_version

KEPT = 128
"""Results, of all pages and runs; the ones asked for longest ago go first."""
T = TypeVar("T")


def kept(what: str, found: Overview, how: Callable[[], T]) -> T:
    """The result of `how`, which is called where nobody asked `what` of this run, lake and device memory before."""
    given = str(st.session_state.get(DEVICE_MEMORY) or "")
    return cast(T, _result(what, lake_root(), lake_version(), found.run, found.run_index, given, how))


@st.cache_resource(max_entries=KEPT, show_spinner="Working it out")
def _result(what: str, root: str, version: str, run: str, run_index: int, capacity: str, _how: Callable[[], T]) -> T:
    return _how()
