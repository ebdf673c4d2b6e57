"""Start: bring the artifacts of a run, watch them come in, and choose a run."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import streamlit as st

from analysis.verdict import size_text
from app_pages._findings import worst
from app_pages._header import line, read_overview
from app_pages._lakes import SHARED, look_at, target
from app_pages._shared import SERVER_ROOT, attempts, called, run_names, safe, section, shown, told_errors
from app_pages._table import Made, table
from app_pages._upload import Folder, Job, free_name, spool, under_root
from ingest.errors import LedgerError
from ingest.lake import default_root
from ingest.workers import warm

SAMPLES = Path(__file__).resolve().parent.parent / "sample_data"
LINKS = 5
"""Runs of one upload that the page offers to open; all of them stand in the list."""
NEWEST = 12
"""Attempts that the page lists; older ones stand in a table below."""
_STAGES = {"look": "Looking through the files", "read": "Reading", "commit": "Writing to the lake"}


def show() -> None:
    """The page."""
    _ready()
    st.title("HBM Ledger")
    st.write("What Megatron-LM said a run would use, what every rank really used, and how close it came to its limit.")
    left, right = st.columns([5, 6], gap="large")
    with left:
        _bring()
    with right:
        _recent()


@st.cache_resource(show_spinner=False)
def _ready() -> None:
    """While people choose their files, what reads them starts, and what draws them is imported."""
    warm()
    threading.Thread(target=lambda: [import_module(name) for name in ("ingest.pipeline", "analysis.snapshot.charts")], daemon=True).start()


def _bring() -> None:
    section("Bring a run")
    job: Job | None = st.session_state.get("job")
    if job is not None and job.running:
        _watch()
        return
    if job is not None:
        _ended(job)
    _unpublished()
    root = os.environ.get(SERVER_ROOT)
    kinds = ["Files or archive", "Folder", *(["Path on the server"] if root else [])]
    kind = st.segmented_control("What to bring", kinds, default=kinds[0], required=True, label_visibility="collapsed")
    with st.form("bring", border=True):
        given: Any = _field(str(kind), root)
        run = st.text_input("Run name", placeholder="from the file or folder", help="Files of one run brought later join it under the same name.")
        publish = st.toggle("Publish to the lake", help="For everybody who opens this app. Else only this session sees it, until you publish it.")
        if st.form_submit_button("Read it", type="primary", icon=":material/play_arrow:"):
            with told_errors():
                _start(given, run.strip() or None, root if kind == "Path on the server" else None, publish)
    if SAMPLES.is_dir() and st.button("Try the sample runs", icon=":material/science:", type="tertiary"):
        _begin(Job(sorted(path for path in SAMPLES.iterdir() if any(path.glob("*.log"))), target(publish=False)))


def _field(kind: str, root: str | None) -> Any:
    number = st.session_state.get("uploads", 0)
    if kind == "Path on the server":
        return st.text_input(f"Path below {safe(root or '')}", placeholder="job_1234/logs")
    if kind == "Folder":
        return st.file_uploader("A folder of logs, memory_stats files or snapshots", accept_multiple_files="directory", key=f"folder{number}")
    return st.file_uploader("Logs, memory_stats files, or a zip or tar of them; gz, zst, xz and bz2 are opened", accept_multiple_files=True,
                            key=f"files{number}")


def _start(given: Any, run: str | None, root: str | None, publish: bool) -> None:
    if not given:
        st.warning("Choose something to read first.", icon=":material/upload_file:")
        return
    if root is not None:
        path, folder, name = under_root(given, root), None, run
    else:
        folder = st.session_state.setdefault("folder", Folder())
        with st.spinner("Writing the upload to disk"):
            path = spool(given, folder.path, run_names())
        alone = path.name if len(given) == 1 and path.is_dir() else None  # else a rank in a single file's name would be taken out of the run's
        name = run or alone
        st.session_state["uploads"] = st.session_state.get("uploads", 0) + 1
    _begin(Job([path], target(publish), name, folder, named=run is not None))


def _begin(job: Job) -> None:
    if job.lake != default_root():
        st.session_state.setdefault("unpublished", []).append(job)
    st.session_state["job"] = job.start()
    st.rerun()


def _unpublished() -> None:
    """What only this session sees, each with the way to the lake that everybody shares."""
    waiting: list[Job] = [job for job in st.session_state.get("unpublished", []) if job.summary is not None and job.summary.runs]
    if not waiting:
        return
    section("Only you see")
    for number, job in enumerate(waiting):
        names = ", ".join(list(job.summary.runs)[:5]) + (" and more" if len(job.summary.runs) > 5 else "")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(shown(names))
            if st.button("Publish to the lake", key=f"publish{number}", icon=":material/publish:"):
                st.session_state["unpublished"].remove(job)
                look_at(SHARED)
                _begin(Job(job.paths, default_root(), _published_name(job), job.folder, job.named))


def _published_name(job: Job) -> str | None:
    """The name under which a run joins the shared lake: another one where somebody took its own meanwhile and nobody chose it."""
    runs = job.summary.runs
    return job.run if job.named or len(runs) != 1 else free_name(runs[0], run_names(own=False))


@st.fragment(run_every=0.5)
def _watch() -> None:
    """Stage, bytes and rate of the ingest under way, and a way to stop it."""
    job: Job = st.session_state["job"]
    if not job.running:
        st.rerun()
    with st.status(_STAGES.get(job.stage, "Waiting for the first file"), expanded=True):
        share = min(1.0, job.done_bytes / job.total_bytes) if job.total_bytes and job.stage == "read" else 0.0
        read = f"{size_text(job.done_bytes)} of {size_text(job.total_bytes)}, {size_text(job.rate_bytes)}/s"
        st.progress(share, {"read": read, "look": f"{size_text(job.done_bytes)} so far"}.get(job.stage, " "))
        st.text(shown(job.path) or " ")
        if st.button("Cancel", icon=":material/close:", disabled=job.stop.is_set()):
            job.stop.set()
    if job.stop.is_set():
        st.caption("Stopping after the piece being read; what was committed stays.")
    elif job.runs:
        st.caption("What is read so far can be opened; the rest is read meanwhile, and this page goes on to tell of it.")
    for run in job.runs[:LINKS]:
        st.page_link("app_pages/overview.py", label=f"Open {safe(run)} as far as it is read", icon=":material/grid_view:", query_params={"run": run})


def _ended(job: Job) -> None:
    if job.error:
        st.error(safe(shown(job.error)), icon=":material/error:")
        return
    summary = job.summary
    said = _counts(summary)
    if summary.cancelled:
        st.warning(f"Stopped. {said} Bring the same again to go on.", icon=":material/front_hand:")
    elif summary.problems:
        st.warning(said, icon=":material/rule:")
    elif not any(summary.rows.values()) and not (summary.files_grown or summary.files_unchanged):
        st.warning(f"{said} Nothing in it looks like a record of a run: is it the log of the ranks that print, and whole?", icon=":material/rule:")
    else:
        st.success(said, icon=":material/check:")
    for path, sentence in summary.problems[:20]:
        st.text(f"{shown(str(path))}: {shown(sentence)}")
    if len(summary.problems) > 20:
        st.caption(f"and {len(summary.problems) - 20} more")
    if summary.problems:
        st.caption("Each file fails alone: the others are in. Mend these, or leave them out, and bring them under the same run name; "
                   "what was read is not read twice.")
    for run in list(summary.runs)[:LINKS]:
        st.page_link("app_pages/overview.py", label=f"Open {safe(run)}", icon=":material/grid_view:", query_params={"run": run})
        if summary.rows.get("snapshots"):
            st.page_link("app_pages/snapshot.py", label=f"Snapshots of {safe(run)}", icon=":material/photo_camera:", query_params={"run": run})
    if len(summary.runs) == 1:
        _lead(summary.runs[0])


def _lead(run: str) -> None:
    """Where one run came in: its verdict and its worst finding at once, so that the cause is one click away."""
    run = called(run, cluster="default")
    last = max((row["run_index"] for row in attempts() if row["run"] == run), default=None)
    if last is None:
        return
    with suppress(LedgerError), st.container(border=True):
        found = read_overview(run, last)
        line(found)
        worst(found, 1)


def _counts(summary: Any) -> str:
    counts = [(summary.files_new, "new"), (summary.files_grown, "grown"), (summary.files_unchanged, "read before"),
              (summary.files_quarantined, "could not be read"), (summary.files_unknown, "of an unknown kind")]
    told = ", ".join(f"{count:,} {word}" for count, word in counts if count) or "nothing new"
    seen = f"{summary.files_seen:,} file{'s' * (summary.files_seen != 1)}"
    return f"{seen}: {told}. {sum(summary.rows.values()):,} records, {summary.rejects:,} rejects, in {summary.seconds:.1f} s."


def _recent() -> None:
    section("Runs")
    found = attempts()
    if not found:
        st.info("No run in this lake yet. Bring one, or try the samples.", icon=":material/inbox:")
        return
    several = Counter(row["run"] for row in found)
    for row in found[:NEWEST]:
        _entry(row, named=several[row["run"]] > 1)
    if len(found) > NEWEST:
        with st.expander(f"All {len(found):,} attempts"):
            _all(found)


def _entry(row: dict[str, Any], *, named: bool) -> None:
    """One attempt: a link that the keyboard reaches too, and below it what tells runs apart."""
    with st.container(gap=None):
        st.page_link("app_pages/overview.py", label=safe(f"{row['run']}, attempt {row['run_index']}" if named else row["run"]),
                     icon=":material/grid_view:", query_params={"run": row["run"], "attempt": str(row["run_index"])})
        sizes, steps = _sizes(row), _steps(row)
        told = [f"{row['ranks_seen']} of {row['world_size'] or '?'} ranks", *([sizes] if sizes != "-" else []),
                *([f"iterations {steps}"] if steps != "-" else []), *([f"{row['rejects']:,} rejects"] if row["rejects"] else []),
                *([f"read {row['ingested_at']:%Y-%m-%d %H:%M}"] if row["ingested_at"] else [])]
        st.caption(safe(", ".join(told)))


def _all(found: list[dict[str, Any]]) -> None:
    config = {"read": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm"), "attempt": st.column_config.NumberColumn(width="small")}
    chosen = table(Made(found, _listed), "recent", column_config=config, on_select="rerun", selection_mode="single-row")
    st.caption("Tick a row to open its overview.")
    if picked := chosen.selection.rows:
        row = found[picked[0]]
        st.switch_page("app_pages/overview.py", query_params={"run": row["run"], "attempt": str(row["run_index"])})


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    return {"run": row["run"], "attempt": row["run_index"], "sizes": _sizes(row), "ranks seen": f"{row['ranks_seen']} of {row['world_size'] or '?'}",
            "iterations": _steps(row), "rejects": row["rejects"], "read": row["ingested_at"]}


def _sizes(row: dict[str, Any]) -> str:
    return " ".join(f"{name.upper()}{row[name]}" for name in ("tp", "pp") if row[name]) or "-"


def _steps(row: dict[str, Any]) -> str:
    return "-" if row["last_iteration"] is None else f"{row['first_iteration']} to {row['last_iteration']}"


show()
