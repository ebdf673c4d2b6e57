"""`[Rank N] (after N iterations) memory (MB) | ...` of every Megatron release, and Megatron-Bridge's `memory (GB)`.

"MB" are MiB; releases up to core 0.15 print Python's float repr, which is exact in bytes, later ones two decimals. Ranks that share a terminal
glue their records, so a line is searched, never split: a record counts only with all its fields, each whole, because a
number cut by a collision still looks like a number. What a wrap tore over several lines is put together where all of it is there.
"""

from __future__ import annotations

import re

from ingest.parsers.base import Row
from ingest.parsers.log import actors
from ingest.parsers.log.quantities import GB, LARGEST_COLUMN, NUMBER, believable, decimals, exact, rounding, size
from ingest.parsers.log.records import Context, LogLine
from ingest.parsers.log.wrapped import Wrapped

_HEAD = re.compile(
    r"(?:\[Rank ?(?P<rank>[^\[\]|]{1,40})\]\s*)?(?:\((?P<label>[^()|]{1,80})\)|(?P<old>(?:after|before) [\w.,-]{1,40}(?: [\w.,-]{1,40}){0,6}?))\s+"
    r"memory \((?P<unit>[MG]i?B)\)\s*\\?\|")
_WRAPPED_HEAD = re.compile(r"\[Rank ?[^\[\]|]{1,40}\]\s*\((?:after|before) (?!.*\|)[^|]*$")
_STRANGE = re.compile(r"\[Rank ?[^\[\]|]{1,40}\]\s*\((?:after|before) [^()|]{1,80}\)\s+memory(?! \([MG]i?B\))(?: \([^()|]{0,20}\))?\s*\|"
                      r"(?=[^|]{0,60}allocated\s*:)[^\[]*")
_FIELD = re.compile(
    rf"\s*(?:\*+\s*)?(?P<name>[A-Za-z][\w -]{{0,60}}?)\s*:\s*(?P<value>-?\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|{NUMBER})"
    r"(?P<tail>\**)(?!\w|[.,]\w)\s*(?P<end>\\?\|?)")
_STEP = re.compile(r"after (\d+) iterations?$|(before|after) save_checkpoint for iteration (\d+)$|iteration (\d+)")
_CUTTER = re.compile(
    r"[A-Za-z][\w.-]{0,63}:\d+:\d+ \[\d+\] (?:\S+ )?NCCL |(?:\[[\d: .-]{19,26}\] )?\biteration\s{1,16}\d+/|"
    r"Theoretical memory footprints|(?:Total n|N)umber of |compute_activation_memory|\[rank\d+\]:")
_COLUMNS = {
    "allocated": "allocated_bytes", "max allocated": "max_allocated_bytes", "reserved": "reserved_bytes", "max reserved": "max_reserved_bytes",
    "cached": "reserved_bytes", "max cached": "max_reserved_bytes", "total device memory used": "device_used_bytes",
}
_BRIDGE = {
    "mem-allocated-gigabytes": "allocated_bytes", "mem-max-allocated-gigabytes": "max_allocated_bytes",
    "mem-reserved-gigabytes": "reserved_bytes", "mem-max-reserved-gigabytes": "max_reserved_bytes",
}
_ALL = {"allocated_bytes", "max_allocated_bytes", "reserved_bytes", "max_reserved_bytes"}
_NO_UNIT = "a memory record in a unit that no Megatron prints, or in none"
_WHY = "a memory record whose fields are not all there"


class MemoryLines:
    """Megatron's own record of a rank's memory."""

    literals = ("memory (MB)", "memory (GB)", "memory (MiB)", "memory (GiB)", "] (after ", "] (before save")

    def take(self, line: LogLine, context: Context) -> bool:
        """One row a whole record; a damaged one becomes a reject, or waits for the rest of it where it ends with the line."""
        heads = list(_HEAD.finditer(line.text))
        for at, head in enumerate(heads):
            last = at + 1 == len(heads)
            end = len(line.text) if last else heads[at + 1].start()
            cutter = _CUTTER.search(line.text, head.end(), end)
            _record(line, context, head, line.text[head.end():cutter.start() if cutter else end], open_end=last and not cutter)
        strange = list(_STRANGE.finditer(line.text)) if line.text.count(") memory") > len(heads) else []
        for match in strange:
            context.reject(line, match.group(), _NO_UNIT)
        if not heads and (torn := _WRAPPED_HEAD.search(line.text)):
            context.open(Wrapped(line, torn.group(), _whole, _read, _ignore))
        return bool(heads or strange)


def _record(line: LogLine, context: Context, head: re.Match[str], body: str, *, open_end: bool) -> None:
    fields = _fields(body)
    if _complete(fields, body):
        _emit(line, context, head, fields)
    elif open_end:
        context.open(Wrapped(line, head.group() + body, _whole, _read, _reject))
    else:
        context.reject(line, head.group() + body, _WHY)
        _certain(line, context, head, body)


