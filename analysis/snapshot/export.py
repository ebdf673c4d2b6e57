"""A snapshot for those who live in other viewers: counters for Perfetto, folded stacks for a flame graph.

Perfetto reads Chrome's trace events (JSON; "Trace Event Format", counter events `C` and slices `B`/`E`). Levels are reduced as the timeline's
(M4), with room for more instants than a picture has, so that no peak is lost and a million events stay a file that a browser opens. A flame
graph adds up sizes of stacks, so it shows one instant: the peak. Sizes are requested bytes, as in every figure of a class.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from analysis.snapshot.timeline import timeline
from analysis.snapshot.view import Device

MARKS = 200_000
_SEPARATOR = str.maketrans({";": ",", "\n": " ", "\r": " "})


def perfetto(devices: Sequence[Device]) -> Iterator[str]:
    """The text of a trace file in pieces. Times are microseconds; the events' own number where a snapshot holds no times."""
    yield '{"displayTimeUnit": "ms", "traceEvents": [\n'
    first = True
    for device in devices:
        for event in _events(device):
            yield ("" if first else ",\n") + json.dumps(event)
            first = False
    yield "\n]}\n"


def folded(devices: Sequence[Device]) -> Iterator[str]:
    """Lines `device;class;outermost frame;...;innermost frame bytes` of what lived at each device's peak, the most bytes first."""
    for device in devices:
        for stack, share in device.by_stack(device.peak.event):
            frames = [frame.translate(_SEPARATOR) for frame in reversed(device.stacks.text(stack))] or ["(no stack)"]
            yield ";".join([f"device {device.trace.device}", share.category, *frames]) + f" {share.bytes}\n"


def _events(device: Device) -> Iterator[dict[str, Any]]:
    pid, times = device.trace.device, device.trace.events.time_us
    found = timeline(device.lives, device.classes, device.levels.requested, device.levels.reserved, marks=MARKS)
    name = f"device {pid}" + ("" if times is not None else ", time is the event's number")
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    for row, event in enumerate(found.event.tolist()):
        at = {"ph": "C", "pid": pid, "ts": _time(device, event)}
        yield {**at, "name": "requested by class", "args": {name: int(found.of_class[one, row]) for one, name in enumerate(found.categories)}}
        yield {**at, "name": "reserved", "args": {"bytes": int(found.reserved[row])}}
    if len(device.trace.events):
        told = f"peak, {device.peak.bytes:,} bytes requested"
        yield {"ph": "i", "s": "p", "name": told, "pid": pid, "tid": 0, "ts": _time(device, device.peak.event)}
    for one in device.trace.annotations:
        if one.time_us is not None and one.stage.upper() in ("START", "END"):
            yield {"ph": "B" if one.stage.upper() == "START" else "E", "name": one.name, "pid": pid, "tid": 0, "ts": one.time_us}


def _time(device: Device, event: int) -> int:
    times = device.trace.events.time_us
    return max(event, 0) if times is None else int(times[max(event, 0)]) if len(times) else 0
