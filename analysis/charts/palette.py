"""The colours of every picture, by what is drawn: the same class, measure or verdict looks and reads the same in the app and in the report.

Seven fills are those of Okabe and Ito ("Color Universal Design", 2008); the others were searched for so that any two classes stay apart under
protanopia, deuteranopia and tritanopia (`tests/analysis/charts/test_palette.py` simulates them). No twelve fills that differ so can all stand out
from white and from black: every mark has an outline that does, and lines and points take their colour from `LINES`, which do by themselves.
"""

from __future__ import annotations

LIGHT, DARK = "#FFFFFF", "#171614"
"""Backgrounds of the app's two themes."""
PAPERS = (LIGHT, DARK, "#0D1117")
"""Those, and the report's dark one."""
OUTLINE = "#808080"

BLUE, SKY, GREEN, ORANGE, YELLOW, VERMILLION, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#F0E442", "#D55E00", "#CC79A7"
VIOLET, PALE_GREEN, INDIGO, BROWN, GREY, FREE_GREY = "#9966FF", "#BBEE99", "#4400CC", "#662200", "#666666", "#D9D9D9"
LINES = (BLUE, GREEN, VERMILLION, PURPLE, VIOLET, GREY)
"""Stand out from both backgrounds without an outline."""

CLASSES = {
    "weights": BLUE, "gradient buffer": SKY, "optimizer": GREEN, "activations": ORANGE, "running layer": YELLOW, "recomputed": BROWN,
    "logits and loss": VERMILLION, "workspace": PURPLE, "communication": VIOLET, "checkpoint": PALE_GREEN, "input": INDIGO, "other": GREY,
    "unknown": GREY,
}
"""What memory holds, in the order of stacks: `other` has no place of its own in a ledger, `unknown` is named by no rule in a snapshot."""
FREE = "free"
PARTS = {"resident difference": BLUE, "activation difference": ORANGE, "last stage head": VERMILLION, "cached": SKY, "outside torch": VIOLET,
         "unexplained": GREY}
"""Where the gap between a ledger and a measurement goes."""
MEASURES = {"allocated": BLUE, "peak allocated": GREEN, "reserved": PURPLE, "max reserved": PURPLE, "outside torch": VIOLET, "capacity": VERMILLION}
"""What is measured of a rank, in the order of bars; drawn as lines too, so all are of `LINES`."""
NEAR = {"stable": VERMILLION, "occasional": ORANGE, "insufficient": SKY, "undetermined": GREY, "clear": BLUE}
"""How often a rank came near its limit."""
RISERS = {"need": BLUE, "fragmentation": VERMILLION, "free on another stream or pool": PURPLE, "undecided": GREY, "not told": GREY}
"""What raised reserved memory."""
FRAMED = {"printed": GREY, "measured": BLUE}
SIDES = {"before": GREY, "after": BLUE}
SIGNS = {"saves": BLUE, "costs": VERMILLION}
BOUNDS = {"at least (lower bound)": BLUE, "estimate": SKY, "at most (upper bound)": FREE_GREY}
POOLS = {"allocated": BLUE, "pending": ORANGE, "free pieces": VERMILLION, "free segments": FREE_GREY}
CASES = dict(zip(("A", "B", "B1", "B2", "B3", "C", "D", "E", "F", "G", "unknown"),
                 (VERMILLION, BLUE, SKY, INDIGO, VIOLET, GREEN, ORANGE, PURPLE, YELLOW, BROWN, GREY), strict=True))
"""Cases of an out-of-memory error."""

RAMP = ("#CDE3F2", "#8DBBDD", "#3F88BB", "#00558C")
"""One hue from light to dark, the darker the fuller: it needs no colour vision."""


def shade(share: float) -> str:
    """The colour of `RAMP` at a share of its length, 0 to 1."""
    at = min(max(share, 0.0), 1.0) * (len(RAMP) - 1)
    low = min(int(at), len(RAMP) - 2)
    pairs = zip(_channels(RAMP[low]), _channels(RAMP[low + 1]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (at - low)):02X}" for a, b in pairs)


def class_name(name: str) -> str:
    """A class of a table as pictures and pages word it."""
    return name.replace("_", " ")


def ink(fill: str) -> str:
    """White or near black, whichever reads better on a fill."""
    light, own = luminance(LIGHT), luminance(fill)
    return "#FFFFFF" if (light + 0.05) / (own + 0.05) >= (own + 0.05) / (luminance("#1B1F24") + 0.05) else "#1B1F24"


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (one / 255 for one in _channels(colour)))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
