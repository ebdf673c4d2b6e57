"""Snapshot: when a rank's memory peaked, what lived at any instant, and what the allocator did with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import streamlit as st

from analysis.capacity import given_capacity
from analysis.snapshot import charts
from analysis.snapshot.classes import ALL_RULES, main_stream
from analysis.snapshot.compare import compare
from analysis.snapshot.report import irregularities, unknown_ratio
from analysis.snapshot.segment_rows import segment_rows
from analysis.snapshot.stored import Stored, from_lake, stored
from analysis.snapshot.treemap import tiles
from analysis.snapshot.view import Device, devices
from analysis.verdict import size_text
from app_pages._address import known, linked_number, note, recalled
from app_pages._header import capacity, line, overview_of
from app_pages._picture import picture
from app_pages._shared import asked, attempts, called, cursor, gib, lake_root, lake_version, safe, section, shown, told_errors

_PARTS = ("Lived then", "Allocator", "Staircase", "Out of memory", "Too long alive", "Compare")
_CAPACITY = """
SELECT capacity_bytes FROM rank_capacity WHERE run = ? AND run_index = ? AND capacity_bytes IS NOT NULL
ORDER BY CASE WHEN rank = ? THEN 0 ELSE 1 END, capacity_bytes LIMIT 1
"""
_GIB = st.column_config.NumberColumn(format="%.3f")
_COUNT = st.column_config.NumberColumn(format="localized")


def show() -> None:
    """The page."""
    st.header("Memory snapshot", anchor=False)
    found = _found(lake_root(), lake_version()) if lake_version() != "none" else ()
    if not found:
        st.info("No memory snapshot in this lake yet. Bring a file that torch.cuda.memory._dump_snapshot wrote.", icon=":material/photo_camera:")
        st.page_link("app_pages/start.py", label="Bring a snapshot", icon=":material/upload_file:")
        return
    chosen = _chosen(found)
    head = st.container()
    with told_errors():
        device, limit = _read(chosen), _capacity(chosen)
    _facts(chosen, device)
    event = _timeline(device, limit)
    known("snapshot_part", _PARTS, "part")
    part = st.segmented_control("Part", _PARTS, default=_PARTS[0], required=True, label_visibility="collapsed", key="snapshot_part",
                                bind="query-params")
    {"Lived then": lambda: _lived(device, event), "Allocator": lambda: _allocator(device, event), "Staircase": lambda: _staircase(device),
     "Out of memory": lambda: _ooms(device), "Too long alive": lambda: _long_lived(device),
     "Compare": lambda: _compare(chosen, device, found)}[str(part)]()
    with head:  # last: the snapshot is what this page is opened for, and the run's other artifacts may take longer to read
        line(overview_of(chosen.run, chosen.run_index))


@st.cache_data(max_entries=8, show_spinner=False)
def _found(root: str, version: str) -> tuple[Stored, ...]:
    called_by_cluster = {row["run"]: row["name"] for row in attempts() if row["run"] != row["name"]}
    alone = (one for one in stored(cursor()) if one.run not in called_by_cluster.values())
    return (*alone, *(replace(one, run=run) for run, name in called_by_cluster.items() for one in stored(asked(run)[0]) if one.run == name))


def _read(chosen: Stored) -> Device:
    """The device's trace; where this session looks at it for the first time, below the frame of its timeline until it is read."""
    key = (lake_version(), chosen.artifact, chosen.device)
    frame = st.empty()
    if st.session_state.get("snapshot_read") != key:
        frame.altair_chart(charts.empty_timeline().chart, alt="The snapshot is being read")
    device = _device(lake_root(), key[0], chosen.artifact, chosen.device)
    st.session_state["snapshot_read"] = key
    frame.empty()
    return device


@st.cache_resource(max_entries=3, show_spinner="Reading the snapshot")
def _device(root: str, version: str, artifact: str, device: int) -> Device:
    return devices(from_lake(cursor(), artifact, device))[0]


