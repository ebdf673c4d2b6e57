"""Levels and lifetimes against a toy allocator that knows them, with and without a ring buffer that lost the first events."""

from __future__ import annotations

import random

import numpy as np
import pytest

from analysis.snapshot.levels import Levels, levels, peak
from analysis.snapshot.lives import BEFORE, Lives, lives
from analysis.snapshot.trace import Snapshot, Trace, from_columns
from tests.analysis.snapshot.made import MIB, Maker


def walked(maker: Maker, dropped: int = 0) -> tuple[Snapshot, Trace, Lives, Levels]:
    found = from_columns(maker.columns(dropped))
    trace = found.devices[0]
    alive = lives(trace, found.settings)
    return found, trace, alive, levels(trace, alive)


def busy(seed: int, steps: int = 400) -> Maker:
    chance, maker = random.Random(seed), Maker()
    for stream in (0, 77):
        maker.segment(2**33, stream=stream)
    for _ in range(steps):
        held = list(maker.held)
        pending = [at for at in held if maker.held[at].state == "active_pending_free"]
        kind = chance.random()
        if kind < 0.5 or not held:
            maker.alloc(chance.randrange(1, 5 * MIB), segment=chance.choice(list(maker.segments)))
        elif pending and kind < 0.6:
            maker.complete(chance.choice(pending))
        elif live := [at for at in held if at not in pending]:
            maker.free(chance.choice(live), completed=kind < 0.95)
    return maker


@pytest.mark.parametrize("dropped", [0, 1, 57, 399])
@pytest.mark.parametrize("seed", range(4))
def test_levels_are_the_true_ones_however_much_was_lost(seed: int, dropped: int) -> None:
    maker = busy(seed)
    _, _, alive, found = walked(maker, dropped)
    truth = maker.truth[dropped:]
    assert found.requested[1:].tolist() == truth
    assert found.requested[0] == (maker.truth[dropped - 1] if dropped else 0)
    assert (found.low <= found.high).all()
    assert (found.requested <= found.low).all()
    for event in (-1, len(truth) // 3, len(truth) - 1):
        live = alive.live_after(event)
        assert alive.size[live].sum() == found.requested[event + 1]
        assert alive.low[live].sum() == found.low[event + 1]


def test_the_peak_is_the_first_maximum_and_may_stand_before_the_trace() -> None:
    maker = Maker()
    maker.segment(100 * MIB)
    one = maker.alloc(10 * MIB)
    maker.alloc(5 * MIB)
    maker.free(one)
    _, _, _, found = walked(maker)
    assert peak(found.requested) == peak(np.array([0, 0, 0, 15, 15, 5], np.int64) * MIB)
    assert peak(found.requested).event == 2
    _, _, _, late = walked(maker, dropped=3)
    assert (peak(late.requested).bytes, peak(late.requested).event) == (15 * MIB, -1)


def test_pending_bytes_are_active_but_not_allocated() -> None:
    maker = Maker()
    maker.segment(100 * MIB)
    one = maker.alloc(10 * MIB)
    maker.free(one, completed=False)
    _, _, alive, found = walked(maker)
    assert found.requested[-1] == 10 * MIB
    assert found.allocated[-1] == 0
    assert alive.requested_at.tolist() == [2]
    assert alive.completed_at.tolist() == [3]


def test_what_was_alive_before_the_trace_has_no_birth() -> None:
    maker = Maker()
    maker.segment(100 * MIB)
    gone, kept = maker.alloc(MIB, ("a.py:1 f",)), maker.alloc(2 * MIB, ("b.py:1 g",))
    maker.free(gone)
    found, _, alive, _ = walked(maker, dropped=3)
    assert sorted(zip(alive.birth.tolist(), alive.size.tolist(), strict=True)) == [(BEFORE, MIB), (BEFORE, 2 * MIB)]
    assert [found.stacks[at] if at >= 0 else None for at in alive.stack] == [None, ("b.py:1 g",)]
    assert kept in alive.address


def test_an_address_used_again_is_another_life() -> None:
    maker = Maker()
    at = maker.segment(100 * MIB)
    maker.free(maker.alloc(MIB))
    maker.segments[at]["used"] = 0
    maker.alloc(3 * MIB)
    _, _, alive, _ = walked(maker)
    assert list(zip(alive.birth.tolist(), alive.completed_at.tolist(), alive.size.tolist(), strict=True)) == [(1, 3, MIB), (4, 5, 3 * MIB)]


def test_the_block_at_the_end_tells_its_rounded_size() -> None:
    maker = Maker()
    maker.segment(100 * MIB)
    maker.alloc(2 * MIB, rounded=2 * MIB + 512 * 1024)
    maker.free(maker.alloc(3 * MIB + 1))
    _, _, alive, found = walked(maker)
    assert alive.low.tolist() == [2 * MIB + 512 * 1024, 3 * MIB + 512]
    assert alive.high.tolist() == [2 * MIB + 512 * 1024, 4 * MIB + 512]
    assert found.high[-1] == found.low[-1] == 2 * MIB + 512 * 1024


def test_no_trace_and_no_segment() -> None:
    maker = Maker()
    maker.segment(100 * MIB)
    maker.alloc(MIB)
    _, _, alive, found = walked(maker, dropped=2)
    assert found.requested.tolist() == [MIB]
    assert peak(found.reserved).event == -1
    assert len(alive) == 1
    assert from_columns(Maker().columns()).devices == ()
