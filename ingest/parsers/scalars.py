"""Memory scalars by the names that trackers give them, as rows of `rank_memory`: Megatron-LM, Megatron-Bridge, OpenTelemetry, W&B.

Megatron writes TensorBoard and W&B on the last rank only, so a figure without a rank is that of `last`, not of rank 0 as the printed
theory beside it. Trackers keep floats: a TensorBoard scalar is a float32, whose steps at 64 GiB are 4 KiB; `rounding_bytes` says so. Bridge's
gigabytes are decimal. A tag of another subject is no record here and is passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ingest.parsers.base import Row

_UNITS = {"bytes": 1, "byte": 1, "by": 1, "b": 1, "gigabytes": 10**9, "gb": 10**9, "gib": 2**30, "megabytes": 10**6, "mb": 10**6, "mib": 2**20}
_NAME = re.compile(
    r"(?:^|[/-])(?:mem|memory)[/-](?P<most>max-|peak-)?(?P<what>allocated|reserved|cached|used|total|free)(?:-(?P<unit>bytes|byte|gigabytes|gb|gib|"
    r"megabytes|mb|mib))?$")
_COUNT = re.compile(r"(?:^|[/-])(?:mem|memory)[/-](?P<what>allocated-count|alloc-retries|num-alloc-retries|num-ooms)$")
_COLUMNS = {("allocated", False): "allocated_bytes", ("allocated", True): "max_allocated_bytes", ("reserved", False): "reserved_bytes",
            ("reserved", True): "max_reserved_bytes", ("cached", False): "reserved_bytes", ("cached", True): "max_reserved_bytes",
            ("used", False): "device_used_bytes", ("total", False): "device_total_bytes"}
LARGEST_BYTES = 1 << 48


@dataclass(slots=True)
class Step:
    """The scalars of one rank and step so far."""

    step: int
    rank: int | None
    line: int | None
    columns: dict[str, int] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)
    rounding: int = 0
    at: datetime | None = None
    valid: bool = True

    def add(self, name: str, value: float, unit: str | None = None, *, single: bool = False) -> bool:
        """Take a scalar that is one of memory; False for any other. `single`: it was a float32."""
        tidy = re.sub(r"[._ ]", "-", name.strip().lower())
        if counted := _COUNT.search(tidy):
            self.other[counted["what"]] = f"{value:.0f}" if math.isfinite(value) else str(value)
            return True
        match = _NAME.search(tidy)
        factor = _UNITS.get((match["unit"] or unit or "").lower()) if match else None
        column = _COLUMNS.get((match["what"], match["most"] is not None)) if match else None
        if match is None or factor is None or column is None:
            return False
        if not math.isfinite(value) or not 0 <= value * factor < LARGEST_BYTES:
            self.other[name], self.valid = str(value), False
            return True
        self.columns[column] = round(value * factor)
        self.rounding = max(self.rounding, math.ceil(_spacing(value) * factor / 2) if single else factor // 2 if factor > 1 and value % 1 == 0 else 0)
        return True

    def row(self, source: str) -> Row | None:
        """The record; None where no memory was among the scalars."""
        if not self.columns and self.valid:
            return None
        valid = self.valid and any(self.columns.values())
        label = None if self.rank is not None else "last"
        return {"run_index": 0, "line": self.line, "rank": self.rank, "rank_label": label, "iteration": self.step, "phase": "train",
                "source": source, "scope": "cumulative", **self.columns, "rounding_bytes": self.rounding, "valid": valid, "at": self.at,
                "other": self.other or None}


def _spacing(value: float) -> float:
    """The distance from a float32 to its next."""
    return 2.0 ** (math.frexp(value)[1] - 24) if value else 0.0


def moment(seconds: float) -> datetime | None:
    """A time since 1970 as UTC without zone; None where it is none."""
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return None


def whole(value: Any) -> int | None:
    """A step or rank; None for what is none."""
    if isinstance(value, str) and value.strip().lstrip("-").isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else None


def number(value: Any) -> float | None:
    """A figure; None for what is none."""
    try:
        return None if isinstance(value, bool) or value is None or value == "" else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def flattened(record: Mapping[str, Any], prefix: str = "", depth: int = 4) -> dict[str, Any]:
    """Nested objects as one, names joined by slashes."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict) and depth:
            found |= flattened(value, f"{prefix}{name}/", depth - 1)
        else:
            found[f"{prefix}{name}"] = value
    return found
