"""Ledger: what each stage should hold, class by class, beside what was measured, and where the gap goes, to the byte."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from analysis.charts.ledger import gap_bars, ledger_bars
from analysis.charts.ledger_rows import fullest
from analysis.expected.origin import Line, class_origin, meanings
from analysis.reconcile import Gap, Ledger
from analysis.rows import Overview
from analysis.verdict import size_text
from app_pages._header import run_page
from app_pages._origin import as_sum
from app_pages._picture import picture
from app_pages._shared import gib, safe, section
from app_pages._table import ROWS, Made, opened, ticked

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
    section("Expected at the peak, by stage and class; the mark is the fullest measured rank", "expected", "peak", "in flight")
    picture(ledger_bars(ledger), "expected-by-class")


def _gaps(found: Overview, ledger: Ledger) -> None:
    if not ledger.gaps:
        st.info(safe(found.not_measurable.get("gap", "no rank's peak is known")), icon=":material/help:")
        return
    against = ledger.gaps[0].against
    section(f"Where the gap to the {against} {'total' if against == 'printed' else 'peak'} goes", "gap", "resident", "cached")
    top = fullest(ledger)[:STAGES]
    picture(gap_bars(top), "gap")
    _rows(found, ledger.gaps if len(ledger.gaps) <= ROWS else tuple(sorted(ledger.gaps, key=lambda one: -(one.max_allocated_bytes or 0))))
    for text in dict.fromkeys(f"{name.replace('_', ' ')}: {reason}" for one in ledger.gaps for name, reason in one.missing.items()):
        st.caption(safe(f"Not measurable, {text}"))


def _rows(found: Overview, gaps: tuple[Gap, ...]) -> None:
    """Every measured rank; the ticked one as a sum, with the lines its memory was read from."""
    at = {one.rank: (one.source, one.peak_source) for one in found.ranks}
    picked = opened(Made(gaps, _gap), "gaps", "rank", [str(one.rank) for one in gaps], [at.get(one.rank, ()) for one in gaps])
    if picked is not None:
        one = gaps[picked]
        as_sum(f"gap of rank {one.rank} over the {one.against} {one.base_bytes:,} B",
               {name: size for name, size in one.parts.items() if size is not None}, one.gap_bytes)


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
    with st.expander("Every class of every stage, in bytes", expanded="class" in st.query_params):
        names = list(dict.fromkeys(name for row in ledger.expected.stages.values() for name in (*row.classes, *row.peak_classes)))
        listed = [(stage, row, name) for stage, row in sorted(ledger.expected.stages.items())[:STAGES] for name in names
                  if row.classes.get(name) or row.peak_classes.get(name)]
        rows = [{"stage": stage, "class": name.replace("_", " "), "after a step": row.classes.get(name), "at the peak": row.peak_classes.get(name)}
                for stage, row, name in listed]
        picked = ticked(rows, "classes", "class", [f"{stage}.{name}" for stage, _, name in listed],
                        dict.fromkeys(("after a step", "at the peak"), "localized"))
        if picked is None:
            st.caption("Tick a row to see its stage as a sum, and how its class came about.")
        else:
            stage, row, name = listed[picked]
            as_sum(f"stage {stage} after a step", row.classes, row.steady_allocated_bytes)
            as_sum(f"stage {stage} at its peak, {row.peak_instant.replace('_', ' ')}", row.peak_classes, row.peak_allocated_bytes)
            _class(ledger, stage, name)


def _class(ledger: Ledger, stage: int, name: str) -> None:
    """How the one class of the ticked row came about; once where it holds the same at both instants."""
    found, what = class_origin(ledger.expected, stage, name), f"{name.replace('_', ' ')} of stage {stage}"
    peak = f"at its peak, {found.instant.replace('_', ' ')}"
    if found.after_step == found.at_peak:
        _lines(f"{what} after a step and {peak}", found.at_peak)
    else:
        _lines(f"{what} after a step", found.after_step)
        _lines(f"{what} {peak}", found.at_peak)
    if symbols := meanings((*found.after_step, *found.at_peak)):
        st.caption(safe("; ".join(f"{name}: {meaning}" for name, meaning in symbols.items())))


def _lines(what: str, lines: Sequence[Line]) -> None:
    """Lines that add up to the byte, each in symbols and in numbers; nothing where the class holds nothing then."""
    if lines:
        shown = [f"{line.bytes:+17,} B  {line.what}" + (f": {line.symbols} = {line.numbers}" if line.symbols else "") for line in lines]
        st.code("\n".join((*shown, f"{sum(line.bytes for line in lines):17,} B  = {what}")), language=None, wrap_lines=True)


def _assumptions(ledger: Ledger) -> None:
    if ledger.expected.assumptions:
        with st.expander(f"Assumed ({len(ledger.expected.assumptions)})"):
            for text in ledger.expected.assumptions:
                st.text(text)


show()
