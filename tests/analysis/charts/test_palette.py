"""Colours: one a class wherever it is shown, apart from one another under common colour-vision deficiencies, and seen on light and dark paper.

Deficiencies are simulated with the matrices of severity 1.0 of Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of
Color Vision Deficiency", IEEE TVCG 15(6), 2009, applied to linear RGB; distances are CIE76 in L*a*b* (D65), where about 2.3 is just noticeable.
"""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import pytest

from analysis.charts import palette
from analysis.charts.ledger_rows import MEMBERS
from analysis.database import from_rows
from analysis.overview import overview
from analysis.report.html import as_html
from analysis.snapshot.charts import COLOURS
from analysis.snapshot.rules import CATEGORIES
from tests.analysis.made import dense_run

VISIONS = {
    "typical": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
APART = 15
PALETTES: dict[str, dict[str, str]] = {name: getattr(palette, name) for name in (
    "CLASSES", "PARTS", "NEAR", "RISERS", "FRAMED", "SIDES", "SIGNS", "BOUNDS", "POOLS", "CASES", "MEASURES")}


def linear(colour):
    parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    return [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]


def lab(colour, vision):
    red, green, blue = (min(1.0, max(0.0, sum(a * b for a, b in zip(row, linear(colour), strict=True)))) for row in vision)
    xyz = ((0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047, 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue,
           (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883)
    x, y, z = (one ** (1 / 3) if one > 216 / 24389 else (24389 / 27 * one + 16) / 116 for one in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one, other, vision):
    return sum((a - b) ** 2 for a, b in zip(lab(one, vision), lab(other, vision), strict=True)) ** 0.5


def contrast(one, other):
    def light(colour):
        red, green, blue = linear(colour)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("name", PALETTES)
def test_any_two_colours_of_a_picture_stay_apart(name, vision):
    for (one, first), (other, second) in combinations(PALETTES[name].items(), 2):
        if first != second:
            assert distance(first, second, VISIONS[vision]) >= APART, f"{one} and {other}"


def test_only_what_is_not_known_and_both_readings_of_reserved_share_a_colour():
    shared = {name for found in PALETTES.values() for name, colour in found.items() if list(found.values()).count(colour) > 1}
    assert shared == {"other", "unknown", "undecided", "not told", "reserved", "max reserved"}


def test_outlines_and_lines_stand_out_from_both_backgrounds():
    for colour in (palette.OUTLINE, *palette.LINES, *palette.RISERS.values(), *palette.MEASURES.values()):
        for paper in palette.PAPERS:
            assert contrast(colour, paper) >= 3, f"{colour} on {paper}"


def test_fills_are_not_lost_on_either_background():
    for found in PALETTES.values():
        for name, colour in found.items():
            assert min(contrast(colour, paper) for paper in palette.PAPERS) >= 1.3, name


def test_labels_on_fills_are_read():
    for colour in {*palette.CLASSES.values(), *(palette.shade(at / 20) for at in range(21))}:
        assert contrast(colour, palette.ink(colour)) >= 3.9, colour


def test_the_ramp_gets_darker_all_along():
    lights = [palette.luminance(palette.shade(at / 30)) for at in range(31)]
    assert all(after < before for before, after in pairwise(lights))
    assert (palette.shade(-1), palette.shade(2)) == (palette.RAMP[0], palette.RAMP[-1])


def test_a_class_has_one_name_and_colour_in_ledger_and_snapshot():
    assert set(MEMBERS) <= set(palette.CLASSES)
    for name in CATEGORIES:
        assert COLOURS[name] == palette.CLASSES[palette.class_name(name)]


def test_the_report_has_the_colours_and_words_of_the_app_on_papers_that_are_held_here():
    html = as_html(overview(from_rows(dense_run()), "file"))
    assert {paper.upper() for paper in re.findall(r"--paper: (#\w{6})", html)} <= set(palette.PAPERS)
    for name in ("allocated", "peak allocated", "max reserved", "outside torch", "capacity"):
        assert f'background:{palette.MEASURES[name]}"></i>{name}<' in html
    bars = re.search(r'<svg[^>]*aria-label="memory of the fullest ranks">.*?</svg>', html, re.DOTALL)
    assert bars is not None
    assert {"allocated", "peak allocated", "max reserved"} <= {
        name for name in palette.MEASURES if f'fill="{palette.MEASURES[name]}"' in bars[0]}
    assert set(re.findall(r'fill="(#\w{6})"', bars[0])) <= set(palette.MEASURES.values())
