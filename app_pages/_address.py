"""What the address of a page holds: the run, its attempt, and what was chosen on the page, so that a link shows somebody else the same.

Widgets that Streamlit binds to the address itself (`bind="query-params"`) are left to it; it drops a value that it does not know without a word,
so `known` tells first. Run, attempt and ticked rows are kept here: Streamlit leaves a default out of the address, and the default run is the one
read last, another one tomorrow; and it binds no table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import streamlit as st

from app_pages._shared import attempts, called, none_yet, safe

PLANNED = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size", "micro_batch_size",
           "global_batch_size")
"""Sizes that a plan changes."""

OF_A_RUN = ("rank", "class", "stage", "step", "phase", "device", "communicator", "finding", "reject", "load", *PLANNED, "recompute", "on", "set")
"""What means something in one run only."""


def chosen_run() -> tuple[str, int]:
    """Run and attempt of the sidebar, the link's or the last one at first; ends the page where there is none."""
    found = attempts()
    if not found:
        none_yet()
        st.stop()
    names = list(dict.fromkeys(row["run"] for row in found))
    linked = st.query_params.get("run")
    linked = None if linked is None else called(linked)
    run = st.sidebar.selectbox("Run", names, index=_index(names, linked or st.session_state.get("run"), "run", linked is not None))
    labels = [str(one) for one in sorted(row["run_index"] for row in found if row["run"] == run)]
    wanted = st.query_params.get("attempt") if linked in (run, None) else None
    last = st.session_state.get("attempt") if run == st.session_state.get("run") else None
    attempt = st.sidebar.selectbox("Attempt", labels, index=_index(labels, wanted or last, "attempt", wanted is not None, default=-1))
    if linked not in (None, run) or wanted not in (None, attempt):
        forget()
    st.session_state["run"], st.session_state["attempt"] = run, attempt
    note(run=run, attempt=attempt)
    return run, int(attempt)


def of_run(run: str, run_index: int, **more: str) -> dict[str, str]:
    """The address of a page of this run, with the rank that was chosen in it."""
    rank = recalled("rank") if (run, str(run_index)) == _shown() else None
    return {"run": run, "attempt": str(run_index), **({"rank": rank} if rank else {}), **more}


def note(**chosen: str | None) -> None:
    """Write into the address what differs from it; null takes a name out."""
    for name, value in chosen.items():
        if value is None and name in st.query_params:
            del st.query_params[name]
    new = {name: value for name, value in chosen.items() if value is not None and st.query_params.get(name) != value}
    if new:
        st.query_params.update(new)


def forget() -> None:
    """Take out of the address what the run shown before had."""
    note(**dict.fromkeys(OF_A_RUN))


def known(name: str, options: Collection[str], what: str | None = None) -> None:
    """Say so where a link asks for something that is not there, before a widget of this key leaves it out."""
    for wanted in st.query_params.get_all(name):
        if wanted and wanted not in options:
            _told(what or name, wanted)


def linked_number(name: str, low: int, high: int | None = None) -> int | None:
    """The whole number that the link gives; null where it gives none, told where it cannot be one of these."""
    wanted = st.query_params.get(name)
    if wanted is None:
        return None
    if len(wanted) < 16 and wanted.removeprefix("-").isdecimal() and low <= int(wanted) and (high is None or int(wanted) <= high):
        return int(wanted)
    _told(name, wanted)
    return None


def place_of(name: str, options: Sequence[str]) -> int | None:
    """Where the link's choice stands among the options, or the last choice of the same run; told where the link's is not there."""
    linked = st.query_params.get(name)
    wanted = linked if linked is not None else recalled(name)
    if wanted in options:
        return options.index(wanted)
    if linked is not None:
        _told(name, linked)
        note(**{name: None})
    return None


def remember(name: str, value: str | None) -> None:
    """Keep a choice in the address and, while the session lasts, for other pages of the same run."""
    note(**{name: value})
    st.session_state.setdefault("chosen", {})[name] = (_shown(), value)


def recalled(name: str) -> str | None:
    """The last choice of this name in the run that is shown."""
    shown, value = st.session_state.get("chosen", {}).get(name, (None, None))
    return value if shown == _shown() else None


def _shown() -> tuple[str | None, str | None]:
    return st.session_state.get("run"), st.session_state.get("attempt")


def _index(options: list[str], wanted: str | None, what: str, linked: bool, default: int = 0) -> int:
    if wanted in options:
        return options.index(wanted)
    if linked and wanted is not None:
        _told(what, wanted)
    return default % len(options)


def _told(what: str, wanted: str) -> None:
    st.warning(f"The link names {what.replace('_', ' ')} {safe(wanted[:200])}, which is not there; another one is shown.", icon=":material/link_off:")
