"""Overview: the verdict on one attempt, how sure it can be, the map of its ranks, and where each figure was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import streamlit as st

from analysis.charts import ranks as charts
from analysis.charts.heat import heat_measure
from analysis.coverage import shown_ranks
from analysis.rows import Near, Overview, Rank, Source, Stage
from analysis.verdict import size_text
from app_pages._address import chosen_run, known, of_run
from app_pages._findings import worst
from app_pages._header import MARKS, capacity, headroom_told, least_headroom, no_branch, overview_of
from app_pages._origin import origin
from app_pages._picture import kept_rows, picture
from app_pages._shared import gib, place, safe, section
from app_pages._table import ROWS, Made, opened, size, table

_SIZES = (("allocated_bytes", "allocated"), ("max_allocated_bytes", "peak allocated"), ("reserved_bytes", "reserved"),
          ("max_reserved_bytes", "max reserved"), ("device_used_bytes", "device used"), ("outside_bytes", "outside torch"),
          ("capacity_bytes", "capacity"), ("soft_headroom_bytes", "soft headroom"), ("hard_headroom_bytes", "hard headroom"),
          ("headroom_bound_bytes", "headroom, at most"))
Sizes = Sequence[tuple[str, str]]
_BOXES = {"red": st.error, "orange": st.warning, "green": st.success, "blue": st.info, "gray": st.info}
TABLES = ("Ranks", "Stages")
FINDINGS = 3


def show() -> None:
    """The page."""
    run, run_index = chosen_run()
    st.header(safe(run), anchor=False)
    capacity()
    found = overview_of(run, run_index)
    icon, colour = MARKS[found.verdict.level]
    _BOXES[colour](f"**{safe(found.verdict.sentence)}**", icon=f":material/{icon}:")
    _evidence(found)
    worst(found, FINDINGS)
    _facts(found)
    _pictures(found)
    _tables(found)
    left, right = st.columns(2, gap="large")
    with left:
        _theory(found)
    with right:
        _branch(found)
    _devices(found)
    _ooms(found)
    _unknown(found)


def _evidence(found: Overview) -> None:
    places = dict.fromkeys(found.verdict.evidence)
    if places:
        with st.popover("Where this was read", icon=":material/search:", type="tertiary"):
            for source in places:
                origin(source)
    if found.ranks and all(one.capacity_bytes is None for one in found.ranks):
        st.caption("No artifact tells how much memory the devices have: give it in the sidebar to see headroom.")


def _facts(found: Overview) -> None:
    facts, known = found.configuration, found.coverage
    least = least_headroom(found)
    sizes = " ".join(f"{name}{count}" for name in ("TP", "PP", "VPP", "CP", "EP", "DP") if (count := getattr(facts, name.lower())))
    steps = "-" if facts.last_iteration is None else f"{facts.first_iteration} to {facts.last_iteration}"
    shown = [
        ("Least soft headroom", size(least.soft_headroom_bytes) if least else "not known", headroom_told(found, least)),
        ("Ranks measured", f"{len(known.measured)} of {known.world_size or '?'}", safe(known.sentence)),
        ("Sizes", sizes or "not known", safe(f"read at {place(facts.source)}") if facts.source else "not in the artifacts"),
        ("Formula branch", found.branch.card.branch if found.branch else "not known",
         "see the page Theory" if found.branch else safe(found.not_measurable.get("theory", ""))),
        ("Iterations", steps, f"of {facts.train_iterations} planned" if facts.train_iterations else "planned number not in the artifacts"),
        ("Rejects", f"{found.rejected:,}", "stretches that looked like a record and could not be read: see the page Rejects"),
    ]
    with st.container(horizontal=True, gap="medium"):
        for label, value, told in shown:
            st.metric(label, value, help=told, width="content")
    st.caption(safe(f"{known.sentence}. Ranks seen: {shown_ranks(known.ranks) or 'none'}."))


def _pictures(found: Overview) -> None:
    if not found.ranks:
        st.info(safe(found.not_measurable.get("ranks", "no rank was measured")), icon=":material/visibility_off:")
        return
    left, right = st.columns([3, 2], gap="large")
    _, words = heat_measure(found.ranks)
    with left:
        section(f"Ranks by stage: {words}", "soft headroom", "stage")
        picture(charts.heat_map(found.ranks, place, found.configuration), "ranks-by-stage")
    with right:
        section("Stages, fullest rank", "allocated", "reserved")
        picture(charts.stage_bars(found.stages), "stages")


def _tables(found: Overview) -> None:
    if not found.ranks:
        return
    known("table", TABLES)
    by = st.segmented_control("Table", TABLES, default=TABLES[0], required=True, label_visibility="collapsed", key="table", bind="query-params")
    if by == "Stages":
        _stages(found)
        return
    near = {one.rank: one for one in found.near_limit}
    ranks = found.ranks if len(found.ranks) <= ROWS else _closest_first(found.ranks)
    told = _told(ranks)
    picked = opened(Made(ranks, lambda one: _rank(one, near.get(one.rank), told)), "ranks", "rank", [_who(one) for one in ranks],
                    [(one.source, one.peak_source) for one in ranks])
    if len(ranks) <= ROWS:
        kept_rows("ranks", lambda: [_exact(one) for one in ranks])
    if picked is not None and (judged := near.get(ranks[picked].rank)):
        st.caption(safe(f"{judged.near}: {judged.reason}"))


def _exact(one: Rank) -> dict[str, Any]:
    """A rank as a file holds it: sizes in bytes, the line it was read from as text."""
    return {field.name: place(value) if isinstance(value := getattr(one, field.name), Source) else value for field in fields(one)}


def _closest_first(ranks: Sequence[Rank]) -> list[Rank]:
    """Ranks as they come to their limit, so that a table that is cut shows those; where that is not known the fullest first."""
    def left(one: Rank) -> tuple[bool, int]:
        known = one.soft_headroom_bytes
        return (False, known) if known is not None else (True, -(one.max_allocated_bytes or 0))

    st.caption("Closest to their limit first.")
    return sorted(ranks, key=left)


def _stages(found: Overview) -> None:
    told = _told(found.stages)
    table([_stage(one, told) for one in found.stages])
    for one in found.surpluses:
        sign = "above" if one.surplus_bytes >= 0 else "below"
        st.caption(f"{one.which.capitalize()} stage, {dict(_SIZES)[one.measure]}: {size(abs(one.surplus_bytes))} ({abs(one.surplus_ratio):.1%}) "
                   f"{sign} the median of {one.middle_stages} middle stages, {size(one.middle_bytes)}.")
    if reason := found.not_measurable.get("surpluses") or found.not_measurable.get("stages"):
        st.caption(safe(reason))


def _told(rows: Sequence[Rank | Stage]) -> Sizes:
    """The sizes that any of the rows has."""
    return [(name, words) for name, words in _SIZES if any(getattr(row, name) is not None for row in rows)]


def _who(one: Rank) -> str:
    return str(one.rank) if one.rank is not None else one.rank_label or "?"


def _rank(one: Rank, near: Near | None, told: Sizes) -> dict[str, Any]:
    often = None if near is None or near.near_steps is None else f"{near.near_steps} of {near.steps}"
    return {"rank": _who(one), "stage": "?" if one.stage is None else str(one.stage), **_sizes(one, told), "limit": near.near if near else None,
            "steps near": often, "iteration": one.iteration, "scope": one.scope, "read at": place(one.source)}


def _stage(one: Stage, told: Sizes) -> dict[str, Any]:
    return {"stage": "?" if one.stage is None else str(one.stage), "ranks measured": one.ranks, **_sizes(one, told), "holds": one.holds}


def _sizes(one: Rank | Stage, told: Sizes) -> dict[str, Any]:
    return {f"{words}, GiB": gib(getattr(one, name)) for name, words in told}


def _theory(found: Overview) -> None:
    section("Printed theory", "printed footprint")
    theory = found.theory
    if theory is None:
        st.info(safe(found.not_measurable.get("theory", "no footprint was printed")), icon=":material/function:")
        return
    if theory.compared:
        picture(charts.theory_bars(theory.compared), "printed-beside-measured")
        for one in theory.compared:
            who = "an unnamed rank" if one.rank is None else f"rank {one.rank}"
            st.caption(safe(f"{one.printed}: {who} measured {size_text(one.measured_bytes)} ({one.measured}), {one.ratio:.2f} times the printed "
                            f"{size_text(one.printed_bytes)}; {place(one.source)}"))
    times = f"{theory.times_printed} time{'s' * (theory.times_printed > 1)}"
    with st.expander(safe(f"As printed, {times}, the last at {place(theory.source)}")):
        st.code(theory.text or "", language=None, wrap_lines=True)


def _branch(found: Overview) -> None:
    section("Formula branch", "branch", "generation")
    if found.branch is None:
        st.info(no_branch(found), icon=":material/account_tree:")
        return
    card = found.branch.card
    st.write(f"**{safe(card.branch)}**, {safe(card.confidence)}" + (f"; generations {safe(', '.join(card.generations))}" if card.generations else ""))
    for one in card.evidence[:4]:
        st.caption(safe(f"{one.kind}: {one.sentence}"))
    for left in sorted(card.left_out, key=lambda one: -abs(one.bytes))[:3]:
        st.caption(safe(f"left out {size_text(left.bytes)} on the {left.stage} stage: {left.name}"))
    st.page_link("app_pages/theory.py", label="Evidence and everything left out", icon=":material/function:",
                 query_params=of_run(found.run, found.run_index))


def _devices(found: Overview) -> None:
    if not found.devices:
        return
    section("Devices, each at its fullest reading")
    opened([{"host": one.host, "device": one.device, "rank": one.rank, "name": one.device_name, "used, GiB": gib(one.used_bytes),
             "total, GiB": gib(one.total_bytes), "left, GiB": gib(one.left_bytes), "source": one.source, "readings": one.readings,
             "read at": place(one.read_at)} for one in found.devices], "devices", "device",
           [f"{one.host}.{one.device}" for one in found.devices], [(one.read_at,) for one in found.devices])


def _ooms(found: Overview) -> None:
    if not found.ooms:
        return
    section("Out of memory", "counterfactual")
    for one in found.ooms[:8]:
        who = f"rank {one.rank}" if one.rank is not None else one.rank_label or "rank not told"
        numbers = ", ".join(f"{name.removesuffix('_bytes').replace('_', ' ')} {size_text(size)}" for name, size in one.numbers.items())
        st.write(safe(f"{who}: {numbers or 'no number in the message'}"))
        st.code(one.text or "", language=None, wrap_lines=True)
        st.caption(safe(f"{place(one.source)}; case {one.case}: {one.reason}"))


def _unknown(found: Overview) -> None:
    with st.expander(f"Not measurable from these artifacts ({len(found.not_measurable)})"):
        for name, reason in found.not_measurable.items():
            st.text(f"{name.replace('_', ' ')}: {reason}")


show()
