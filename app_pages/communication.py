"""Communication: what NCCL and its kin hold on each rank outside torch, beside what was measured there, and by communicator."""

from __future__ import annotations

from typing import Any

import streamlit as st

from analysis.charts.communication import communication_bars
from analysis.communication.rows import Communication, CommunicatorUse, RankCommunication
from analysis.verdict import size_text
from app_pages._header import run_page
from app_pages._origin import origin
from app_pages._picture import picture
from app_pages._shared import gib, mib, place, safe, section
from app_pages._table import opened


def show() -> None:
    """The page."""
    overview = run_page("Communication")
    found = overview.communication
    if found is None:
        st.info(safe(overview.not_measurable.get("communication", "nothing was printed")), icon=":material/cell_tower:")
        return
    _warnings(found)
    _ranks(found)
    _communicators(found)
    _settings(found)
    for said in found.assumptions:
        st.caption(safe(f"Assumed: {said}."))


def _warnings(found: Communication) -> None:
    for one in found.late:
        if one.exceeds:
            st.error(safe(f"Set up after the first step on rank {one.rank}: a communicator of {one.ranks} ranks may need "
                          f"{size_text(one.upper_bytes)}, and {size_text(one.headroom_bytes)} was left."), icon=":material/schedule:")
            origin(one.source)
    for warned in found.warnings:
        st.warning(safe(warned.sentence), icon=":material/report:")
        if warned.source:
            origin(warned.source)


def _ranks(found: Communication) -> None:
    section("By rank, with what was measured outside torch", "outside torch", "CUDA context")
    if not found.ranks:
        st.info("No log shows a communicator: run with NCCL_DEBUG=INFO.", icon=":material/visibility_off:")
        return
    picture(communication_bars(found.ranks), "communication")
    st.caption("The mark is device used minus reserved: it also holds the CUDA context, library code and other processes.")
    rows = [_rank(one) for one in found.ranks]
    empty = {name for name in rows[0] if all(row[name] is None for row in rows)}
    opened([{name: value for name, value in row.items() if name not in empty} for row in rows], "communication_ranks", "rank",
           [row["rank"] for row in rows], [(one.source,) for one in found.ranks])


def _rank(one: RankCommunication) -> dict[str, Any]:
    return {"rank": str(one.rank) if one.rank is not None else one.who, "communicators": one.communicators, "lower, GiB": gib(one.lower_bytes),
            "estimate, GiB": gib(one.estimate_bytes), "upper, GiB": gib(one.upper_bytes), "DeepEP, GiB": gib(one.deepep_bytes),
            "HCCL, GiB": gib(one.hccl_bytes), "outside torch, GiB": gib(one.outside_bytes), "unexplained, GiB": gib(one.unexplained_bytes),
            "ALLOC lines, GiB": gib(one.allocated_bytes), "on the host, GiB": gib(one.host_bytes),
            "read at": place(one.source) if one.source else None}


def _communicators(found: Communication) -> None:
    if not found.communicators:
        return
    section("By communicator, on the rank that holds most of it", "communicator", "channel", "NVLS")
    rows = [_use(one) for one in found.communicators]
    opened(rows, "communicators", "communicator", [f"{one.name or 'not told'}.{one.ranks}" for one in found.communicators],
           [(one.source,) for one in found.communicators], {name: "%.1f" for name in rows[0] if name.endswith("MiB")})


def _use(one: CommunicatorUse) -> dict[str, Any]:
    names = ("LL", "LL128", "Simple", "send_recv", "nvls", "sharp", "headers_and_rounding")
    return {"process group": one.name or "not told", "ranks": one.ranks, "seen on": one.seen_on, "a rank": one.communicators,
            "channels": one.channels, "estimate, MiB": mib(one.estimate_bytes), "at most, MiB": mib(one.upper_bytes),
            **{f"{name.replace('_', ' ')}, MiB": mib(one.protocols.get(name)) for name in names}, "read at": place(one.source)}


def _settings(found: Communication) -> None:
    if not found.settings and not found.versions:
        return
    with st.expander(f"Settings and versions seen ({len(found.settings) + len(found.versions)})"):
        st.dataframe([{"name": name, "value": value} for name, value in {**found.versions, **found.settings}.items()], hide_index=True)


show()
