"""Plan: change a setting and see each stage before and after, and what every single change would save on the fullest rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from analysis.charts.plan import plan_bars, tornado
from analysis.plan.change import Plan, Sensitivity
from analysis.plan.run import offload_of, plan_of, sensitivities_of
from analysis.rows import Overview
from analysis.theory.arguments import native
from app_pages._address import PLANNED, linked_number, note, place_of
from app_pages._header import run_page
from app_pages._kept import kept
from app_pages._origin import as_sum
from app_pages._picture import picture
from app_pages._shared import asked, gib, safe, section, told_errors
from app_pages._table import size, table, ticked

if TYPE_CHECKING:
    import duckdb

RECOMPUTE: dict[str, dict[str, Any]] = {
    "as it is": {}, "none": {"recompute_granularity": None, "recompute_modules": None},
    "selective: core attention": {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]},
    "selective: experts' activation": {"recompute_granularity": "selective", "recompute_modules": ["moe_act"]},
    "selective: MoE layers": {"recompute_granularity": "selective", "recompute_modules": ["moe"]},
    "selective: dense MLP": {"recompute_granularity": "selective", "recompute_modules": ["mlp"]},
    "full": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1, "recompute_modules": None},
}


def show() -> None:
    """The page."""
    found = run_page("Plan")
    if found.ledger is None or not found.ledger.expected.stages:
        reason = found.ledger.expected.reason if found.ledger else None
        st.info(safe(f"No plan: {reason or 'the arguments are not known'}."), icon=":material/help:")
        return
    st.caption("The run's own difference from the expected ledger is kept.")
    changes, device = _asked(found)
    with told_errors():
        _answer(plan_of(found, changes, device or None))
    _sensitivity(found)
    _offload(found)


def _asked(found: Overview) -> tuple[dict[str, Any], str]:
    """The changes and another device, at first those of the address; fields of one run keep nothing of another's."""
    assert found.ledger is not None
    args, changes, scope = found.ledger.expected.args, {}, f"{found.run} {found.run_index}"
    columns = st.columns(3)
    for at, name in enumerate(PLANNED):
        now = args.get(name)
        start = now if isinstance(now, int) and now > 0 else 1
        given = columns[at % 3].number_input(name.replace("_", " "), min_value=1, value=linked_number(name, 1) or start, key=f"{name} {scope}")
        note(**{name: None if given == start else str(given)})
        if given != now and not (now is None and given == 1):
            changes[name] = int(given)
    left, middle, right = st.columns(3)
    ways = list(RECOMPUTE)
    way = left.selectbox("recompute", ways, index=place_of("recompute", ways) or 0, key=f"recompute {scope}")
    device = middle.text_input("another device", st.query_params.get("on", ""), placeholder="as it is", key=f"on {scope}",
                               help="H200, B200, or a size such as 139.8GiB").strip()
    text = right.text_input("anything else", st.query_params.get("set", ""), placeholder="decoder_last_pipeline_num_layers=7", key=f"set {scope}")
    note(recompute=None if way == ways[0] else way, on=device or None, set=text.strip() or None)
    for pair in text.split():
        name, mark, value = pair.partition("=")
        if mark:
            changes[name.lstrip("-").replace("-", "_")] = native(value)
    return changes | RECOMPUTE[way], device


def _answer(one: Plan) -> None:
    columns = st.columns(4)
    columns[0].metric(f"Fullest stage {one.fullest_stage}", size(one.fullest_bytes), size(-one.saved_bytes) if one.saved_bytes else None,
                      delta_color="inverse")
    columns[1].metric("Before", size(one.before_bytes))
    columns[2].metric("Verdict", one.fits)
    columns[3].metric("Micro-batches", one.microbatches)
    st.caption(", ".join(f"{name.upper()} {count}" for name, count in one.sizes.items() if name != "world_size"))
    picture(plan_bars(one), "plan")
    picked = ticked([{"stage": stage.stage, "peak, GiB": gib(stage.peak_bytes), "low, GiB": gib(stage.low_bytes), "high, GiB": gib(stage.high_bytes),
                      "before, GiB": gib(stage.before_bytes), "saved, GiB": gib(stage.saved_bytes), "fits": stage.fits,
                      "peaks at": stage.peak_instant.replace("_", " ")} for stage in one.stages], "stages", "stage",
                    [str(stage.stage) for stage in one.stages])
    if picked is None:
        st.caption("Tick a stage to see its peak as a sum.")
        return
    stage = one.stages[picked]
    as_sum(f"stage {stage.stage} at its peak", {**stage.classes, "the run's own difference": stage.residual_bytes}, stage.peak_bytes)


def _in_its_cluster(found: Overview) -> tuple[duckdb.DuckDBPyConnection, Overview]:
    own, run = asked(found.run)
    return own, replace(found, run=run)


def _sensitivity(found: Overview) -> None:
    section("What each single change would save or cost on the fullest rank")
    rows = kept("single changes", found, lambda: sensitivities_of(*_in_its_cluster(found)))
    if any(row.saved_bytes for row in rows):
        picture(tornado(rows), "single-changes")
    table([_row(row) for row in rows], "sensitivity")


def _offload(found: Overview) -> None:
    rows = kept("offload", found, lambda: offload_of(*_in_its_cluster(found)))
    if not rows:
        return
    section("What offload would move each step", "offload")
    shown = [{"class": one.what, "stage": one.stage, "frees, GiB": gib(one.freed_bytes), "moves a step, GiB": gib(one.moved_bytes),
              "over": one.link, "seconds": one.seconds, "share of the step": one.share} for one in rows]
    table(shown, "offload", {"seconds": "%.2f", "share of the step": "percent"})
    st.caption("A share above 100 % cannot hide behind the step; below it hides only where the work does not wait for it.")


def _row(row: Sensitivity) -> dict[str, Any]:
    return {"change": row.sentence, "saves, GiB": gib(row.saved_bytes), "not here": row.refused, "computation": row.computation,
            "communication": row.communication, "effort": row.complexity, "fails when": row.fails_when}


show()