def _chosen(found: tuple[Stored, ...]) -> Stored:
    """The run, file and device of the sidebar; the link's where it names one. Who looks at a run without a snapshot goes on with that run."""
    runs, without = list(dict.fromkeys(one.run for one in found)), _without(found)
    if without is not None:
        st.session_state["run"] = without
        st.session_state.pop("attempt", None)
    looked_at = st.session_state.get("run")
    run = st.sidebar.selectbox("Run", runs, index=_index(runs, "run", looked_at) if without is None else 0)
    labels = _labels([one for one in found if one.run == run])
    files = {label: artifact for artifact, label in labels.items()}
    names = list(files)
    if run != st.query_params.get("run", run):
        note(snapshot=None, device=None, event=None)
    artifact = files[st.sidebar.selectbox("Snapshot", names, index=_index(names, "snapshot", _of_rank(names)))]
    indices = [one.device for one in found if one.artifact == artifact]
    if labels[artifact] != st.query_params.get("snapshot", labels[artifact]):
        note(device=None, event=None)
    device = st.sidebar.selectbox("Device", indices, index=_index([str(one) for one in indices], "device"))
    if str(device) != st.query_params.get("device", str(device)):
        note(event=None)
    one = next(one for one in found if one.artifact == artifact and one.device == device)
    if looked_at is not None and looked_at not in runs and run == runs[0]:
        st.info(safe(f"{looked_at} has no memory snapshot in this lake; one of {run} is shown."), icon=":material/photo_camera:")
    elif run != looked_at:
        st.session_state["run"], st.session_state["attempt"] = run, str(one.run_index)
    attempt = st.session_state.get("attempt") if run == st.session_state.get("run") else str(one.run_index)
    note(run=run, attempt=attempt, snapshot=labels[artifact], device=str(device))
    return one


def _without(found: tuple[Stored, ...]) -> str | None:
    """The run of the link, where it is there and has no snapshot."""
    linked = st.query_params.get("run")
    run = None if linked is None else called(linked)
    return run if run in {row["run"] for row in attempts()} - {one.run for one in found} else None


def _labels(found: Sequence[Stored]) -> dict[str, str]:
    """A name for each artifact: rank and file, with as many folders as it takes to tell files of one name apart."""
    files = {one.artifact: one for one in found}
    labels: dict[str, str] = {}
    for parts in range(1, 9):
        open_ = {artifact: _label(one, parts) for artifact, one in files.items() if artifact not in labels}
        counts = Counter(open_.values())
        labels |= {artifact: label for artifact, label in open_.items() if counts[label] == 1}
    return {artifact: labels.get(artifact, f"{_label(one, 8)} ({artifact[-8:]})") for artifact, one in files.items()}


def _label(one: Stored, parts: int = 1) -> str:
    name = "/".join(PurePosixPath(shown(one.path or one.artifact)).parts[-parts:])
    return name if one.rank is None else f"rank {one.rank}: {name}"


def _index(options: list[str], name: str, otherwise: str | None = None) -> int:
    """Where the link's choice is, else another; told where the link's is not there."""
    known(name, options)
    wanted = st.query_params.get(name)
    return next((options.index(one) for one in (wanted, otherwise) if one in options), 0)


def _of_rank(names: Sequence[str]) -> str | None:
    """The first snapshot of the rank that was chosen on another page."""
    return next((name for name in names if name.startswith(f"rank {recalled('rank')}: ")), None)


def _capacity(chosen: Stored) -> int | None:
    """What is given, else what the run's other artifacts tell of this rank, or of any; a snapshot tells none."""
    if given := capacity():
        return given_capacity(given).capacity_bytes
    return _told_capacity(lake_root(), lake_version(), chosen.run, chosen.run_index, chosen.rank)


@st.cache_data(max_entries=64, show_spinner=False)
def _told_capacity(root: str, version: str, run: str, run_index: int, rank: int | None) -> int | None:
    found = cursor().execute(_CAPACITY, [run, run_index, rank]).fetchone()
    return found[0] if found else None


