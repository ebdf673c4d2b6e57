"""Streams and pools, the layout of earlier instants, risers and out-of-memory verdicts, on snapshots made call by call."""

from __future__ import annotations

import pytest

from analysis.snapshot.layout import after, at_end
from analysis.snapshot.risers import ELSEWHERE, FRAGMENTATION, NEED, UNDECIDED
from analysis.snapshot.trace import from_columns
from analysis.snapshot.view import Device, devices
from tests.analysis.snapshot.made import MIB, Maker
from tests.analysis.snapshot.test_levels import busy

STACK = ("/w/model.py:7 forward",)


def device_of(maker: Maker) -> Device:
    return devices(from_columns(maker.columns()))[0]


def test_pools_split_the_cache_into_what_can_go_back_and_what_cannot() -> None:
    maker = Maker()
    maker.segment(20 * MIB)
    empty, side = maker.segment(30 * MIB), maker.segment(40 * MIB, stream=5)
    maker.segment(10 * MIB, pool="0,7")
    maker.alloc(3 * MIB - 100)
    gone, pending = maker.alloc(2 * MIB, segment=empty), maker.alloc(4 * MIB, segment=side)
    maker.free(gone)
    maker.free(pending, completed=False)
    pools = {(pool.stream, pool.pool): pool for pool in device_of(maker).layout.pools()}
    main, other, private = pools[0, "0,0"], pools[5, "0,0"], pools[0, "0,7"]
    assert (main.reserved_bytes, main.allocated_bytes, main.rounding_bytes) == (50 * MIB, 3 * MIB, 100)
    assert (main.whole_free_bytes, main.split_free_bytes, main.largest_free_bytes) == (30 * MIB, 17 * MIB, 30 * MIB)
    assert (other.pending_bytes, other.free_bytes, other.private) == (4 * MIB, 36 * MIB, False)
    assert (private.private, private.whole_free_bytes) == (True, 10 * MIB)


@pytest.mark.parametrize("seed", range(3))
def test_an_earlier_layout_adds_up_to_the_levels(seed: int) -> None:
    maker = busy(seed)
    gone = maker.segment(50 * MIB, stream=3)
    maker.free(maker.alloc(MIB, segment=gone))
    maker.segment_free(gone)
    maker.segment(60 * MIB)
    device = device_of(maker)
    for event in (-1, 0, 50, 200, len(device.trace.events) - 3, len(device.trace.events) - 1):
        found = after(device.trace, device.lives, event)
        assert found.size.sum() == device.levels.reserved[event + 1]
        assert (found.allocated + found.pending).sum() == device.levels.low[event + 1]
        assert found.requested.sum() == device.levels.requested[event + 1]
    end, walked = at_end(device.trace), after(device.trace, device.lives, len(device.trace.events) - 1)
    for name in ("address", "size", "allocated", "pending", "requested", "largest_gap"):
        assert getattr(end, name).tolist() == getattr(walked, name).tolist(), name


def test_mapped_pages_are_unmapped_on_the_way_back() -> None:
    maker = Maker()
    at = maker.segment(20 * MIB, expandable=True)
    maker.events[-1]["action"] = 5  # segment_map
    maker.segments[at]["size"] = 40 * MIB
    maker._event("segment_map", at + 20 * MIB, 20 * MIB, 0, ())
    device = device_of(maker)
    assert [after(device.trace, device.lives, event).size.tolist() for event in (-1, 0, 1)] == [[], [20 * MIB], [40 * MIB]]


