"""How much memory a device offers: from a size or a name that a user gives, or from the device's printed name.

The artifact's own figure (an out-of-memory message, a device total) comes first: it is what torch could use. A marketing "80 GB" is
not: an A100-80 offers about 79.2 GiB. The table holds usable GiB as torch reports it, near values, used only where no artifact tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ingest.errors import LedgerError

GIB = 2**30

USABLE_GIB: dict[str, float] = {
    "A100-40": 39.4, "A100-80": 79.2, "H100-80": 79.2, "H200": 139.8, "B200": 178.4, "GH200": 94.5, "MI250X": 64.0, "MI300X": 192.0, "910B": 61.0,
}
"""Usable GiB of a device, about, by its name; an MI250X is one of its two halves."""

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", re.IGNORECASE)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bytes a device offers, and who says so."""

    capacity_bytes: int
    source: str


def given_capacity(text: str) -> Capacity:
    """The capacity a user gives: `80GiB`, `79.2 GiB`, `80GB` (decimal), bytes, or a device name. Raises LedgerError."""
    if match := _SIZE.fullmatch(text):
        number, unit, binary = match.groups()
        size = int(float(number) * (1024 if binary or not unit else 1000) ** _POWER[unit.upper()])
        if size >= GIB // 4:
            return Capacity(size, f"given as {text.strip()}")
    elif found := capacity_of_device(text):
        return found
    raise LedgerError(f"capacity is {text!r}; a size such as 79.2GiB, or a device of {', '.join(USABLE_GIB)}, would fit")


def capacity_of_device(name: str) -> Capacity | None:
    """The capacity of a device by the name its driver prints, such as `NVIDIA A100-SXM4-80GB`; null where the name leaves it open."""
    upper = name.upper()
    for device, gib in USABLE_GIB.items():
        family, _, size = device.partition("-")
        if re.search(rf"(?<![A-Z0-9]){family}(?![0-9])", upper) and (not size or re.search(rf"(?<!\d){size}(?!\d)", upper)):
            return Capacity(int(gib * GIB), f"usual for {device}")
    return None
