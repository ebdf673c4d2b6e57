"""The allocator's arithmetic: blocks, segments, remainders that stay, and levels by the backward walk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingest.allocator import block_bytes, segment_bytes
from ingest.trace_levels import backward, rounded, rounded_one, unsplit

MIB = 2**20


@pytest.mark.parametrize(("size", "settings", "expected"), [
    (1, {}, 512), (512, {}, 512), (513, {}, 1024), (0, {}, 512),
    (1200 * 1024, {"roundup_power2_divisions": {"1": 4, "2": 0}}, 1280 * 1024),
    (3 * MIB, {"roundup_power2_divisions": {"1": 4, "2": 2}}, 3 * MIB),
    (3 * MIB + 1, {"roundup_power2_divisions": {"1": 4, "2": 2}}, 4 * MIB),
    (2 * MIB, {"roundup_power2_divisions": {"1": 4, "2": 2}}, 2 * MIB),
    (700, {"roundup_power2_divisions": {"1": 4}}, 1024), (3 * MIB + 1, {}, 3 * MIB + 512), (100, {"roundup_power2_divisions": {"1": 4}}, 512),
    (1200 * 1024, {"roundup_power2_divisions": {"1": 4, "2": 4}}, 1280 * 1024),
])
def test_requests_are_rounded_as_the_allocator_does(size: int, settings: dict[str, Any], expected: int) -> None:
    assert rounded(np.array([size], np.int64), settings).tolist() == [expected]


def test_remainders_that_stay() -> None:
    size = np.array([512, 2 * MIB, 200 * MIB], np.int64)
    assert unsplit(np.array([MIB, MIB + 1, 300 * MIB]), {"max_split_size": 200 * MIB}, expandable=False).tolist() == [0, MIB, 20 * MIB]
    assert unsplit(size, {}, expandable=False).tolist() == [0, MIB, MIB]
    assert unsplit(size, {"max_split_size": 128 * MIB}, expandable=False).tolist() == [0, MIB, 20 * MIB]
    assert unsplit(size, {"max_split_size": -1}, expandable=True).tolist() == [0, 0, 0]
    assert [segment_bytes(one) for one in (512, 2 * MIB, 11 * MIB)] == [2 * MIB, 20 * MIB, 12 * MIB]


@pytest.mark.parametrize("divisions", [{"1": True}, {"x": 4}, 4, {"9" * 30: 4}, {"1": -4}])
def test_settings_that_say_nothing_round_plainly(divisions: Any) -> None:
    assert rounded_one(1200 * 1024 + 1, {"roundup_power2_divisions": divisions}) == block_bytes(1200 * 1024 + 1)


@pytest.mark.parametrize("limit", [True, "128", None, 0])
def test_a_split_limit_that_is_none_leaves_a_mebibyte(limit: Any) -> None:
    assert unsplit(np.array([200 * MIB], np.int64), {"max_split_size": limit}, expandable=False).tolist() == [MIB]


def test_levels_end_where_the_segments_say() -> None:
    assert backward(np.array([5, -3, 4], np.int64), 10).tolist() == [4, 9, 6, 10]
    assert backward(np.array([], np.int64), 7).tolist() == [7]
