"""What is kept beside a picture has no time, duration, day of today or place of this machine; a picture that differs by a speck stays as it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from PIL import Image

from docs.make_pictures import ROOT, SHOTS, alike, words


class Page:
    """A browser that shows these words."""

    def __init__(self, text: str) -> None:
        self.text = text

    def execute_script(self, script: str) -> str:
        return self.text


def test_what_varies_is_taken_out_of_the_words() -> None:
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    shown = Page(f"3 files:  3 new, in 12.4 s.\n\n\tRead at {ROOT}/sample_data/a.log:7\n{yesterday} 09:12 and 2026-06-11 08:00\n75.9 GiB of 79 ")
    assert words(shown).splitlines() == ["3 files: 3 new, in N s.", "Read at sample_data/a.log:7", "TODAY TIME and 2026-06-11 TIME", "75.9 GiB of 79"]


@pytest.mark.parametrize(("side", "same"), [(0, True), (6, True), (30, False)])
def test_only_more_than_a_speck_makes_a_new_picture(side: int, same: bool) -> None:
    old = Image.new("RGB", (200, 100), "white")
    new = old.copy()
    new.paste("black", (10, 10, 10 + side, 10 + side))
    assert alike(new, old) is same


def test_pictures_of_two_sizes_are_not_alike() -> None:
    assert not alike(Image.new("RGB", (20, 10)), Image.new("RGB", (20, 11)))


def test_each_shot_has_a_name_of_its_own() -> None:
    assert len({shot.name for shot in SHOTS}) == len(SHOTS) >= 15
