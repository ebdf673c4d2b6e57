"""Small snapshots as the objects that torch pickles, in the shapes of its writers; and the readers there are."""

from __future__ import annotations

from typing import Any

import pytest

from ingest.parsers.snapshot import compiled

READERS = ["python", pytest.param("compiled", marks=pytest.mark.skipif(not compiled.available(), reason="the compiled reader was not built"))]
Object = dict[str, Any]
FRAME = {"name": "forward", "filename": "model.py", "line": 7}
OTHER = {"name": "backward", "filename": "autograd.py", "line": 11}
BASE = 0x7F0000000000


def event(action: str, address: int, size: int, **more: Any) -> Object:
    """A trace entry of torch 2.2 and later."""
    key = "device_free" if action == "oom" else "addr"
    return {"action": action, key: address, "size": size, "stream": 0, "time_us": 1_700_000_000_000_000, "frames": [FRAME, OTHER], **more}


def block(address: int, size: int, requested: int, state: str, **more: Any) -> Object:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": [FRAME, OTHER], **more}


def segment(address: int, blocks: list[Object], **more: Any) -> Object:
    live = [one for one in blocks if one["state"] == "active_allocated"]
    active = [one for one in blocks if one["state"] != "inactive"]
    return {
        "device": 0, "address": address, "total_size": sum(one["size"] for one in blocks), "allocated_size": sum(one["size"] for one in live),
        "active_size": sum(one["size"] for one in active), "requested_size": sum(one["requested_size"] for one in active), "stream": 0,
        "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks, **more}


def snapshot() -> Object:
    """Two devices, the second traced: 1000 bytes live, 500 waiting for another stream, the rest free."""
    blocks = [block(BASE, 1024, 1000, "active_allocated"), block(BASE + 1024, 512, 500, "active_pending_free"),
              block(BASE + 1536, 2048 - 1536, 300, "inactive", frames=[])]
    trace = [
        event("segment_alloc", BASE, 2048), event("alloc", BASE, 1000), event("alloc", BASE + 1024, 500), event("alloc", BASE + 1536, 300),
        event("free_requested", BASE + 1536, 300), event("free_completed", BASE + 1536, 300), event("free_requested", BASE + 1024, 500),
        event("oom", 123456, 10**9), event("snapshot", 0, 0)]
    return {
        "segments": [segment(BASE, blocks, device=1)], "device_traces": [[], trace],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "roundup_power2_divisions": {"1": 0}},
        "external_annotations": [{"stage": "START", "name": "Optimizer.step#Adam.step", "device": 1, "time_us": 1}]}