def _facts(chosen: Stored, device: Device) -> None:
    levels, moment, known = device.levels, device.moment(device.peak.event), device.history
    low, high = int(levels.low.max()), int(levels.high.max())
    facts = [
        ("Peak requested", size_text(device.peak.bytes), f"{device.peak.bytes:,} bytes, exact: walked backward from the end state"),
        ("Rounded by the allocator", size_text(low) if low == high else f"{size_text(low)} to {size_text(high)}",
         f"{low:,} to {high:,} bytes: a trace holds requested sizes only"),
        ("Peak reserved", size_text(int(levels.reserved.max())), f"{int(levels.reserved.max()):,} bytes"),
        ("Phase of the peak", moment.phase, safe(moment.evidence)),
        ("Unknown at the peak", f"{unknown_ratio(device):.1%}", "share of the peak's bytes that no rule names"),
        ("Trace", known.began, safe(f"{len(device.trace.events):,} events; {known.evidence}")),
    ]
    with st.container(horizontal=True, gap="medium"):
        for label, value, told in facts:
            st.metric(label, value, help=told, width="content")
    odd = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in irregularities(device).items())
    st.caption(safe(f"{_label(chosen)}, device {chosen.device}, {len(device.trace.events):,} events." + (f" Irregular: {odd}." if odd else "")))


def _timeline(device: Device, capacity: int | None) -> int:
    """The timeline; the event whose bytes are shown below: the peak, the instant clicked, or the highest of a range."""
    last = len(device.trace.events) - 1
    if last < 0:
        st.info("The file holds no trace: only its end state is known.", icon=":material/timeline:")
        return -1
    with st.container(horizontal=True, vertical_alignment="bottom"):
        start, stop = st.slider("Events shown", 0, last, (0, last), key=f"events{device.trace.device}{last}") if last else (0, 0)
        start = -1 if start == 0 else start
        by_time = st.toggle("By time", help="Milliseconds in place of events", disabled=device.trace.events.time_us is None, key="by_time",
                            bind="query-params")
    times = device.trace.events.time_us if by_time else None
    chart = charts.timeline_chart(device.timeline(start, stop), device.peak, capacity, times)
    picked = picture(chart, "timeline", on_select="rerun", selection_mode=[charts.RANGE, charts.CLICK],
                     key=f"timeline {start} {stop} {by_time} {last}")
    event = _picked(device, picked.selection, by_time, start, stop)
    moment, level = device.moment(event), device.levels
    when = "Before the first event" if event < 0 else f"After event {event:,}"
    which = "the peak" if event == device.peak.event else "chosen"
    inside = f", inside {', '.join(moment.annotations)}" if moment.annotations else ""
    requested, reserved = (size_text(int(one[event + 1])) for one in (level.requested, level.reserved))
    st.caption(safe(f"{when} ({which}): {requested} requested, {reserved} reserved, phase {moment.phase}{inside}. "
                    "Click or drag in the picture to choose another instant."))
    return event


def _picked(device: Device, selection: Any, by_time: bool, start: int, stop: int) -> int:
    """The event of the click, or the highest of the stretch, whichever was chosen last; else the highest shown."""
    click = next(iter(selection.get(charts.CLICK) or []), {}).get("event")
    stretch = (selection.get(charts.RANGE) or {}).get("at")
    before = st.session_state.get("snapshot_picked", (None, None, None))
    kind = charts.RANGE if stretch != before[1] else charts.CLICK if click != before[0] else before[2]
    st.session_state["snapshot_picked"] = (click, stretch, kind)
    if stretch and (kind == charts.RANGE or click is None):
        return _noted(device.highest(*(device.event_at(float(end)) if by_time else int(end) for end in stretch)))
    if click is not None:
        return _noted(max(-1, min(int(click), len(device.trace.events) - 1)))
    linked = linked_number("event", -1, len(device.trace.events) - 1)
    if linked is not None and start <= linked <= stop:
        return linked
    note(event=None)
    return device.peak.event if start <= device.peak.event <= stop else device.highest(start, stop)


