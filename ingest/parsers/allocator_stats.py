"""Readings of PyTorch's caching allocator, found in any decoded value, as rows of `memory_stats` and `rank_memory`.

`torch.cuda.memory_stats()` is flat (`allocated_bytes.all.peak`), `memory_stats_as_nested_dict()` nests the same names, and
people's own loops write summaries (`max_allocated_bytes`, `memory_reserved`). All become one mapping of torch's names. Who and
when (rank, step) stands beside the counters, around them, or in the key above them; a list's index is NOT taken for a
rank, because nothing says that it is one. Every counter is kept, whether it has a column or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ingest.parsers.base import Row

_SUMMARY = {
    "allocated_bytes": "allocated_bytes.all.current", "memory_allocated": "allocated_bytes.all.current",
    "max_allocated_bytes": "allocated_bytes.all.peak", "max_memory_allocated": "allocated_bytes.all.peak",
    "reserved_bytes": "reserved_bytes.all.current", "memory_reserved": "reserved_bytes.all.current",
    "max_reserved_bytes": "reserved_bytes.all.peak", "max_memory_reserved": "reserved_bytes.all.peak",
    "active_bytes": "active_bytes.all.current", "requested_bytes": "requested_bytes.all.current",
}
"""Names of people's summaries, and of torch's functions, beside the counter each one reads."""
_METRICS = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes")
_COUNTS = ("num_alloc_retries", "num_ooms")
_PROOF = re.compile(r"(?:allocated_bytes|reserved_bytes|active_bytes)\.\w+\.(?:current|peak)")
_RANK_NAMES = ("rank", "global_rank")
_STEP_NAMES = ("iteration", "step", "global_step", "iter")
_DEVICE_NAMES = {"device_total_bytes": ("device_total_bytes", "total_bytes"), "device_free_bytes": ("device_free_bytes", "free_bytes")}
_DESCRIBED = {*_RANK_NAMES, *_STEP_NAMES, "local_rank", "time", "timestamp", "scope", "phase",
              *(one for names in _DEVICE_NAMES.values() for one in names)}
_KEY = re.compile(r"(?:(rank|step|iteration|iter)[ _-]?)?(\d{1,9})")
_DEEPEST = 6
_INT64 = 2**63 - 1
_LARGEST_RANK = 2**31 - 1
_LARGEST_BYTES = 2**60
"""No device holds an exbibyte: a larger figure of what is held now is an overflow."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading: counters by torch's flat names, who and when; `other` keeps what has no place."""

    counters: dict[str, int] = field(default_factory=dict)
    rank: int | None = None
    rank_label: str | None = None
    iteration: int | None = None
    time: float | None = None
    scope: str = "cumulative"
    phase: str | None = None
    device_total_bytes: int | None = None
    device_free_bytes: int | None = None
    other: dict[str, str] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """Whether the figures can be true: not all zero, none negative or beyond any device, no more free than there is."""
        held = [value for name, value in self.counters.items() if "_bytes" in name and not name.endswith((".allocated", ".freed"))]
        total, free = self.device_total_bytes, self.device_free_bytes
        device = total is None or free is None or 0 <= free <= total
        return device and any(held) and all(0 <= value < _LARGEST_BYTES for value in held)


def readings(value: Any, known: Reading | None = None, depth: int = 0) -> Iterator[Reading]:
    """Every reading in a decoded JSON value; what stands around a reading (rank, step) holds for it."""
    known = known or Reading()
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from readings(item, known, depth + 1)
    elif isinstance(value, Mapping):
        yield from _of_mapping(value, known, depth)


def _of_mapping(value: Mapping[str, Any], known: Reading, depth: int) -> Iterator[Reading]:
    counters, rest = split_counters(value)
    if _is_reading(counters):
        yield replace(_described(rest, known, keep=True), counters=counters)
        return
    around = _described(value, known, keep=False)
    for key, item in value.items():
        if key == "stats" and item == {}:
            yield around
        elif isinstance(item, Mapping | list):
            yield from readings(item, _keyed(key, around), depth + 1)