def _emit(line: LogLine, context: Context, head: re.Match[str], fields: dict[str, str], other: dict[str, str] | None = None) -> None:
    bridge = _is_bridge(fields)
    columns, more = _bridge(fields) if bridge else _megatron(fields, head["unit"])
    sizes = [columns.get(name) for name in (*_ALL, "device_used_bytes")]
    for name in [name for name, value in columns.items() if abs(value) > LARGEST_COLUMN]:
        more[name] = str(columns.pop(name))
    row = _who_when(head, line, context)
    actors.learn(line, context, row.get("rank", line.rank))
    context.emit("rank_memory", line, **row, source="bridge_log" if bridge else "megatron_log", scope="cumulative", **columns,
                 rounding_bytes=_rounding(fields, head["unit"], bridge), valid=believable(*sizes), at=line.at, other=more | (other or {}) or None)


def _certain(line: LogLine, context: Context, head: re.Match[str], body: str) -> None:
    """What another's text ran into: the fields before the collision, each closed by its bar."""
    closed = _fields(body[:body.rfind("|") + 1])
    columns, _ = _megatron(closed, head["unit"])
    if columns and not _torn(closed, ""):
        _emit(line, context, head, {name: value for name, value in closed.items() if name in _COLUMNS}, {"damaged": "true"})


def _whole(text: str) -> int:
    head = _HEAD.search(text)
    return int(bool(head) and _complete(_fields(text[head.end():]), text)) if head else 0


def _read(line: LogLine, context: Context, text: str) -> None:
    if head := _HEAD.search(text):
        _emit(line, context, head, _fields(text[head.end():]), {"wrapped": "true"})


def _reject(line: LogLine, context: Context, text: str) -> None:
    context.reject(line, text, _WHY)


def _ignore(line: LogLine, context: Context, text: str) -> None:
    """A head that never went on is no record."""


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


def _is_bridge(fields: dict[str, str]) -> bool:
    return any(name.startswith(("mem-", "host-mem-")) for name in fields)


def _complete(fields: dict[str, str], body: str) -> bool:
    """Whether all figures of a record are there and none is cut."""
    bridge = _is_bridge(fields)
    there = {_BRIDGE[name] for name in fields if name in _BRIDGE} if bridge else {_COLUMNS[name] for name in fields if name in _COLUMNS}
    return (there >= _ALL or (bridge and {"allocated_bytes", "max_allocated_bytes"} <= there)) and not _torn(fields, body)


def _megatron(fields: dict[str, str], unit: str) -> tuple[dict[str, int], dict[str, str]]:
    columns = {_COLUMNS[name]: size(value, unit) for name, value in fields.items() if name in _COLUMNS}
    return columns, {name: value for name, value in fields.items() if name not in _COLUMNS}


def _bridge(fields: dict[str, str]) -> tuple[dict[str, int], dict[str, str]]:
    """Bridge's gigabytes are decimal; what has no column keeps its size in bytes, counts as printed."""
    columns = {_BRIDGE[name]: size(value, GB) for name, value in fields.items() if name in _BRIDGE}
    other = {(name.replace("gigabytes", "bytes") if name.endswith("-gigabytes") else name):
             (str(size(value, GB)) if name.endswith("-gigabytes") else value) for name, value in fields.items() if name not in _BRIDGE}
    return columns, other


def _torn(fields: dict[str, str], body: str) -> bool:
    """Whether a figure was cut. Megatron prints a point in each: floats in full, which are whole bytes, or two digits, or rounded to two."""
    values = [value for name, value in fields.items() if name in _COLUMNS or name.endswith("-gigabytes")]
    if all("." not in value for value in values):  # a fork that prints no point: whole where a bar closes it
        return not body.rstrip().endswith("|")
    last = list(fields.values())[-1]
    if _is_bridge(fields):
        return "." not in last and "e" not in last and list(fields)[-1].endswith("-gigabytes") and not body.rstrip().endswith("|")
    if any(decimals(value) > 2 for value in values):
        return not all("." in value and exact(value, "MiB") for value in values)
    padded = any(decimals(value) == 2 and value.endswith("0") for value in values)
    return any("." not in value or (padded and decimals(value) != 2) for value in values)


def _rounding(fields: dict[str, str], unit: str, bridge: bool) -> int:
    values = [value for name, value in fields.items() if name in (_BRIDGE if bridge else _COLUMNS)]
    if not bridge and all(exact(value, unit) for value in values) and any(decimals(value) != 2 for value in values):
        return 0
    return max(rounding(value, GB if bridge else unit) for value in values if bridge or decimals(value) == max(map(decimals, values)))


def _who_when(head: re.Match[str], line: LogLine, context: Context) -> Row:
    label = head["label"] or head["old"]
    row: Row = {"iteration": context.iteration, "phase": label}
    if match := _STEP.search(label):
        row["iteration"] = int(match[1] or match[3] or match[4])
        row["phase"] = "train" if match[1] else f"{match[2]}_save_checkpoint" if match[2] else label
    if head["rank"]:
        number = re.fullmatch(r"(\d{1,9})(?:/\d+)?", head["rank"].strip())
        row["rank"] = int(number[1]) if number else None
        row["rank_label"] = None if number else head["rank"].strip()
    return row