def _noted(event: int) -> int:
    """The instant, kept in the address."""
    note(event=str(event))
    return event


def _lived(device: Device, event: int) -> None:
    classes = device.by_class(event)
    if not classes:
        st.info("Nothing was live then.", icon=":material/inbox:")
        return
    left, right = st.columns([2, 3], gap="large")
    by_stack = device.by_stack(event)
    with left:
        section("By class", "resident", "activations", "transient")
        picture(charts.composition_bar([(one.name, one.bytes) for one in classes]), "classes")
        whole = max(1, sum(one.bytes for one in classes))
        st.dataframe([{"class": one.name.replace("_", " "), "GiB": gib(one.bytes), "share": one.bytes / whole, "blocks": one.blocks,
                       "bytes": one.bytes} for one in classes], hide_index=True,
                     column_config={"GiB": _GIB, "share": st.column_config.NumberColumn(format="percent"), "bytes": _COUNT, "blocks": _COUNT})
    with right:
        section("By stack")
        picture(charts.treemap(tiles([(share.name, share.category, share.bytes) for _, share in by_stack])), "stacks")
    rows = [{"class": share.category.replace("_", " "), "owner": share.name, "GiB": gib(share.bytes), "blocks": share.blocks}
            for _, share in by_stack[:500]]
    chosen = st.dataframe(rows, hide_index=True, column_config={"GiB": _GIB, "blocks": _COUNT}, on_select="rerun", selection_mode="single-row",
                          key=f"stacks{event}")
    if picked := chosen.selection.rows:
        text = device.stacks.text(by_stack[picked[0]][0])
        st.code("\n".join(text) or "no stack", language=None, wrap_lines=True)
    else:
        st.caption("Tick a row to see its stack.")
    with st.expander("Why each class: the rules that decided"):
        evidence = {rule.name: rule for rule in ALL_RULES}
        st.dataframe([{"rule": one.name, "class": one.category.replace("_", " "), "GiB": gib(one.bytes), "blocks": one.blocks,
                       "evidence": evidence[one.name].evidence, "source": evidence[one.name].source} for one in device.by_rule(event)],
                     hide_index=True, column_config={"GiB": _GIB, "blocks": _COUNT})


def _allocator(device: Device, event: int) -> None:
    pools, main = device.layout_after(event).pools(), main_stream(device.trace)
    if not pools:
        st.info("No segment was held then.", icon=":material/inbox:")
        return
    section("Streams and pools", "stream", "private pool")
    picture(charts.pool_bars(pools, main), "pools")
    st.dataframe([{"stream and pool": charts.pool_name(pool, main), "segments": pool.segments, "reserved": gib(pool.reserved_bytes),
                   "allocated": gib(pool.allocated_bytes), "pending": gib(pool.pending_bytes), "free segments": gib(pool.whole_free_bytes),
                   "free pieces": gib(pool.split_free_bytes), "rounding": gib(pool.rounding_bytes),
                   "largest obtainable": gib(pool.largest_free_bytes)}
                  for pool in pools], hide_index=True,
                 column_config={name: st.column_config.NumberColumn(f"{name}, GiB", format="%.3f") for name in
                                ("reserved", "allocated", "pending", "free segments", "free pieces", "rounding", "largest obtainable")})
    st.caption("Free segments can go back to the device; free pieces cannot, as something lives beside them. A block of one stream or private pool "
               "serves no other.")
    section("Segment map, largest segments", "segment", "inactive split")
    picture(charts.segment_map(segment_rows(device, event)), "segments")


