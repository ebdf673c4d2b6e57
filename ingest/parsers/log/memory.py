"""`[Rank N] (after N iterations) memory (MB) | ...` of every Megatron release, and Megatron-Bridge's `memory (GB)`.

"MB" are MiB; releases up to core 0.15 print Python's float repr, which is exact in bytes, later ones two decimals. Ranks that share a terminal
glue their records, so a line is searched, never split: a record counts only with all its fields, each whole, because a
number cut by a collision still looks like a number.
"""

from __future__ import annotations

import re

from ingest.parsers.base import Row
from ingest.parsers.log.quantities import GB, NUMBER, believable, decimals, rounding, size
from ingest.parsers.log.records import Context, LogLine

_HEAD = re.compile(
    r"(?:\[Rank ?(?P<rank>[\w-]+)\]\s*)?(?:\((?P<label>[^()|]{1,80})\)|(?P<old>after \d+ iterations))\s+memory \((?P<unit>[MG]i?B)\)\s*\|")
_FIELD = re.compile(rf"\s*\**\s*(?P<name>[A-Za-z][\w -]*?)\s*:\s*(?P<value>{NUMBER})(?P<tail>\**)(?![\w.])\s*(?P<end>\|?)")
_STEP = re.compile(r"after (\d+) iterations?$|(before|after) save_checkpoint for iteration (\d+)$|iteration (\d+)")
_COLUMNS = {
    "allocated": "allocated_bytes", "max allocated": "max_allocated_bytes", "reserved": "reserved_bytes", "max reserved": "max_reserved_bytes",
    "cached": "reserved_bytes", "max cached": "max_reserved_bytes", "total device memory used": "device_used_bytes",
}
_BRIDGE = {
    "mem-allocated-gigabytes": "allocated_bytes", "mem-max-allocated-gigabytes": "max_allocated_bytes",
    "mem-reserved-gigabytes": "reserved_bytes", "mem-max-reserved-gigabytes": "max_reserved_bytes",
}
_ALL = {"allocated_bytes", "max_allocated_bytes", "reserved_bytes", "max_reserved_bytes"}


class MemoryLines:
    """Megatron's own record of a rank's memory."""

    literals = ("memory (MB)", "memory (GB)", "memory (MiB)", "memory (GiB)")

    def take(self, line: LogLine, context: Context) -> bool:
        """One row a whole record; a damaged one becomes a reject."""
        heads = list(_HEAD.finditer(line.text))
        for at, head in enumerate(heads):
            end = heads[at + 1].start() if at + 1 < len(heads) else len(line.text)
            self._record(line, context, head, line.text[head.end():end])
        return bool(heads)

    def _record(self, line: LogLine, context: Context, head: re.Match[str], body: str) -> None:
        fields = _fields(body)
        bridge = any(name.startswith(("mem-", "host-mem-")) for name in fields)
        columns, other = (_bridge(fields) if bridge else _megatron(fields, head["unit"]))
        if not (columns.keys() >= _ALL or (bridge and {"allocated_bytes", "max_allocated_bytes"} <= columns.keys())) or _torn(fields, bridge):
            context.reject(line, head.group() + body, "a memory record whose fields are not all there")
            if head.end() + len(body) < len(line.text):
                self._certain(line, context, head, body)
            return
        row = _who_when(head, line, context)
        sizes = [columns.get(name) for name in (*sorted(_ALL), "device_used_bytes")]
        context.emit("rank_memory", line, **row, source="bridge_log" if bridge else "megatron_log", scope="cumulative", **columns,
                     rounding_bytes=_rounding(fields, head["unit"], bridge), valid=believable(*sizes), at=line.at, other=other or None)


    def _certain(self, line: LogLine, context: Context, head: re.Match[str], body: str) -> None:
        """What another rank's record ran into: the fields before the collision, each closed by its bar."""
        closed = _fields(body[:body.rfind("|") + 1])
        columns, _ = _megatron(closed, head["unit"])
        if columns and not _torn(closed, bridge=False):
            context.emit("rank_memory", line, **_who_when(head, line, context), source="megatron_log", scope="cumulative", **columns,
                         rounding_bytes=_rounding(closed, head["unit"], bridge=False), valid=believable(*columns.values()), at=line.at,
                         other={"damaged": "true"})


def _fields(body: str) -> dict[str, str]:
    """The fields that follow each other from the record's head on; what comes after a gap is another's."""
    fields: dict[str, str] = {}
    at = 0
    while match := _FIELD.match(body, at):
        fields[match["name"]] = match["value"]
        at = match.end()
        if not match["end"]:
            break
    return fields


def _megatron(fields: dict[str, str], unit: str) -> tuple[dict[str, int], dict[str, str]]:
    columns = {_COLUMNS[name]: size(value, unit) for name, value in fields.items() if name in _COLUMNS}
    return columns, {name: value for name, value in fields.items() if name not in _COLUMNS}


def _bridge(fields: dict[str, str]) -> tuple[dict[str, int], dict[str, str]]:
    """Bridge's gigabytes are decimal; what has no column keeps its size in bytes, counts as printed."""
    columns = {_BRIDGE[name]: size(value, GB) for name, value in fields.items() if name in _BRIDGE}
    other = {(name.replace("gigabytes", "bytes") if name.endswith("-gigabytes") else name):
             (str(size(value, GB)) if name.endswith("-gigabytes") else value) for name, value in fields.items() if name not in _BRIDGE}
    return columns, other


def _torn(fields: dict[str, str], bridge: bool) -> bool:
    """Whether a figure was cut: Megatron prints a point in each, and either two digits in all or none that end in 0 but `.0`."""
    if bridge:
        return any(name.endswith("-gigabytes") and "." not in value and "e" not in value for name, value in fields.items())
    values = [value for name, value in fields.items() if name in _COLUMNS]
    rounded = any(decimals(value) == 2 and value.endswith("0") for value in values)
    return any("." not in value or (rounded and decimals(value) != 2) for value in values)


def _rounding(fields: dict[str, str], unit: str, bridge: bool) -> int:
    if bridge:
        return max(rounding(value, GB) for name, value in fields.items() if name in _BRIDGE)
    values = [value for name, value in fields.items() if name in _COLUMNS]
    return rounding(values[0], unit) if all(decimals(value) == 2 for value in values) else 0


def _who_when(head: re.Match[str], line: LogLine, context: Context) -> Row:
    row: Row = {"iteration": context.iteration, "phase": head["label"] or "train"}
    if match := _STEP.search(head["label"] or head["old"]):
        row["iteration"] = int(match[1] or match[3] or match[4])
        row["phase"] = "train" if match[1] else f"{match[2]}_save_checkpoint" if match[2] else head["label"]
    if head["rank"]:
        row["rank"] = int(head["rank"]) if head["rank"].isdigit() else None
        row["rank_label"] = None if head["rank"].isdigit() else head["rank"]
    return row
