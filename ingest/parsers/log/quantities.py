"""Printed numbers as exact integers of bytes.

Decimal arithmetic, not float: `18633.24462890625` MiB is a whole number of bytes and must come out as that number. "MB" and
"GB" are binary here except where a recogniser says that its program prints decimal ones.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation

KIB, MIB, GIB, TIB, GB = 2**10, 2**20, 2**30, 2**40, 10**9
UNITS = {"b": 1, "bytes": 1, "kib": KIB, "kb": KIB, "mib": MIB, "mb": MIB, "gib": GIB, "gb": GIB, "tib": TIB, "tb": TIB,
         "pib": 2**50, "pb": 2**50}
LARGEST_BYTES = 2**50
"""No device holds a pebibyte: a larger figure is an overflow."""
LARGEST_COLUMN = 2**63 - 1
NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3}(?!\d))?"
"""Three digits of an exponent are more than any float prints; what a collision made longer is none, and would overflow."""


def size(text: str, unit: str | int) -> int:
    """Bytes of a printed size; `unit` is a name of `UNITS` or a factor."""
    factor = unit if isinstance(unit, int) else UNITS[unit.lower()]
    return int((Decimal(text.replace(",", "")) * factor).to_integral_value())


def exact(text: str, unit: str | int) -> bool:
    """Whether a printed float names a whole number of bytes, as the repr of `bytes / 2**20` does and a rounded or a cut figure hardly ever."""
    factor = unit if isinstance(unit, int) else UNITS[unit.lower()]
    value = Decimal(text.replace(",", "")) * factor
    return abs(value - value.to_integral_value()) < Decimal("0.001")


def decimals(text: str) -> int:
    """How many digits stand after the point."""
    return len(text.split(".", 1)[1]) if "." in text else 0


def rounding(text: str, unit: str | int) -> int:
    """Largest error in bytes of a figure rounded to its last printed digit."""
    factor = unit if isinstance(unit, int) else UNITS[unit.lower()]
    return int(factor * Decimal(5) * Decimal(10) ** -(decimals(text) + 1)) + 1


def number(text: str) -> float | None:
    """A printed number, null where it is none (`nan` and `inf` included: no measure can use them)."""
    try:
        value = Decimal(text.strip().replace(",", ""))
    except InvalidOperation:
        return None
    found = float(value) if value.is_finite() else math.inf
    return found if math.isfinite(found) else None


def believable(*sizes: int | None) -> bool:
    """Whether sizes can be true: not all zero, none negative, none beyond any device."""
    known = [one for one in sizes if one is not None]
    return bool(known) and any(known) and all(0 <= one <= LARGEST_BYTES for one in known)
