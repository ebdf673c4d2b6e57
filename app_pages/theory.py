"""Theory: which formula printed the footprint, the evidence, and what it left out for this run."""

from __future__ import annotations

import streamlit as st

from analysis import charts
from analysis.rows import Branch, Overview
from analysis.verdict import size_text
from app_pages._origin import origin
from app_pages._shared import chosen_overview, gib, safe, section


def show() -> None:
    """The page."""
    found = chosen_overview()
    st.header("Printed theory", anchor=False)
    st.caption(safe(f"{found.run}, attempt {found.run_index}"))
    if found.branch is None:
        st.info("Neither a printed footprint nor arguments are in the artifacts: the branch cannot be told.", icon=":material/account_tree:")
        return
    _branch(found.branch)
    _evidence(found.branch)
    _left_out(found.branch)
    _printed(found)


def _branch(branch: Branch) -> None:
    card = branch.card
    with st.container(horizontal=True, gap="medium"):
        st.metric("Branch applied", card.branch, width="content")
        st.metric("Confidence", card.confidence, width="content")
        st.metric("Generations", ", ".join(card.generations) or "not decided", width="content",
                  help="Versions of the formula that print this very text")
        if card.other_branch and card.other_branch.total_bytes is not None:
            st.metric(f"The other branch ({card.other_branch.branch})", size_text(card.other_branch.total_bytes), width="content",
                      help=f"{card.other_branch.total_bytes:,.0f} bytes in total, for the same arguments")
    if card.releases:
        st.caption(safe(f"In releases {', '.join(card.releases)}"))


def _evidence(branch: Branch) -> None:
    section("Evidence")
    base = branch.source.line if branch.source else None
    for one in branch.card.evidence:
        at = "" if one.line is None or base is None else f" (line {base + one.line - 1})"
        st.text(f"{one.kind}: {one.sentence}{at}")
    for clash in branch.card.contradictions:
        at = "" if clash.argument_line is None else f" (argument on line {clash.argument_line})"
        st.warning(safe(clash.sentence + at), icon=":material/report:")


def _left_out(branch: Branch) -> None:
    left_out = sorted(branch.card.left_out, key=lambda one: -abs(one.bytes))
    section("What the formula left out for this run")
    if not left_out:
        st.caption("Nothing, or the arguments needed to count it are not in the artifacts.")
        return
    st.altair_chart(charts.left_out_bars(left_out), alt="Bars of what the formula left out, in GiB")
    rows = [{"effect": one.name, "GiB": gib(one.bytes), "bytes": one.bytes, "stage": one.stage, "why": one.sentence} for one in left_out]
    st.dataframe(rows, hide_index=True, column_config={"GiB": st.column_config.NumberColumn(format="%+.2f"),
                                                       "bytes": st.column_config.NumberColumn(format="localized")})
    st.caption("Estimates of one effect each, on the stage named; they overlap and are not meant to be added up.")


def _printed(found: Overview) -> None:
    section("As printed")
    if found.theory is None:
        st.caption(safe(found.not_measurable.get("theory", "no footprint was printed")))
        return
    st.code(found.theory.text or "", language=None, wrap_lines=True)
    origin(found.theory.source)


show()
