"""Steps: which steps loaded each rank most, how often each came near its limit, and what raised reserved memory."""

from __future__ import annotations

from typing import Any

import streamlit as st

from analysis.charts import steps as step_charts
from analysis.rows import HighLoad, Near, Overview, Source
from analysis.scope import RECORDS_TO_LOOK_AT
from analysis.steps.high_load import load_places
from analysis.steps.outlook import FARTHEST, outlook
from analysis.steps.step_heat import step_heat
from analysis.steps.step_levels import step_levels
from analysis.verdict import size_text
from app_pages._address import linked_number
from app_pages._header import run_page
from app_pages._kept import kept
from app_pages._picture import picture
from app_pages._shared import asked, gib, mib, place, safe, section
from app_pages._table import Made, opened, table

_LEVELS = ("stable", "occasional", "insufficient", "undetermined", "clear")


def show() -> None:
    """The page."""
    found = run_page("Steps")
    _classes(found)
    _fullest(found)
    _heat(found)
    _loads(found)
    _outlook(found)
    _phases(found)
    _risers(found)


def _classes(found: Overview) -> None:
    section("How often each rank came near its limit", "near", "stable", "insufficient")
    if not found.near_limit:
        st.info("No rank's number is known: nothing can be counted.", icon=":material/help:")
        return
    counts = {level: sum(one.near == level for one in found.near_limit) for level in _LEVELS}
    for column, (level, count) in zip(st.columns(len(_LEVELS)), counts.items(), strict=True):
        column.metric(level, count)
    order = sorted(found.near_limit, key=lambda one: (_LEVELS.index(one.near), -(one.near_steps or 0), one.rank or 0))
    at = {one.rank: (one.source, one.peak_source) for one in found.ranks}
    opened(Made(order, _class), "classes", "rank", [str(one.rank) for one in order], [at.get(one.rank, ()) for one in order])


def _class(one: Near) -> dict[str, Any]:
    chance = None if one.low is None or one.high is None else f"{one.low:.1%} to {one.high:.1%}"
    return {"rank": one.rank, "class": one.near, "by": {"hard": "live bytes", "cache": "cached", None: None}[one.kind], "near steps": one.near_steps,
            "of": one.steps, "chance of a step, 95 %": chance, "hard headroom, MiB": mib(one.headroom_hard_bytes),
            "soft headroom, MiB": mib(one.headroom_soft_bytes), "retries in steps": one.touched_steps, "why": one.reason, "steps chosen": one.rule}


def _fullest(found: Overview) -> None:
    section("Which rank is the fullest, and whether that moves")
    top = found.fullest
    if top is None:
        st.info(safe(found.not_measurable.get("fullest", "")), icon=":material/help:")
        return
    st.markdown(f"**{safe(top.sentence[0].upper() + top.sentence[1:])}.**")
    st.caption(f"Compared over {top.rule}, read on up to {top.ranks_read} ranks; peaks within 20 MiB of the largest are as full.")
    if top.moves:
        picture(step_charts.fullest_line(top), "fullest")
    if top.ranks:
        table([{"rank": one.rank, "fullest in steps": one.steps, "share": f"{one.share:.0%}", "largest peak then, GiB": gib(one.peak_bytes)}
               for one in top.ranks], "fullest")


def _heat(found: Overview) -> None:
    section("What was left, rank by step", "hard headroom", "soft headroom")
    cells = kept("heat", found, lambda: step_heat(*asked(found.run), found.run_index, found.ranks, RECORDS_TO_LOOK_AT))
    if not cells:
        st.info("No step has a peak beside a known headroom: log memory every step and --log-device-memory-used.", icon=":material/grid_off:")
        return
    picture(step_charts.step_map(cells), "headroom-by-step")
    st.caption("The darker, the less was left; a cross marks a step near the limit.")


def _loads(found: Overview) -> None:
    section("Steps of high load", "high-load step")
    if reason := found.not_measurable.get("high_load_steps"):
        st.info(safe(reason), icon=":material/help:")
        return
    loads = found.high_loads
    opened(Made(loads, _load), "loads", "load", [str(one.rank) for one in loads], Made(loads, lambda one: _fullest_lines(found, one)),
           shows="the lines of its steps with the most tokens")


