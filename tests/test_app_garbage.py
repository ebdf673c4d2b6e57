"""Garbage is looked for at most twice a minute, by whichever script ends then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from app_pages import _garbage
from app_pages._garbage import EVERY_SECONDS, collect_now_and_then


class Circle:
    """Something that only the collector frees."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_garbage, "_last", 0.0)
    gc.disable()
    yield
    gc.enable()


def test_a_circle_is_freed_once_the_time_has_come_and_not_before() -> None:
    left = weakref.ref(Circle())
    assert not collect_now_and_then(lambda: EVERY_SECONDS - 1)
    assert left() is not None
    assert collect_now_and_then(lambda: EVERY_SECONDS)
    assert left() is None


def test_the_next_round_is_as_long_after_the_last() -> None:
    assert [collect_now_and_then(lambda at=at: at * EVERY_SECONDS / 2) for at in range(1, 8)] == [False, True, False, True, False, True, False]
