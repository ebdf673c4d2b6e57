"""A snapshot as one JSON value: the fixed face of `hbmledger snapshot`, one object a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from analysis.snapshot.classes import ALL_RULES, main_stream
from analysis.snapshot.compare import Comparison
from analysis.snapshot.layout import total
from analysis.snapshot.levels import peak
from analysis.snapshot.rules import CATEGORIES
from analysis.snapshot.trace import ACTIONS, INACTIVE, LIVE, NO_STACK
from analysis.snapshot.view import Device, Share

Json = dict[str, Any]
TOP = 20
"""Stacks, risers and blocks told of each kind."""


def as_json(devices: tuple[Device, ...], *, path: str = "", rank: int | None = None) -> Json:
    """The whole file."""
    snapshot = devices[0].snapshot if devices else None
    return {"path": path, "rank": rank, "reader": snapshot.reader if snapshot else None, "file_bytes": snapshot.file_bytes if snapshot else None,
            "allocator_settings": dict(snapshot.settings) if snapshot else {}, "not_understood": dict(snapshot.unknown) if snapshot else {},
            "devices": [device_json(device) for device in devices]}


def device_json(device: Device) -> Json:
    """One device: the figures of the fixed face, then when, what, where and why."""
    return {**_figures(device), "peak": _peak(device), "history": asdict(device.history), **_layout(device),
            "reserved_risers": _risers(device), "out_of_memory": [_with_stack(device, asdict(one)) for one in device.ooms],
            "long_lived_blocks": [_with_stack(device, asdict(one)) for one in device.long_lived[:TOP]], "irregularities": irregularities(device)}


def compared_json(found: Comparison) -> Json:
    """A comparison; changes are after less before."""
    return {"before_device": found.before_device, "after_device": found.after_device, "before_peak_bytes": found.before_peak_bytes,
            "after_peak_bytes": found.after_peak_bytes, "change_bytes": found.after_peak_bytes - found.before_peak_bytes,
            "classes": [{**asdict(one), "change_bytes": one.change_bytes} for one in found.classes],
            "stacks": [{**asdict(one), "change_bytes": one.change_bytes} for one in found.stacks[:TOP]]}


def irregularities(device: Device) -> dict[str, int]:
    """What the trace shows that a whole and regular one would not, and how often; what did not occur is left out."""
    trace, lives, known = device.trace, device.lives, device.history
    events = trace.events
    unasked = (lives.requested_at < 0) & (lives.birth >= 0)
    found = {"frees_without_alloc": known.frees_without_alloc, "blocks_never_allocated_in_trace": known.kept_blocks,
             "allocs_without_frames": known.allocs_without_frames, "ended_without_free_requested": int(unasked.sum()),
             "levels_below_zero": int((device.levels.requested < 0).sum() + (device.levels.reserved < 0).sum()),
             "time_reversals": 0 if events.time_us is None else int((np.diff(events.time_us) < 0).sum()),
             "pending_blocks": int((trace.blocks.state != LIVE).sum() - (trace.blocks.state == INACTIVE).sum()),
             "sizes_that_cannot_be": events.impossible,
             **{f"action {name}": count for name, count in events.other.items()}}
    return {name: count for name, count in found.items() if count}


def actions(device: Device) -> dict[str, int]:
    """How often each action occurs."""
    codes = Counter(device.trace.events.action.tolist())
    return {**{name: codes[code] for name, code in ACTIONS.items() if codes[code]}, **device.trace.events.other}


def _figures(device: Device) -> Json:
    trace, levels, blocks = device.trace, device.levels, device.trace.blocks
    return {
        "device": trace.device, "events": len(trace.events), "actions": actions(device),
        "segments": len(trace.segments), "blocks": len(blocks.size),
        "streams": sorted({*trace.segments.stream.tolist(), *trace.events.stream.tolist()}), "end_requested_bytes": int(levels.requested[-1]),
        "end_allocated_bytes": int(blocks.size[blocks.state == LIVE].sum()), "end_active_bytes": int(blocks.size[blocks.state != INACTIVE].sum()),
        "end_reserved_bytes": int(levels.reserved[-1]), "start_requested_bytes": int(levels.requested[0]), "peak_requested_bytes": device.peak.bytes,
        "peak_allocated_low_bytes": int(levels.low.max()), "peak_allocated_high_bytes": int(levels.high.max()),
        "start_reserved_bytes": int(levels.reserved[0]), "peak_reserved_bytes": peak(levels.reserved).bytes,
        "frees_without_alloc": device.history.frees_without_alloc, "allocs_without_frames": device.history.allocs_without_frames}


def _peak(device: Device) -> Json:
    event = device.peak.event
    whole = max(device.peak.bytes, 1)
    classes = device.by_class(event)
    unknown = sum(share.bytes for share in classes if share.category == "unknown")
    return {"bytes": device.peak.bytes, **asdict(device.moment(event)), "reserved_bytes": int(device.levels.reserved[event + 1]),
            "pending_bytes": int(device.levels.requested[event + 1] - device.levels.allocated[event + 1]),
            "unknown_ratio": unknown / whole,
            "classes": [{"class": share.name, "bytes": share.bytes, "ratio": share.bytes / whole, "blocks": share.blocks} for share in classes],
            "rules": [_rule(share, whole) for share in device.by_rule(event)],
            "stacks": [{"owner": share.name, "class": share.category, "bytes": share.bytes, "blocks": share.blocks,
                        "stack": device.stacks.text(row)} for row, share in device.by_stack(event, TOP)]}


_BY_NAME = {rule.name: rule for rule in ALL_RULES}


def _rule(share: Share, whole: int) -> Json:
    rule = _BY_NAME[share.name]
    return {"rule": rule.name, "class": rule.category, "bytes": share.bytes, "ratio": share.bytes / whole, "blocks": share.blocks,
            "evidence": rule.evidence, "source": rule.source}


def _layout(device: Device) -> Json:
    """Streams and pools at the end, and the cache split into what can go back and what cannot."""
    pools, main = device.layout.pools(), main_stream(device.trace)
    foreign = [pool for pool in pools if pool.stream != main or pool.private]
    own = [pool for pool in pools if pool not in foreign]
    return {"streams_and_pools": [{**asdict(pool), "rounding_bytes": pool.rounding_bytes, "free_bytes": pool.free_bytes,
                                   "private": pool.private} for pool in pools],
            "cached": {"whole_free_segments_bytes": total(pools, "whole_free_bytes"), "split_remainders_bytes": total(pools, "split_free_bytes"),
                       "rounding_bytes": total(pools, "rounding_bytes"), "pending_bytes": total(pools, "pending_bytes"),
                       "free_on_other_streams_or_pools_bytes": total(foreign, "free_bytes"), "main_stream": main,
                       "largest_block_obtainable_bytes": max((pool.largest_free_bytes for pool in own), default=0)}}


def _risers(device: Device) -> Json:
    kinds: Counter[str] = Counter()
    for one in device.risers:
        kinds[one.kind] += one.rise_bytes
    largest = sorted(device.risers, key=lambda one: -one.rise_bytes)[:TOP]
    return {"count": len(device.risers), "bytes": sum(kinds.values()), "by_kind_bytes": dict(kinds),
            "largest": [_with_stack(device, asdict(one)) for one in largest]}


def _with_stack(device: Device, row: Mapping[str, Any]) -> Json:
    """The row with its stack's owner and text in place of the stack's number."""
    stack = int(row.get("stack", NO_STACK))
    rest = {name: value for name, value in row.items() if name != "stack"}
    return {**rest, "owner": device.stacks.owner(stack), "stack": device.stacks.text(stack)}


def unknown_ratio(device: Device) -> float:
    """Share of the peak that no rule names."""
    named = {share.name: share.bytes for share in device.by_class(device.peak.event)}
    return named.get(CATEGORIES[-1], 0) / max(device.peak.bytes, 1)