def _load(one: HighLoad) -> dict[str, Any]:
    return {"rank": one.rank, "rule": one.rule, "threshold, MiB": mib(one.threshold_bytes), "median, MiB": mib(one.median_bytes),
            "most, MiB": mib(one.most_bytes), "high": len(one.steps), "of": one.of_steps,
            "steps": ", ".join(map(str, one.steps[:40])) + (" ..." if len(one.steps) > 40 else "")}


def _fullest_lines(found: Overview, one: HighLoad) -> tuple[Source, ...]:
    return kept(f"load places of rank {one.rank}", found, lambda: load_places(*asked(found.run), found.run_index, one.rank, one.steps))


def _outlook(found: Overview) -> None:
    section("The next steps", "Wilson interval")
    seen = max((one.measured_steps or 0 for one in found.near_limit), default=0)
    if not seen:
        st.info("No step's own peak is known: nothing can be said of the next.", icon=":material/help:")
        return
    linked_number("ahead", 1, FARTHEST * seen)
    steps = st.number_input("Steps ahead", 1, FARTHEST * seen, seen, key="ahead", bind="query-params",
                            help=f"At most {FARTHEST} times the {seen} steps seen")
    ahead = outlook(found, int(steps))
    st.caption("If the next steps are like those seen: nothing drifts and nothing is changed. Bounds at 95 %.")
    table(Made(sorted(ahead.ranks, key=lambda one: -(one.near_high or 0)), lambda one: {
        "rank": one.rank, "near the limit": _between(one.near_low, one.near_high), "dies, at most": _share(one.die_high),
        "a peak above all seen": _share(one.higher_peak), "not said, because": one.refused}), "outlook")
    if ahead.tail:
        st.caption(safe(f"Tail of stage {ahead.tail_stage}: " + (ahead.tail.refused or
                   f"one step of a rank passes {size_text(ahead.tail.limit_bytes)} with chance {ahead.tail.low:.1e} to {ahead.tail.high:.1e}")))


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def _between(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{low:.1%} to {high:.1%}"


def _phases(found: Overview) -> None:
    section("Peaks by phase")
    if not found.phase_peaks:
        st.info("No reading is labelled with a phase and no event of the job stands beside one.", icon=":material/help:")
        return
    opened([{"phase": one.phase, "rank": one.rank, "iteration": one.iteration, "peak, GiB": gib(one.peak_bytes),
             "known": "its own" if one.exact else "at most", "training peak, GiB": gib(one.training_bytes),
             "over training, GiB": gib(one.over_bytes), "told by": one.told_by, "readings": one.readings,
             "read at": place(one.source)} for one in found.phase_peaks], "phases", "phase",
           [f"{one.phase}.{one.rank}" for one in found.phase_peaks], [(one.source,) for one in found.phase_peaks])


def _risers(found: Overview) -> None:
    section("Reserved staircase", "staircase", "fragmentation")
    if not found.risers:
        st.info(safe(found.not_measurable.get("staircase", "Reserved memory never rose after its first reading.")), icon=":material/stairs:")
        return
    rises: dict[int, int] = {}
    for one in found.risers:
        rises[one.rank] = rises.get(one.rank, 0) + one.rise_bytes
    shown = st.selectbox("Rank", sorted(rises, key=lambda rank: (-rises[rank], rank)), key="stairs",
                         help="The rank whose reserved memory rose most stands first")
    levels = kept(f"levels of rank {shown}", found, lambda: step_levels(*asked(found.run), found.run_index, shown, RECORDS_TO_LOOK_AT))
    picture(step_charts.staircase(levels, [one for one in found.risers if one.rank == shown]), "staircase")
    if len(rises) > 1:
        picture(step_charts.riser_dots(found.risers), "rises")
    opened(Made(found.risers, lambda one: {
        "rank": one.rank, "iteration": one.iteration, "rise, GiB": gib(one.rise_bytes), "kind": one.kind,
        "peak rose, GiB": gib(one.peak_rise_bytes), "coincided with": ", ".join(one.coincided), "read at": place(one.source)}), "risers", "step",
        [f"{one.iteration}.{one.rank}" for one in found.risers], [(one.source,) for one in found.risers])


show()
