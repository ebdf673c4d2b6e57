"""Steps: which steps loaded each rank most, how often each came near its limit, and what raised reserved memory."""

from __future__ import annotations

from typing import Any

import altair as alt
import streamlit as st

from analysis.heat import BLUE, GIB, ORANGE
from analysis.outlook import FARTHEST, outlook
from analysis.rows import Near, Overview
from analysis.scope import RECORDS_TO_LOOK_AT
from analysis.step_heat import step_heat
from analysis.verdict import size_text
from app_pages._header import run_page
from app_pages._shared import cursor, gib, place, safe, section

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
    section("How often each rank came near its limit")
    if not found.near_limit:
        st.info("No rank's number is known: nothing can be counted.", icon=":material/help:")
        return
    counts = {level: sum(one.near == level for one in found.near_limit) for level in _LEVELS}
    for column, (level, count) in zip(st.columns(len(_LEVELS)), counts.items(), strict=True):
        column.metric(level, count)
    order = sorted(found.near_limit, key=lambda one: (_LEVELS.index(one.near), -(one.near_steps or 0), one.rank or 0))
    st.dataframe([_class(one) for one in order], hide_index=True, placeholder="-", key="classes")


def _class(one: Near) -> dict[str, Any]:
    chance = None if one.low is None or one.high is None else f"{one.low:.1%} to {one.high:.1%}"
    return {"rank": one.rank, "class": one.near, "by": {"hard": "live bytes", "cache": "cached", None: None}[one.kind], "near steps": one.near_steps,
            "of": one.steps, "chance of a step, 95 %": chance, "hard headroom": size_text(one.headroom_hard_bytes),
            "soft headroom": size_text(one.headroom_soft_bytes), "retries in steps": one.touched_steps, "why": one.reason, "steps chosen": one.rule}


def _fullest(found: Overview) -> None:
    section("Which rank is the fullest, and whether that moves")
    top = found.fullest
    if top is None:
        st.info(safe(found.not_measurable.get("fullest", "")), icon=":material/help:")
        return
    st.markdown(f"**{safe(top.sentence[0].upper() + top.sentence[1:])}.**")
    st.caption(f"Compared over {top.rule}, read on up to {top.ranks_read} ranks; peaks within 20 MiB of the largest are as full.")
    if top.moves:
        rows = [{"step": one.iteration, "rank": one.rank, "gib": one.peak_bytes / GIB} for one in top.moved[:2000]]
        chart = alt.Chart(alt.InlineData(values=rows)).mark_line(interpolate="step-after", point=True, color=BLUE).encode(
            x=alt.X("step:Q", title="iteration"), y=alt.Y("rank:Q", title="fullest rank", axis=alt.Axis(tickMinStep=1)),
            tooltip=["step:Q", "rank:Q", alt.Tooltip("gib:Q", title="peak, GiB", format=".2f")]).properties(height=200)
        st.altair_chart(chart, alt="The fullest rank from step to step")
    if top.ranks:
        st.dataframe([{"rank": one.rank, "fullest in steps": one.steps, "share": f"{one.share:.0%}", "largest peak then, GiB": gib(one.peak_bytes)}
                      for one in top.ranks], hide_index=True, key="fullest",
                     column_config={"largest peak then, GiB": st.column_config.NumberColumn(format="%.2f")})


