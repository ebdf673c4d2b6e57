"""The head of each page of a run: its title, and one line that says which run this is and how it stands.

The line is the overview's own figures, made once and cached: verdict, least headroom, how many ranks were measured, the branch of the formula.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import streamlit as st

from analysis.capacity import given_capacity
from analysis.overview import overview
from analysis.rows import Level, Overview, Rank
from analysis.scope import RECORDS_TO_LOOK_AT
from analysis.verdict import WORDS
from app_pages._address import chosen_run, note, of_run
from app_pages._shared import DEVICE_MEMORY, asked_of, attempts_of, lake_root, lake_version, place, safe, told_errors
from app_pages._table import size

Colour = Literal["red", "orange", "green", "blue", "gray"]
MARKS: dict[Level, tuple[str, Colour]] = {
    "oom": ("dangerous", "red"), "near": ("warning", "orange"), "clear": ("check_circle", "green"), "insufficient": ("hourglass_empty", "blue"),
    "undetermined": ("help", "gray"), "unknown": ("visibility_off", "gray")}
"""Icon and colour of each verdict, one for all pages; the words beside them carry the meaning alone."""


@st.cache_resource(max_entries=32, show_spinner="Reading the run")
def _overview(root: str, version: str, run: str, run_index: int, capacity: str) -> Overview:
    """Shared by all sessions as it is, which its frozen rows allow: a copy for each page of a run of 4,096 ranks would take 0.2 s.

    Its run is called as in the list of runs, so that links and what is kept of it tell clusters apart.
    """
    given = given_capacity(capacity) if capacity else None
    return replace(overview(*asked_of(root, version, run), run_index, capacity=given, records_at_most=RECORDS_TO_LOOK_AT,
                            attempts=attempts_of(root, version, run)), run=run)


def run_page(title: str) -> Overview:
    """Title and line of a page of the run chosen in the sidebar, and its overview; ends the page where there is none."""
    st.header(title, anchor=False)
    run, run_index = chosen_run()
    capacity()
    found = overview_of(run, run_index)
    line(found)
    return found


def overview_of(run: str, run_index: int) -> Overview:
    """The overview of one attempt with the device memory of this session; ends the page where that is none."""
    with told_errors():
        return read_overview(run, run_index)
    st.stop()


def read_overview(run: str, run_index: int) -> Overview:
    """The same; raises LedgerError where the device memory is none."""
    return _overview(lake_root(), lake_version(), run, run_index, st.session_state.get(DEVICE_MEMORY, ""))


def capacity() -> str:
    """The device memory that all pages count with, as a person gave it; empty where the artifacts tell."""
    with st.sidebar:
        return capacity_field()


def capacity_field() -> str:
    """The field for it: in the sidebar of a run's pages, and among the settings; one value, held in the address.

    It is kept here and not bound: a bound field gets its value back only after the first run on another page, which counts without it.
    """
    start = st.query_params.get("capacity", st.session_state.get(DEVICE_MEMORY, ""))
    given = st.text_input("Device memory", start, key="capacity", placeholder="from the artifacts",
                          help="A size such as 79.2GiB, or a device such as H100-80. It wins over what the artifacts say, on all pages.").strip()
    st.session_state[DEVICE_MEMORY] = given
    note(capacity=given or None)
    return given


def line(found: Overview) -> None:
    """Run, verdict, headroom, coverage and branch in one line that wraps where the window is narrow."""
    icon, colour = MARKS[found.verdict.level]
    least = least_headroom(found)
    left = f"{size(least.soft_headroom_bytes)} least headroom" if least else "headroom not known"
    known = found.coverage
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="run_line"):
        st.badge(WORDS[found.verdict.level], icon=f":material/{icon}:", color=colour, help=safe(found.verdict.sentence))
        st.page_link("app_pages/overview.py", label=f"{safe(found.run)}, attempt {found.run_index}", icon="", help="Its overview",
                     query_params=of_run(found.run, found.run_index))
        st.caption(left, width="content", help=headroom_told(found, least))
        st.caption(f"{len(known.measured)} of {known.world_size or '?'} ranks measured", width="content", help=safe(known.sentence))
        st.caption(safe(f"branch {found.branch.card.branch}" if found.branch else "branch not known"), width="content",
                   help="Which formula of Megatron printed the footprint: see the page Theory")


def no_branch(found: Overview) -> str:
    """Why a run has no branch of the formula."""
    if found.ledger is None or not found.ledger.expected.stages:
        return "Neither a printed footprint nor arguments are in the artifacts: the branch cannot be told."
    return ("No footprint was printed, or its lines were not logged: there is no branch to tell. "
            "The arguments are known: the page Ledger counts what each stage should hold.")


def least_headroom(found: Overview) -> Rank | None:
    """The rank with the least soft headroom; null where none is known."""
    known = (one for one in found.ranks if one.soft_headroom_bytes is not None)
    return min(known, key=lambda one: one.soft_headroom_bytes or 0, default=None)


def headroom_told(found: Overview, least: Rank | None) -> str:
    """The least headroom to the byte and where it was read, or why it is not known."""
    if least is None:
        return safe(found.not_measurable.get("headroom", "not measured"))
    return f"{least.soft_headroom_bytes:,} bytes, {safe(f'{least.name}, {place(least.source)}')}"
