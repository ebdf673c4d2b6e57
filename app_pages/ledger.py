"""Ledger: what each stage should hold, class by class, beside what was measured, and where the gap goes, to the byte."""

from __future__ import annotations

import altair as alt
import streamlit as st

from analysis.ledger_rows import CLASSES, PART_COLOURS, fullest, part_rows, stage_rows
from analysis.reconcile import Gap, Ledger
from analysis.rows import Overview
from analysis.verdict import size_text
from app_pages._header import run_page
from app_pages._shared import gib, safe, section

STAGES = 64


def show() -> None:
    """The page."""
    found = run_page("Ledger")
    ledger = found.ledger
    if ledger is None or not ledger.expected.stages:
        reason = ledger.expected.reason if ledger else None
        st.info(safe(f"No ledger: {reason or 'the arguments are not known'}."), icon=":material/help:")
        return
    _stages(ledger)
    _gaps(found, ledger)
    _differences(ledger)
    _classes(ledger)
    _assumptions(ledger)


def _stages(ledger: Ledger) -> None:
    section("Expected at the peak, by stage and class; the mark is the fullest measured rank")
    rows = [row for row in stage_rows(ledger) if int(row["stage"]) < STAGES]
    names = [name for name, _, _ in CLASSES if any(row["class"] == name for row in rows)]
    colours = {name: colour for name, colour, _ in CLASSES}
    order = {name: at for at, name in enumerate(names)}
    bars = alt.Chart(alt.InlineData(values=[{**row, "order": order[row["class"]]} for row in rows])).mark_bar().encode(
        y=alt.Y("stage:N", title="stage", sort=None), x=alt.X("gib:Q", title="GiB", stack="zero"), order="order:Q",
        color=alt.Color("class:N", title=None, sort=names, scale=alt.Scale(domain=names, range=[colours[name] for name in names]),
                        legend=alt.Legend(orient="bottom", columns=4)),
        tooltip=["stage:N", "class:N", alt.Tooltip("gib:Q", title="GiB", format=".2f"), alt.Tooltip("bytes:Q", format=","), "instant:N"])
    measured = [{"stage": str(one.stage), "gib": (one.max_allocated_bytes or 0) / 2**30, "bytes": one.max_allocated_bytes, "rank": one.rank}
                for one in fullest(ledger) if one.stage is not None]
    marks = alt.Chart(alt.InlineData(values=measured)).mark_tick(thickness=3, size=22, color="#C00000").encode(
        y=alt.Y("stage:N", sort=None), x="gib:Q", tooltip=["rank:Q", alt.Tooltip("gib:Q", title="measured peak, GiB", format=".2f"),
                                                           alt.Tooltip("bytes:Q", format=",")])
    stages = min(STAGES, len(ledger.expected.stages))
    st.altair_chart(alt.layer(bars, marks).properties(height=170 + 30 * stages), alt="Expected bytes of each stage by class beside the measured peak")


def _gaps(found: Overview, ledger: Ledger) -> None:
    if not ledger.gaps:
        st.info(safe(found.not_measurable.get("gap", "no rank's peak is known")), icon=":material/help:")
        return
    against = ledger.gaps[0].against
    section(f"Where the gap to the {against} {'total' if against == 'printed' else 'peak'} goes")
    top = fullest(ledger)[:STAGES]
    rows = part_rows(top)
    names = list(dict.fromkeys(row["part"] for row in rows))
    chart = alt.Chart(alt.InlineData(values=rows)).mark_bar().encode(
        y=alt.Y("rank:N", title=None, sort=None), x=alt.X("gib:Q", title="GiB", stack="zero"),
        color=alt.Color("part:N", title=None, sort=names, legend=alt.Legend(orient="bottom", columns=6),
                        scale=alt.Scale(domain=names, range=[PART_COLOURS[name.replace(" ", "_")] for name in names])),
        tooltip=["rank:N", "part:N", alt.Tooltip("gib:Q", title="GiB", format="+.2f"), alt.Tooltip("bytes:Q", format="+,")])
    st.altair_chart(chart.properties(height=170 + 30 * len(top)), alt="The parts of the gap of each stage's fullest rank")
    st.dataframe([_gap(one) for one in ledger.gaps[:2000]], hide_index=True, placeholder="-", key="gaps",
                 column_config={name: st.column_config.NumberColumn(format="%.2f") for name in _gap(ledger.gaps[0]) if name.endswith("GiB")})
    for text in dict.fromkeys(f"{name.replace('_', ' ')}: {reason}" for one in ledger.gaps for name, reason in one.missing.items()):
        st.caption(safe(f"Not measurable, {text}"))


def _gap(one: Gap) -> dict[str, float | int | None]:
    sizes = {"steady": one.allocated_bytes, "steady, expected": one.expected_steady_bytes, "peak": one.max_allocated_bytes,
             "peak, expected": one.expected_peak_bytes, "gap": one.gap_bytes, **{name.replace("_", " "): size for name, size in one.parts.items()}}
    return {"rank": one.rank, "stage": one.stage, **{f"{name}, GiB": gib(size) for name, size in sizes.items()}}


def _differences(ledger: Ledger) -> None:
    if not ledger.differences:
        return
    section("Why the first and the last stage differ from the one beside them")
    for one in ledger.differences:
        measured = "" if one.measured_bytes is None else f", measured {size_text(one.measured_bytes)}"
        parts = "; ".join(f"{name.replace('_', ' ')} {size_text(size)}" for name, size in list(one.classes.items())[:6])
        st.write(safe(f"Stage {one.stage} should peak {size_text(one.expected_bytes)} above stage {one.neighbour}{measured}: {parts}."))


def _classes(ledger: Ledger) -> None:
    with st.expander("Every class of every stage, in bytes"):
        names = list(dict.fromkeys(name for row in ledger.expected.stages.values() for name in (*row.classes, *row.peak_classes)))
        st.dataframe([{"stage": stage, "class": name.replace("_", " "), "after a step": row.classes.get(name),
                       "at the peak": row.peak_classes.get(name)} for stage, row in sorted(ledger.expected.stages.items())[:STAGES] for name in names
                      if row.classes.get(name) or row.peak_classes.get(name)], hide_index=True, placeholder="-", key="classes",
                     column_config={name: st.column_config.NumberColumn(format="localized") for name in ("after a step", "at the peak")})


def _assumptions(ledger: Ledger) -> None:
    if ledger.expected.assumptions:
        with st.expander(f"Assumed ({len(ledger.expected.assumptions)})"):
            for text in ledger.expected.assumptions:
                st.text(text)


show()
