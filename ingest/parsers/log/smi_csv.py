"""`nvidia-smi --query-gpu=... --format=csv` and `rocm-smi --csv`, with or without the header that names the columns.

With a header each figure is what its column says. Without one nothing says which figure is used and which is free, and people query
them in either order: only the total is certain, where the others add up to it, or where it is a size that devices come in. So the other
figures are kept in `other` under no name, and what shows not even a total is rejected.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsers.log import devices
from ingest.parsers.log.prefixes import STAMP, moment
from ingest.parsers.log.quantities import MIB, UNITS, number
from ingest.parsers.log.records import Context, Fed, LogLine

_NVIDIA = re.compile(r"^(?=.*\bmemory\.(?:used|free|total)\b)(?:[\w.]+(?: \[[\w%]+\])?)(?:, ?[\w.]+(?: \[[\w%/]+\])?)*$")
_ROCM = re.compile(r"^device,.*VRAM Total(?: Used)? Memory \(B\)")
_SIZES = {"memory.total": "total_bytes", "memory.used": "used_bytes", "memory.free": "free_bytes", "VRAM Total Memory (B)": "total_bytes",
          "VRAM Total Used Memory (B)": "used_bytes"}
_BARE = re.compile(
    rf"^(?:(?P<at>{STAMP}), )?(?P<device>\d+), (?:(?P<name>(?!\d+ MiB)[^,]*[A-Za-z][^,]*), )*?(?P<rest>\d+ MiB(?:, .*)?)$")
_CAPACITIES = {15109, 15360, 16160, 16280, 16384, 22731, 23028, 24217, 24268, 24564, 24576, 32501, 32510, 32607, 32768, 40326, 40536, 40960, 46068,
               48685, 49140, 65247, 65536, 80995, 81037, 81079, 81089, 81251, 81559, 81920, 95830, 97871, 141312, 143771, 183359, 189471, 191496}
"""Totals in MiB that nvidia-smi prints for devices of data centres and desks."""
_ROOM = 0.04
"""Used and free together miss this share of the total at most: the driver keeps it."""


class SmiCsv:
    """Rows of `device_memory`."""

    literals = (" MiB", "memory.used", "memory.free", "memory.total", "VRAM Total Memory (B),", "VRAM Total Used Memory (B),")

    def take(self, line: LogLine, context: Context) -> bool:
        """Open a table at a header; read a row that stands without one."""
        text = line.text.strip()
        if _NVIDIA.match(text) or _ROCM.match(text):
            columns = [one.strip() for one in text.split(",")]
            context.facts["smi_columns"] = columns
            context.open(Rows(columns))
            return True
        known: list[str] | None = context.facts.get("smi_columns")
        if " MiB" not in text or "," not in text:
            return False
        return bool(known and _row(line, context, known)) or _bare(line, context, text)


class Rows:
    """Rows right after a header; those with units are known by the header later as well."""

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Rows of as many fields as the header until a line that is none."""
        return Fed.TAKEN if _row(line, context, self.columns) else Fed.CLOSED_BEFORE

    def finish(self, context: Context) -> None:
        """Rows are emitted as they come."""


def _row(line: LogLine, context: Context, columns: list[str]) -> bool:
    fields = [one.strip() for one in line.text.strip().split(",")]
    if len(fields) != len(columns):
        return False
    sizes: dict[str, int | None] = {}
    more: dict[str, Any] = {}
    other: dict[str, str] = {}
    for column, text in zip(columns, fields, strict=True):
        name = column.split(" [")[0]
        if name in _SIZES:
            if (value := _bytes(text, column)) is None:
                return False
            sizes[_SIZES[name]] = value
        elif name in ("index", "device"):
            if not (match := re.fullmatch(r"(?:card)?(\d{1,4})", text)):
                return False
            more["device"] = int(match[1])
        elif name in ("name", "gpu_name"):
            more["device_name"] = text
        elif name == "utilization.gpu":
            more["utilization_percent"] = number(text.removesuffix("%"))
        elif name == "timestamp":
            more["at"] = moment(text)
        else:
            other[name] = text
    return devices.emit(line, context, "rocm-smi" if "device" in columns else "nvidia-smi", sizes, other=other or None, **more)


def _bytes(text: str, column: str) -> int | None:
    match = re.fullmatch(r"(\d+)(?: ?(MiB|GiB|KiB))?", text)
    if not match:
        return None
    unit = match[2] or next(iter(re.findall(r"\[(\w+)\]", column)), "B" if "(B)" in column else "MiB")
    return int(match[1]) * UNITS.get(unit.lower(), MIB)


def _bare(line: LogLine, context: Context, text: str) -> bool:
    match = _BARE.match(text)
    sizes = [int(one) for one in re.findall(r"(\d+) MiB", match["rest"])] if match else []
    if not match or len(sizes) < 2:
        return False
    total = _total(sizes)
    if total is None:
        context.reject(line, text, "figures of a device without the header that names them")
        return True
    rest = [one for at, one in enumerate(sizes) if at != total]
    other = {f"unnamed_{at}_bytes": str(one * MIB) for at, one in enumerate(rest, 1)} | ({"name": match["name"]} if match["name"] else {})
    load = re.search(r"(\d+) %", match["rest"])
    more: dict[str, Any] = {"at": moment(match["at"])} if match["at"] else {}
    return devices.emit(line, context, "nvidia-smi", {"total_bytes": sizes[total] * MIB}, device=int(match["device"]), other=other,
                        utilization_percent=float(load[1]) if load else None, **more)


def _total(sizes: list[int]) -> int | None:
    """Which figure is the total: the largest, where the others add up to it or where devices come in that size."""
    largest = max(range(len(sizes)), key=lambda at: sizes[at])
    rest = sum(sizes) - sizes[largest]
    adds_up = len(sizes) == 3 and sizes[largest] * (1 - _ROOM) <= rest <= sizes[largest]
    return largest if adds_up or sizes[largest] in _CAPACITIES else None
