"""Theory: which formula printed the footprint, its terms with this run's numbers, the evidence, what it left out, and the last stage's head."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from analysis.charts import ranks as charts
from analysis.charts.theory import last_stage_bars, term_bars
from analysis.rows import Branch, Overview, Source
from analysis.theory.last_stage import LastStage
from analysis.theory.terms import Part, Term, symbols_of
from analysis.verdict import size_text
from app_pages._header import no_branch, run_page
from app_pages._origin import located, origin
from app_pages._picture import picture
from app_pages._shared import gib, safe, section
from app_pages._table import table

_BYTES = {"GiB": "%.3f", "bytes": "localized"}


def show() -> None:
    """The page."""
    found = run_page("Printed theory")
    if found.branch is None:
        st.info(no_branch(found), icon=":material/account_tree:")
        _printed(found)
    else:
        _branch(found.branch)
        _formula(found.branch)
        _evidence(found, found.branch)
        _left_out(found.branch)
        _printed(found)
    if found.logits is not None:
        _last_stage(found.logits)


def _branch(branch: Branch) -> None:
    card = branch.card
    with st.container(horizontal=True, gap="medium"):
        st.metric("Branch applied", card.branch, width="content")
        st.metric("Confidence", card.confidence, width="content")
        st.metric("Generations", ", ".join(card.generations) or "not decided", width="content",
                  help="Versions of the formula that print this very text")
    if card.releases:
        st.caption(safe(f"In releases {', '.join(card.releases)}"))


def _formula(branch: Branch) -> None:
    """The terms of the branch that was applied, a bar of them, and the other branch beside it."""
    card = branch.card
    section("The formula with this run's numbers", "printed footprint", "most loaded shard")
    if not card.terms:
        st.caption("The arguments that would fill the formula are not in the artifacts, or do not give the printed text.")
        return
    own, other = st.columns((3, 2), gap="large")
    with own:
        st.markdown(f"**{safe(card.branch)}**, as {safe(card.generations[-1])} counts it")
        _terms(card.terms, "as printed")
    with other:
        _other_branch(branch)
    picture(term_bars(card.terms), "formula-terms")
    st.caption(safe(", ".join(f"{name} = {meaning}" for name, meaning in symbols_of(card.terms).items())))


def _other_branch(branch: Branch) -> None:
    other = branch.card.other_branch
    if other is None:
        return
    st.markdown(f"**{safe(other.branch)}**, what the other branch would have said")
    if other.total_bytes is None:
        st.caption("It prints no number in this generation.")
        return
    _terms(other.terms, "as it would print")
    st.text(f"weight and optimizer, the same; total: {other.total_bytes:,.0f} B = {size_text(other.total_bytes)}")


def _terms(found: Sequence[Term], how: str) -> None:
    """Each part: its sum in words a reader can compare with the printed line, and its terms in a table."""
    for part in ("weight_and_optimizer", "activation"):
        own = sorted((term for term in found if term.part == part), key=lambda term: -term.bytes)
        if own:
            st.text(f"{_sum_of(part, own)} {how}")
            table([{"term": term.name.replace("_", " "), "GiB": gib(term.bytes), "symbols": term.symbols, "numbers": term.numbers,
                    "bytes": term.bytes} for term in own], formats=_BYTES)


def _sum_of(part: Part, own: Sequence[Term]) -> str:
    total = math.fsum(term.bytes for term in own)
    return f"{part.replace('_', ' ')}: {' + '.join(f'{term.bytes:,.0f}' for term in own)} = {total:,.0f} B = {total / 2**20:.2f} MB"


def _evidence(found: Overview, branch: Branch) -> None:
    """Reasons and contradictions, each over the line that shows it."""
    section("Evidence")
    lines = (found.theory.text or "").splitlines() if found.theory else []
    for one in branch.card.evidence:
        _reason(f"{one.kind}: {one.sentence}", None if branch.source is None or one.line is None or one.line > len(lines) else
                located(branch.source, lines[one.line - 1]))
    dumped = found.configuration.source
    for clash in branch.card.contradictions:
        st.warning(safe(clash.sentence), icon=":material/report:")
        if clash.argument_line is not None and dumped is not None:
            _reason(f"the argument {clash.argument}", Source(dumped.artifact, clash.argument_line))


def _reason(words: str, source: Source | None) -> None:
    if source is None:
        st.text(words)
        return
    with st.expander(safe(words)):
        origin(source)


def _left_out(branch: Branch) -> None:
    left_out = sorted(branch.card.left_out, key=lambda one: -abs(one.bytes))
    section("What the formula left out for this run", "left out")
    if not left_out:
        st.caption("Nothing, or the arguments needed to count it are not in the artifacts.")
        return
    picture(charts.left_out_bars(left_out), "left-out")
    rows = [{"effect": one.name, "GiB": gib(one.bytes), "bytes": one.bytes, "stage": one.stage, "why": one.sentence} for one in left_out]
    table(rows, formats={"GiB": "%+.2f", "bytes": "localized"})
    st.caption("Estimates of one effect each, on the stage named; they overlap and are not meant to be added up.")


def _last_stage(found: LastStage) -> None:
    """Predicted head against the measured surplus, with its parts."""
    section("Last stage: output weight, logits and loss", "logits", "tied embeddings")
    st.markdown(f"**{safe(found.verdict.replace('_', ' '))}**: {safe(found.reason)}")
    if found.surplus_low_bytes is not None and found.surplus_high_bytes is not None:
        picture(last_stage_bars(found.parts, (found.surplus_low_bytes, found.surplus_high_bytes)), "last-stage")
    if found.parts:
        rows = [{"part": part.name.replace("_", " "), "when": part.when, "of": part.of, "low GiB": gib(part.low_bytes),
                 "high GiB": gib(part.high_bytes)} for part in found.parts]
        table(rows, formats={"low GiB": "%.3f", "high GiB": "%.3f"})
    for sentence in found.assumptions:
        st.caption(safe(sentence))


def _printed(found: Overview) -> None:
    section("As printed")
    if found.theory is None:
        st.caption(safe(found.not_measurable.get("theory", "no footprint was printed")))
        return
    st.code(found.theory.text or "", language=None, wrap_lines=True)
    origin(found.theory.source)


show()