@pytest.mark.parametrize(("freed_later", "kind"), [(False, FRAGMENTATION), (True, UNDECIDED)])
def test_a_riser_is_needed_fragmented_or_free_elsewhere(freed_later: bool, kind: str) -> None:
    maker = Maker()
    maker.segment(20 * MIB)
    one, two = maker.alloc(9 * MIB, STACK), maker.alloc(10 * MIB, STACK)
    maker.segment(30 * MIB)  # 1 MiB was free
    third = maker.alloc(30 * MIB, STACK)
    maker.free(one)
    maker.free(third)
    maker.segment(42 * MIB)  # 40 MiB are free in pieces, or 39 where the block that stays may hold 1 MiB more than it says
    maker.free(maker.alloc(40 * MIB, STACK, segment=list(maker.segments)[-1]))
    maker.segment(50 * MIB, stream=4)  # nothing on stream 4, 82 MiB elsewhere
    maker.alloc(50 * MIB, STACK, segment=list(maker.segments)[-1])
    if freed_later:
        maker.free(two)
    found = device_of(maker).risers
    assert [(one.rise_bytes // MIB, one.kind) for one in found] == [(20, NEED), (30, NEED), (42, kind), (50, ELSEWHERE)]
    assert (found[2].free_low_bytes, found[2].free_high_bytes) == ((40 - freed_later) * MIB, 40 * MIB)


def test_a_clear_case_of_fragmentation() -> None:
    maker = Maker()
    maker.segment(200 * MIB)
    blocks = [maker.alloc(20 * MIB, STACK) for _ in range(10)]
    for block in blocks[::2]:
        maker.free(block)
    maker.segment(50 * MIB)
    maker.alloc(50 * MIB, STACK)
    last = device_of(maker).risers[-1]
    assert (last.kind, last.request_bytes, last.stack >= 0) == (FRAGMENTATION, 50 * MIB, True)


def test_a_free_stretch_that_was_not_taken_lay_in_another_pool() -> None:
    maker = Maker()
    first = maker.segment(50 * MIB)
    maker.free(maker.alloc(50 * MIB, STACK))
    maker.segment(20 * MIB, pool="0,1")
    maker.alloc(20 * MIB, STACK, segment=list(maker.segments)[-1])
    maker.segment_free(first)
    assert [one.kind for one in device_of(maker).risers] == [NEED, ELSEWHERE]


def died(request: int, free: int, **more: int) -> Device:
    """100 MiB of live blocks; beside them, MiB: pieces free on the main stream, `side` free on another, `pending`, `private`."""
    maker = Maker()
    maker.segment((100 + more.get("pieces", 0)) * MIB)
    maker.alloc(100 * MIB, STACK)
    for name, stream, pool in (("side", 5, "0,0"), ("private", 0, "0,3")):
        if name in more:
            maker.segment(more[name] * MIB, stream=stream, pool=pool)
    if "pending" in more:
        at = maker.segment(more["pending"] * MIB)
        maker.free(maker.alloc(more["pending"] * MIB, STACK, segment=at), completed=False)
    maker.oom(request * MIB, free * MIB, STACK)
    return device_of(maker)


@pytest.mark.parametrize(("case", "request_mib", "more"), [
    ("A", 40, {}), ("A", 40, {"pieces": 10, "side": 10}), ("B1", 40, {"pieces": 35}), ("B2", 40, {"pieces": 10, "side": 30}),
    ("B2", 40, {"pending": 40}), ("B3", 40, {"private": 40}), ("G", 5, {}),
])
def test_the_verdict_names_the_return_that_would_have_let_it_fit(case: str, request_mib: int, more: dict[str, int]) -> None:
    found = died(request_mib, 6, **more).ooms
    assert [one.verdict for one in found] == [case]
    assert found[0].device_free_bytes == 6 * MIB
    assert found[0].active_bytes == (100 + more.get("pending", 0)) * MIB


def test_a_request_that_never_fits_beside_the_resident_is_one_giant() -> None:
    maker = Maker()
    maker.segment(100 * MIB)
    maker.alloc(60 * MIB, ("/usr/lib/python3/dist-packages/torch/nn/modules/linear.py:1 __init__",))
    maker.alloc(40 * MIB, STACK)
    maker.oom(80 * MIB, 6 * MIB, STACK)
    assert [one.verdict for one in device_of(maker).ooms] == ["D"]


def test_what_an_optimizer_step_finds_alive_lives_too_long() -> None:
    maker = Maker()
    maker.segment(2**32)
    kept = [maker.alloc(MIB, STACK) for _ in range(3)]
    maker.free(maker.alloc(2 * MIB, STACK))
    maker.alloc(MIB, ("/x/megatron/core/utils.py:746 get_tensor", "/x/megatron/core/transformer/mlp.py:5 forward"))
    maker.alloc(MIB, ("/w/opt.py:3 step", "/usr/lib/python3/dist-packages/torch/optim/optimizer.py:400 wrapper"))
    maker.free(kept[0])
    found = device_of(maker).long_lived
    assert [(one.category, one.blocks, one.bytes, one.alive_at_end, one.why) for one in found] == [
        ("activations", 3, 3 * MIB, 2, "lives over an optimizer step")]
    assert (found[0].birth, found[0].last_free) == (1, 10)