def _staircase(device: Device) -> None:
    if not device.risers:
        st.info("Reserved never rose above its level at the first event.", icon=":material/stairs:")
        return
    picture(charts.staircase(device.levels.reserved, device.risers), "staircase")
    rows = sorted(device.risers, key=lambda one: -one.rise_bytes)[:500]
    chosen = st.dataframe([{"event": one.event, "rise": gib(one.rise_bytes), "kind": one.kind, "request": gib(one.request_bytes),
                            "free on its stream": gib(one.free_low_bytes), "owner": device.stacks.owner(one.stack)} for one in rows], hide_index=True,
                          column_config={name: st.column_config.NumberColumn(f"{name}, GiB", format="%.3f") for name in
                                         ("rise", "request", "free on its stream")}, on_select="rerun", selection_mode="single-row", key="risers")
    if picked := chosen.selection.rows:
        st.code("\n".join(device.stacks.text(rows[picked[0]].stack)) or "no stack", language=None, wrap_lines=True)
    st.caption("Need: less was free than was asked. Fragmentation: enough was free on the stream, in pieces. On another stream or pool: "
               "enough was free, where this request could not take it.")


def _ooms(device: Device) -> None:
    if not device.ooms:
        st.info("No out-of-memory event in this trace.", icon=":material/check_circle:")
    for one in device.ooms:
        st.error(safe(f"Event {one.event:,}: {size_text(one.request_bytes)} asked, the device had {size_text(one.device_free_bytes)} free. "
                      f"Case {one.verdict}: {one.because}."), icon=":material/dangerous:")
        st.dataframe([{"reserved": gib(one.reserved_bytes), "active": gib(one.active_bytes), "free segments": gib(one.own_whole_free_bytes),
                       "free pieces": gib(one.own_split_free_bytes), "largest piece": gib(one.largest_free_bytes),
                       "other streams": gib(one.other_streams_free_bytes), "private pools": gib(one.private_free_bytes),
                       "pending": gib(one.pending_bytes)}], hide_index=True)
        st.code("\n".join(device.stacks.text(one.stack)) or "no stack", language=None, wrap_lines=True)


def _long_lived(device: Device) -> None:
    if not device.long_lived:
        st.info("No block lives longer than its class should.", icon=":material/check_circle:")
        return
    st.dataframe([{"owner": device.stacks.owner(one.stack), "class": one.category.replace("_", " "), "GiB": gib(one.bytes),
                   "blocks": one.blocks, "born at event": one.birth, "last free at event": one.last_free, "alive at end": one.alive_at_end,
                   "stream": hex(one.stream & 2**64 - 1), "why": one.why} for one in device.long_lived], hide_index=True,
                 column_config={"GiB": _GIB}, placeholder="-")


def _compare(chosen: Stored, device: Device, found: tuple[Stored, ...]) -> None:
    labels = _labels(found)
    others = {f"{one.run}, {labels[one.artifact]}, device {one.device}": one for one in found
              if (one.artifact, one.device) != (chosen.artifact, chosen.device)}
    if not others:
        st.info("Only one snapshot in this lake: bring another to compare.", icon=":material/compare_arrows:")
        return
    name = st.selectbox("Compare with", list(others))
    other = others[name]
    with told_errors():
        beside = _device(lake_root(), lake_version(), other.artifact, other.device)
    result = compare(device, beside)
    change = result.after_peak_bytes - result.before_peak_bytes
    st.write(safe(f"Peak {size_text(result.before_peak_bytes)} here, {size_text(result.after_peak_bytes)} there: {size_text(abs(change))} "
                  + ("more" if change >= 0 else "less") + " there."))
    picture(charts.compared_bars(result, "here", "there"), "compared")
    st.dataframe([{"class": one.category.replace("_", " "), "owner": one.name, "here, GiB": gib(one.before_bytes), "there, GiB": gib(one.after_bytes),
                   "change, GiB": gib(one.change_bytes)} for one in result.stacks], hide_index=True,
                 column_config={f"{which}, GiB": st.column_config.NumberColumn(format="%+.3f" if which == "change" else "%.3f")
                                for which in ("here", "there", "change")})


show()
