"""Out-of-memory events of a trace: the request, what was free where, and the verdict by counterfactual.

PyTorch gives cached whole segments back and tries again before it fails, so what was free in whole segments counts as tried. The verdict
asks which further return would have let the request fit: split remainders of its own stream, other streams, blocks pending on a
stream, private pools; else the device was full. The trace does not know the device's capacity: what the allocator could have had is
what it held and what the device still had free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.snapshot.classes import Classes
from analysis.snapshot.layout import after, total
from analysis.snapshot.levels import Levels
from analysis.snapshot.lives import Lives
from analysis.snapshot.rules import CATEGORIES
from analysis.snapshot.trace import Action, Trace
from ingest.allocator import SMALL_BYTES
from ingest.trace_levels import rounded_one

RESIDENT = ("weights", "gradient_buffer", "optimizer")


@dataclass(frozen=True, slots=True)
class Oom:
    """One failed request, bytes. `own_*` are of the stream that asked, in the default pool; `verdict` is a letter of the table of cases."""

    event: int
    request_bytes: int
    device_free_bytes: int
    reserved_bytes: int
    active_bytes: int
    own_whole_free_bytes: int
    own_split_free_bytes: int
    other_streams_free_bytes: int
    private_free_bytes: int
    pending_bytes: int
    largest_free_bytes: int
    stack: int
    verdict: str
    because: str


def ooms(trace: Trace, lives: Lives, levels: Levels, classes: Classes, settings: Mapping[str, Any]) -> tuple[Oom, ...]:
    """Every out-of-memory event in the order of the trace."""
    return tuple(_oom(trace, lives, levels, classes, settings, int(event)) for event in np.flatnonzero(trace.events.action == Action.OOM))


def _oom(trace: Trace, lives: Lives, levels: Levels, classes: Classes, settings: Mapping[str, Any], event: int) -> Oom:
    events = trace.events
    request, free, stream = rounded_one(int(events.size[event]), settings), int(events.address[event]), int(events.stream[event])
    kind = "small" if request <= SMALL_BYTES else "large"
    pools = after(trace, lives, event).pools()
    shared = [pool for pool in pools if not pool.private]
    own = [pool for pool in shared if pool.stream == stream and pool.kind == kind]
    others = [pool for pool in shared if pool not in own]
    parts = {"whole free segments": total(own, "whole_free_bytes"), "split remainders": total(own, "split_free_bytes"),
             "other streams and pools": total(others, "whole_free_bytes") + total(others, "split_free_bytes"),
             "pending blocks": total(pools, "pending_bytes"),
             "private pools": sum(pool.free_bytes for pool in pools if pool.private)}
    resident = np.isin(classes.category, [CATEGORIES.index(name) for name in RESIDENT]) & lives.live_after(event)
    verdict, because = _verdict(request, free, parts, int(levels.reserved[event + 1]), int(lives.low[resident].sum()), settings)
    return Oom(event, int(events.size[event]), free, int(levels.reserved[event + 1]), int(levels.low[event + 1]),
               own_whole_free_bytes=parts["whole free segments"], own_split_free_bytes=parts["split remainders"],
               other_streams_free_bytes=parts["other streams and pools"], private_free_bytes=parts["private pools"],
               pending_bytes=parts["pending blocks"], largest_free_bytes=max((pool.largest_free_bytes for pool in own), default=0),
               stack=int(events.stack[event]), verdict=verdict, because=because)


def _verdict(request: int, free: int, parts: Mapping[str, int], reserved: int, resident: int, settings: Mapping[str, Any]) -> tuple[str, str]:
    """The case and a sentence with its numbers."""
    if free >= request:
        return "G", f"the device had {free:,} bytes free for {request:,}: a cap below its capacity, or a rise between the two readings"
    if resident and request > free + reserved - resident:
        return "D", f"the request of {request:,} bytes does not fit beside the resident {resident:,} bytes, whatever else is freed"
    have = free + parts["whole free segments"]
    if have >= request:
        return "B1", "device free and whole free segments together would have held it, not next to each other"
    for case, name in (("B1", "split remainders"), ("B2", "other streams and pools"), ("B2", "pending blocks"), ("B3", "private pools")):
        have += parts[name]
        if have >= request:
            force = " although expandable segments are in force" if settings.get("expandable_segments") else ""
            return case, f"{name} ({parts[name]:,} bytes) would have let it fit{force}"
    return "A", f"with everything cached returned only {have:,} of {request:,} bytes would have been free: the live bytes fill the device"