def _heat(found: Overview) -> None:
    section("What was left, rank by step")
    cells = step_heat(cursor(), found.run, found.run_index, found.ranks, RECORDS_TO_LOOK_AT)
    if not cells:
        st.info("No step has a peak beside a known headroom: log memory every step and --log-device-memory-used.", icon=":material/grid_off:")
        return
    rows = [{"step": one["first_iteration"], "row": one["cell_row"], "ranks": _span(one["first_rank"], one["last_rank"]),
             "steps": _span(one["first_iteration"], one["last_iteration"]), "gib": one["headroom_bytes"] / GIB, "bytes": one["headroom_bytes"],
             "worst": f"rank {one['worst_rank']}, step {one['worst_iteration']}", "near": "near" if one["near"] else "",
             "bound": "" if one["exact"] else "at least: a maximum that never resets"} for one in cells]
    order = list(dict.fromkeys(row["ranks"] for row in rows))
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("step:O", title="iteration", axis=alt.Axis(labelOverlap=True)), y=alt.Y("ranks:N", title="rank", sort=order),
        tooltip=[alt.Tooltip("ranks:N", title="ranks"), alt.Tooltip("steps:N", title="steps"), alt.Tooltip("gib:Q", title="left, GiB", format=".2f"),
                 alt.Tooltip("bytes:Q", title="bytes", format=","), alt.Tooltip("worst:N", title="worst"), alt.Tooltip("bound:N", title="bound")])
    heat = base.mark_rect().encode(color=alt.Color("gib:Q", title="left, GiB", scale=alt.Scale(scheme="blues", reverse=True)))
    marks = base.transform_filter("datum.near == 'near'").mark_point(shape="cross", size=30, color=ORANGE, filled=True)
    st.altair_chart(alt.layer(heat, marks).properties(height=min(640, 80 + 14 * len(order))), alt="Headroom of each rank at each step")
    st.caption("The darker, the less was left; a cross marks a step near the limit. Neighbours share a cell that shows its worst.")


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _loads(found: Overview) -> None:
    section("Steps of high load")
    if reason := found.not_measurable.get("high_load_steps"):
        st.info(safe(reason), icon=":material/help:")
        return
    st.dataframe([{"rank": one.rank, "rule": one.rule, "threshold": size_text(one.threshold_bytes), "median": size_text(one.median_bytes),
                   "most": size_text(one.most_bytes), "high": len(one.steps), "of": one.of_steps,
                   "steps": ", ".join(map(str, one.steps[:40])) + (" ..." if len(one.steps) > 40 else "")} for one in found.high_loads],
                 hide_index=True, placeholder="-", key="loads")


def _outlook(found: Overview) -> None:
    section("The next steps")
    seen = max((one.measured_steps or 0 for one in found.near_limit), default=0)
    if not seen:
        st.info("No step's own peak is known: nothing can be said of the next.", icon=":material/help:")
        return
    steps = st.number_input("Steps ahead", 1, FARTHEST * seen, seen, help=f"At most {FARTHEST} times the {seen} steps seen")
    ahead = outlook(found, int(steps))
    st.caption("If the next steps are like those seen: nothing drifts and nothing is changed. Bounds at 95 %.")
    st.dataframe([{"rank": one.rank, "near the limit": _between(one.near_low, one.near_high), "dies, at most": _share(one.die_high),
                   "a peak above all seen": _share(one.higher_peak), "not said, because": one.refused} for one in ahead.ranks],
                 hide_index=True, placeholder="-", key="outlook")
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
    st.dataframe([{"phase": one.phase, "rank": one.rank, "iteration": one.iteration, "peak, GiB": gib(one.peak_bytes),
                   "known": "its own" if one.exact else "at most", "training peak, GiB": gib(one.training_bytes),
                   "over training, GiB": gib(one.over_bytes), "told by": one.told_by, "readings": one.readings,
                   "read at": place(one.source)} for one in found.phase_peaks],
                 hide_index=True, placeholder="-", key="phases",
                 column_config={name: st.column_config.NumberColumn(format="%.2f") for name in (
                     "peak, GiB", "training peak, GiB", "over training, GiB")})


def _risers(found: Overview) -> None:
    section("Reserved staircase")
    if not found.risers:
        st.info(safe(found.not_measurable.get("staircase", "Reserved memory never rose after its first reading.")), icon=":material/stairs:")
        return
    rows = [{"iteration": one.iteration, "gib": one.rise_bytes / GIB, "kind": one.kind or "not told", "rank": one.rank, "bytes": one.rise_bytes,
             "with": ", ".join(one.coincided)} for one in sorted(found.risers, key=lambda one: -one.rise_bytes)[:2000]]
    chart = alt.Chart(alt.InlineData(values=rows)).mark_point(filled=True, size=60, opacity=0.8).encode(
        x=alt.X("iteration:Q", title="iteration"), y=alt.Y("gib:Q", title="rise of reserved, GiB"),
        color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=["need", "fragmentation", "not told"], range=[BLUE, ORANGE, "#8C8C8C"])),
        tooltip=["rank:Q", "iteration:Q", "kind:N", alt.Tooltip("bytes:Q", format=","), "with:N"]).properties(height=260)
    st.altair_chart(chart, alt="Steps that raised reserved memory")
    st.dataframe([{"rank": one.rank, "iteration": one.iteration, "rise, GiB": gib(one.rise_bytes), "kind": one.kind,
                   "peak rose, GiB": gib(one.peak_rise_bytes), "coincided with": ", ".join(one.coincided),
                   "read at": place(one.source)} for one in found.risers[:2000]],
                 hide_index=True, placeholder="-", key="risers",
                 column_config={name: st.column_config.NumberColumn(format="%.2f") for name in ("rise, GiB", "peak rose, GiB")})


show()
