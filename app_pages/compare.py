"""Compare: two runs side by side: what changed, the bytes each change explains, expected and measured memory, findings that came and went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from analysis.charts.diff import class_bars, explained_bars, measured_bars
from analysis.diff.compare import diff, side
from analysis.diff.rows import Change, Diff, Side, Size
from app_pages._address import note, place_of
from app_pages._header import read_overview
from app_pages._picture import picture
from app_pages._shared import DEVICE_MEMORY, asked, attempts, gib, lake_root, lake_version, none_yet, place, safe, section, told_errors
from app_pages._table import opened, table

_NAMED = {"allocated_bytes": "allocated", "max_allocated_bytes": "peak allocated", "max_reserved_bytes": "max reserved",
          "outside_bytes": "outside torch", "device_used_bytes": "device used", "weight_and_optimizer_bytes": "weights and optimizer",
          "activation_bytes": "activations", "total_bytes": "total"}


def show() -> None:
    """The page."""
    st.header("Compare", anchor=False)
    names = [f"{row['run']}#{row['run_index']}" for row in attempts()]
    if not names:
        none_yet()
        return
    before, after = _chosen(names)
    with told_errors():
        found = _diff(lake_root(), lake_version(), before, after, st.session_state.get(DEVICE_MEMORY, ""))
    for text in found.sentences:
        st.write(safe(text))
    if not found.differs:
        st.info("Nothing differs in what is known of both.", icon=":material/equal:")
    _changes(found)
    _measured(found)
    _expected(found)
    _findings(found)
    if found.not_comparable:
        with st.expander(f"What cannot be compared ({len(found.not_comparable)})"):
            for name, reason in found.not_comparable.items():
                st.text(f"{name}: {reason}")


def _chosen(names: Sequence[str]) -> tuple[str, str]:
    """The two attempts, in the address of the page so that a link keeps them; the run looked at last beside the one read before it at first."""
    left, right = st.columns(2)
    looked_at = f"{st.session_state.get('run')}#{st.session_state.get('attempt')}"
    newer = names.index(looked_at) if looked_at in names else 0
    older = newer + 1 if newer + 1 < len(names) else max(0, newer - 1)
    before = left.selectbox("Before", names, index=_index(names, "before", older))
    after = right.selectbox("After", names, index=_index(names, "after", newer))
    if (st.query_params.get("before", before), st.query_params.get("after", after)) != (before, after):
        note(changed=None)
    note(before=before, after=after)
    for column, name in ((left, before), (right, after)):
        run, _, attempt = name.rpartition("#")
        column.page_link("app_pages/overview.py", label="Open this run", icon=":material/grid_view:", query_params={"run": run, "attempt": attempt})
    return before, after


def _index(names: Sequence[str], which: str, default: int) -> int:
    at = place_of(which, names)
    return default if at is None else at


@st.cache_resource(max_entries=32, show_spinner="Comparing")
def _diff(root: str, version: str, before: str, after: str, capacity: str) -> Diff:
    """Shared as the overviews are that it sets beside each other: those of the runs' own pages, which count with the same device memory."""
    return diff(*map(_side, (before, after)))


def _side(name: str) -> Side:
    run, _, attempt = name.rpartition("#")
    return side(*asked(run), read_overview(run, int(attempt)))


def _changes(found: Diff) -> None:
    section("What changed, by the bytes it explains on the fullest stage", "expected")
    if not found.changes:
        st.caption("No argument, variable or version that both sides tell.")
        return
    shown = [one for one in found.changes if one.explains_bytes and one.name not in found.explained.layout[1:]]
    if shown:
        picture(explained_bars(shown), "explained")
    opened([_change(one) for one in found.changes], "changes", "changed", [f"{one.kind}.{one.name}" for one in found.changes],
           [(one.before_source, one.after_source) for one in found.changes], {"explains, GiB": "%+.2f"})


def _change(one: Change) -> dict[str, Any]:
    return {"explains, GiB": gib(one.explains_bytes), "kind": one.kind, "name": one.name, "before": one.before, "after": one.after,
            "note": one.reason, "read at, before": place(one.before_source) if one.before_source else None,
            "read at, after": place(one.after_source) if one.after_source else None}


def _measured(found: Diff) -> None:
    section("Measured, fullest rank of each stage")
    peaks = [one for one in found.measured if one.what == "max_allocated_bytes"]
    if not peaks:
        st.info(safe(found.not_comparable.get("measured", "no peak is known")), icon=":material/help:")
        return
    picture(measured_bars(peaks), "measured")
    _sizes((*found.measured, *found.theory), "measured")


def _expected(found: Diff) -> None:
    section("Expected at the peak, by class", "peak", "resident", "activations")
    if not found.expected:
        st.info(safe(found.not_comparable.get("expected", "the arguments are not known")), icon=":material/help:")
        return
    drawn = class_bars(found.expected)
    if drawn.rows:
        picture(drawn, "expected")
    _sizes(found.expected, "expected")


def _sizes(sizes: Sequence[Size], key: str) -> None:
    shown = [{"where": one.where, "what": _NAMED.get(one.what, one.what.replace("_", " ")), "before, GiB": gib(one.before_bytes),
              "after, GiB": gib(one.after_bytes), "change, GiB": gib(one.change_bytes), "change, bytes": one.change_bytes} for one in sizes]
    table(shown, key, {"change, GiB": "%+.2f", "change, bytes": "localized"})


def _findings(found: Diff) -> None:
    for title, rows in (("Findings that appeared", found.appeared), ("Findings that are gone", found.gone)):
        if rows:
            section(title)
            st.dataframe([{"severity": one.severity, "confidence": one.confidence, "finding": one.sentence} for one in rows], hide_index=True)


show()
