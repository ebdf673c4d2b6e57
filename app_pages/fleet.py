"""Fleet: history over all runs of the lake: how measured memory lies over theory, who came near the limit and when, errors, drift, hardware."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from analysis.charts.fleet import error_bars, near_bars, ratio_boxes
from analysis.fleet.answers import RUNS_SHOWN, VERDICTS, Filters, Fleet, History, Row
from analysis.verdict import WORDS
from app_pages._address import known, of_run
from app_pages._picture import kept_rows, picture
from app_pages._shared import called, cursor, gib, lake_root, lake_version, none_yet, safe, section, told_errors
from app_pages._table import table

ALL = "all"


def show() -> None:
    """The page."""
    st.header("Fleet", anchor=False)
    if lake_version() == "none":
        none_yet()
        return
    with told_errors():
        history = _history(lake_root(), lake_version())
        found = history.fleet(_filters(history.options()))
    if not found.attempts:
        st.info("No run fits these filters.", icon=":material/filter_alt_off:")
        return
    _counts(found)
    _runs(found)
    _ratios(found)
    _near(found)
    _ooms(found)
    _drifts(found)
    _hardware(found)


@st.cache_resource(max_entries=2, show_spinner="Asking the fleet")
def _history(root: str, version: str) -> History:
    return History(cursor())


def _filters(choices: dict[str, list[str]]) -> Filters:
    """Four boxes, kept in the address of the page."""
    chosen: dict[str, str] = {}
    for column, name in zip(st.columns(4), ("cluster", "month", "family", "gpu"), strict=True):
        listed = [ALL, *choices[name]]
        known(name, listed)
        chosen[name] = column.selectbox({"gpu": "GPU"}.get(name, name.capitalize()), listed, key=name, bind="query-params")
    return Filters(**{name: value for name, value in chosen.items() if value != ALL})


def _counts(found: Fleet) -> None:
    with st.container(horizontal=True, gap="medium"):
        st.metric("Attempts", f"{found.attempts:,}", width="content")
        st.metric("Ranks measured", f"{found.ranks_measured:,}", width="content")
        for verdict in VERDICTS:
            if count := found.verdicts.get(verdict):
                st.metric(WORDS[verdict], f"{count:,}", width="content")


def _runs(found: Fleet) -> None:
    section("Attempts, worst first")
    _table("runs", found.runs, lambda row: {
        "run": row["run"], "attempt": row["run_index"], "cluster": row["cluster"], "verdict": WORDS[row["verdict"]], "family": row["family"],
        "GPU": row["gpu"], "ranks": row["world_size"], "measured": row["ranks_measured"], "fullest rank": row["fullest_rank"],
        "stage": row["fullest_stage"], "peak, GiB": gib(row["peak_bytes"]), "soft headroom, GiB": gib(row["soft_headroom_bytes"]),
        "hard headroom, GiB": gib(row["hard_headroom_bytes"]), "errors": row["ooms"], "first day": row["first_day"], "last day": row["last_day"]})
    if found.attempts > RUNS_SHOWN:
        st.caption(f"The worst {RUNS_SHOWN:,} of {found.attempts:,} are listed; a filter or the SQL page shows others.")


def _ratios(found: Fleet) -> None:
    section("Measured peak over theory, by family", "printed footprint", "expected", "family")
    if not found.ratios:
        st.info("No attempt has a measured rank beside a printed or an expected figure.", icon=":material/function:")
        return
    picture(ratio_boxes(found.ratios), "ratios-by-family")
    st.caption("Each stage of each attempt counts once, by its fullest measured rank. The line reaches from the least to the most, the box holds the "
               "middle half, the mark is the median; right of 1 more was measured than was said.")


def _near(found: Fleet) -> None:
    section("Ranks near their limit, by day", "near", "rank-day", "stable")
    if not found.days:
        st.info("No rank's memory is known for these attempts.", icon=":material/visibility_off:")
        return
    picture(near_bars(found.days), "near-by-day")
    if not found.near_ranks:
        st.caption("No rank came near its limit.")
        return
    _table("near", found.near_ranks, lambda row: {
        "run": row["run"], "attempt": row["run_index"], "cluster": row["cluster"], "rank": _rank(row), "stage": row["stage"],
        "days near": row["near_days"], "of": row["days"], "records near": _between(row), "of records": row["records"],
        "soft headroom, GiB": gib(row["soft_headroom_bytes"]), "hard headroom, GiB": gib(row["hard_headroom_bytes"]), "last day": row["last_day"]})
    st.caption("Counted from daily rollups over every record; a range where the limit falls inside one step of 256 MiB, or where maxima never reset.")


def _ooms(found: Fleet) -> None:
    section("Out of memory", "counterfactual")
    if not found.ooms:
        st.caption("No error and no kill by the host in these attempts.")
        return
    picture(error_bars(found.ooms), "errors")
    _table("ooms", found.ooms, lambda row: {
        "run": row["run"], "attempt": row["run_index"], "cluster": row["cluster"], "day": row["day"], "rank": _rank(row), "stage": row["stage"],
        "iteration": row["iteration"], "case": row["oom_case"], "why": row["reason"], "asked, GiB": gib(row["requested_bytes"]),
        "free, GiB": gib(row["free_bytes"])})


def _drifts(found: Fleet) -> None:
    section("Same configuration, changed memory", "drift")
    if not found.drifts:
        st.caption("No two successive attempts of one configuration differ in memory.")
        return
    picked = _table("drifts", found.drifts, lambda row: {
        "run": row["run"], "attempt": row["run_index"], "cluster": row["cluster"], "day": row["day"], "before": row["run_before"],
        "peak, GiB": gib(row["peak_bytes"]), "change, GiB": gib(row["peak_change_bytes"]), "outside torch, GiB": gib(row["outside_change_bytes"]),
        "kind": row["kind"], "what changed": row["name"] or "nothing that the artifacts tell", "was": row["value_before"], "is": row["value_after"]})
    if picked:
        st.page_link("app_pages/compare.py", label="Compare the two", icon=":material/compare_arrows:", query_params={
            "before": f"{picked['run_before']}#{picked['run_index_before']}", "after": f"{picked['run']}#{picked['run_index']}"})


def _hardware(found: Fleet) -> None:
    section("Hardware")
    table([{"cluster": row["cluster"], "GPU": row["gpu"], "attempts": row["attempts"], "ranks measured": row["ranks_measured"],
            "out of memory": row["died"], "near": row["near"], "capacity, GiB": gib(row["capacity_bytes"]),
            "outside torch, median GiB": gib(row["median_outside_bytes"]), "most, GiB": gib(row["outside_bytes"]),
            "least headroom, GiB": gib(row["soft_headroom_bytes"])} for row in found.hardware], "hardware")
    if found.hosts:
        _table("hosts", found.hosts, lambda row: {
            "host": row["host"], "cluster": row["cluster"], "ranks": row["ranks"], "above the stage's median, GiB": gib(row["median_over_bytes"]),
            "most above, GiB": gib(row["most_over_bytes"]), "outside torch, GiB": gib(row["outside_bytes"]), "run": row["run"]})


def _table(key: str, rows: Sequence[Row], shown: Callable[[Row], dict[str, Any]]) -> Row | None:
    """A table whose ticked row leads to its run; the row ticked."""
    chosen = table([shown(row) for row in rows], key, on_select="rerun", selection_mode="single-row")
    picked = chosen.selection.rows
    kept_rows(f"fleet-{key}", lambda: rows)
    if not picked or picked[0] >= len(rows):
        st.caption("Tick a row to open its run.")
        return None
    row = rows[picked[0]]
    st.page_link("app_pages/overview.py", label=f"Open {safe(row['run'])}, attempt {row['run_index']}", icon=":material/grid_view:",
                 query_params=of_run(called(row["run"], row["cluster"]), row["run_index"]))
    return row


def _rank(row: Row) -> str:
    return str(row["rank"]) if row["rank"] is not None else row["rank_label"] or "not told"


def _between(row: Row) -> str:
    return str(row["near_least"]) if row["near_least"] == row["near_most"] else f"{row['near_least']} to {row['near_most']}"


show()