def split_counters(value: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """The counters of a flat or nested mapping by torch's flat names, and the fields that are none."""
    counters: dict[str, int] = {}
    rest: dict[str, Any] = {}
    for name, item in _flat(value):
        number = _integer(item)
        if number is None or name in _DESCRIBED:
            rest[name] = item
        else:
            counters[_SUMMARY.get(name, name)] = number
    return counters, rest


def _flat(value: Mapping[str, Any], above: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping) and depth < _DEEPEST:
            yield from _flat(item, f"{above}{name}.", depth + 1)
        else:
            yield f"{above}{name}", item


def _is_reading(counters: Mapping[str, int]) -> bool:
    return any(_PROOF.fullmatch(name) for name in counters)


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _INT64 else None


def _described(fields: Mapping[str, Any], known: Reading, *, keep: bool) -> Reading:
    """What is known of a reading, from the fields beside or around its counters; `keep` the others as text."""
    rank, iteration = _rank(_first(fields, _RANK_NAMES, spelled=True)), _first(fields, _STEP_NAMES, spelled=True)
    label = f"local {fields['local_rank']}" if rank is None and _integer(fields.get("local_rank")) is not None else None
    time = fields.get("time", fields.get("timestamp"))
    scope, phase = fields.get("scope"), fields.get("phase")
    other = {name: str(value) for name, value in fields.items() if name not in _DESCRIBED} if keep else {}
    return Reading(
        rank=known.rank if rank is None else rank, rank_label=label or known.rank_label,
        iteration=known.iteration if iteration is None else iteration,
        time=float(time) if isinstance(time, int | float) and not isinstance(time, bool) else known.time,
        scope=scope if scope in ("cumulative", "interval") else known.scope,
        phase=phase if isinstance(phase, str) else known.phase,
        device_total_bytes=_or(_first(fields, _DEVICE_NAMES["device_total_bytes"]), known.device_total_bytes),
        device_free_bytes=_or(_first(fields, _DEVICE_NAMES["device_free_bytes"]), known.device_free_bytes),
        other={**known.other, **other})


def _keyed(key: str, around: Reading) -> Reading:
    """What a key says of the reading under it: `3` and `rank3` a rank, `step 10` an iteration, `cuda:0` a label."""
    match = _KEY.fullmatch(key)
    if match is None:
        return replace(around, rank_label=key) if key.startswith(("cuda:", "device")) and around.rank is None else around
    number = int(match.group(2))
    return replace(around, rank=_rank(number)) if match.group(1) in (None, "rank") else replace(around, iteration=number)


def _first(fields: Mapping[str, Any], names: tuple[str, ...], *, spelled: bool = False) -> int | None:
    """The first of the names that holds a whole number; `spelled`: its digits may be a text, as an environment variable's are."""
    found = (_spelled(fields.get(name)) if spelled else fields.get(name) for name in names)
    return next((number for value in found if (number := _integer(value)) is not None), None)


def _spelled(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10 else value


def _rank(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= _LARGEST_RANK else None


def _or(value: int | None, default: int | None) -> int | None:
    return default if value is None else value


def rows_of(reading: Reading) -> dict[str, Row]:
    """The reading as one row of `memory_stats` and one of `rank_memory`, without the columns of its artifact."""
    who: Row = {"rank": reading.rank, "rank_label": reading.rank_label if reading.rank is None else None, "iteration": reading.iteration,
                "scope": reading.scope, "at": _moment(reading.time), "valid": reading.valid, "other": reading.other or None}
    return {"memory_stats": {**who, **_stats_columns(reading)}, "rank_memory": {**who, **_memory_columns(reading)}}


def _stats_columns(reading: Reading) -> Row:
    counters = reading.counters
    sizes = {f"{metric}_all_{when}_bytes": counters.get(f"{metric}.all.{when}")
             for metric in _METRICS for when in ("current", "peak", "allocated", "freed")}
    return {"device_total_bytes": reading.device_total_bytes, "device_free_bytes": reading.device_free_bytes, **sizes,
            **{name: counters.get(name) for name in _COUNTS}, "counters": counters}


def _memory_columns(reading: Reading) -> Row:
    counters, total, free = reading.counters, reading.device_total_bytes, reading.device_free_bytes
    return {
        "phase": reading.phase or ("train" if reading.iteration is not None else None), "source": "memory_stats",
        "allocated_bytes": counters.get("allocated_bytes.all.current"), "max_allocated_bytes": counters.get("allocated_bytes.all.peak"),
        "reserved_bytes": counters.get("reserved_bytes.all.current"), "max_reserved_bytes": counters.get("reserved_bytes.all.peak"),
        "device_used_bytes": None if total is None or free is None else total - free, "device_total_bytes": total, "rounding_bytes": 0}


def _moment(time: float | None) -> datetime | None:
    """Seconds since 1970 as a time in UTC without a zone, as the lake keeps it; None where no clock says such a time."""
    return datetime.fromtimestamp(time, UTC).replace(tzinfo=None) if time is not None and 0 < time < 2**33 else None
