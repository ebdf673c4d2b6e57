"""Memory printed at a phase: verl, ms-swift, slime, torch memory saver, CUDA graphs, and people's own prints.

"GB" is binary in all of them. They tell what is allocated now, never the peak.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsers.log.quantities import GIB, believable, rounding, size
from ingest.parsers.log.records import Context, LogLine

_N = r"(-?\d+(?:\.\d+)?)(?![\d.])"
_U = r" ?([KMG]i?B)\b"
_VERL = re.compile(rf"(?P<phase>[A-Za-z][^|,:]*?), memory allocated \(GB\): {_N}, memory reserved \(GB\): {_N}"
                   rf"(?:, device memory used/total \(GB\): {_N}/{_N})?")
_SLIME = re.compile(r"(?:\[Rank (?P<rank>\d+)\] )?Memory-Usage (?P<phase>[^:{]+?):? (?P<body>\{[^{}]*\})")
_ITEM = re.compile(r"'(\w+)': '?(-?\d+(?:\.\d+)?)'?(?=[,}])")
_SWIFT = re.compile(
    rf"(?P<phase>(?:after|before|during|at)\b[\w .-]*?|[\w.-]+(?: [\w.-]+)*?) GPU memory: {_N}{_U} allocated, {_N}{_U} reserved", re.IGNORECASE)
_PRINT = re.compile(
    rf"\[(?P<phase>[^\[\]]+)\]:? (?:Memory )?Allocated: {_N}{_U}[,|;] ?(?:Max allocated: {_N}{_U}[,|;] ?)?Reserved: {_N}{_U}", re.IGNORECASE)
_SAVER = re.compile(
    rf"torch_memory_saver: (?P<phase>\w+ +[^,]*, (?:before|after)): "
    rf"alloc={_N}MiB private={_N}MiB resv-alloc={_N}MiB resv={_N}MiB dev_mem={_N}MiB")
_GRAPH = re.compile(rf"built \d+ cuda graph\(s\).*?allocated {_N} ?([kmgt]?b), reserved {_N} ?([kmgt]?b)", re.IGNORECASE)


class PhaseLines:
    """Rows of `rank_memory` with the printed phase."""

    literals = ("memory allocated (GB)", "Memory-Usage", "GPU memory:", "llocated:", "torch_memory_saver:", "cuda graph(s)")

    def take(self, line: LogLine, context: Context) -> bool:
        """At most one record a line and wording."""
        if "memory (MB) |" in line.text or "memory (GB) |" in line.text:
            return False
        return any(one(line, context) for one in (_verl, _slime, _swift, _print, _saver, _graph))


def _emit(line: LogLine, context: Context, phase: str, sizes: dict[str, int], error: int, source: str = "phase_log", **more: Any) -> bool:
    context.emit("rank_memory", line, iteration=context.iteration, phase=phase.strip(), source=source, scope="cumulative", **sizes,
                 rounding_bytes=error, valid=believable(*sizes.values()), at=line.at, **more)
    return True


def _verl(line: LogLine, context: Context) -> bool:
    if not (match := _VERL.search(line.text)):
        return False
    names = ("allocated_bytes", "reserved_bytes", "device_used_bytes", "device_total_bytes")
    texts = dict(zip(names, match.groups()[1:], strict=True))
    return _emit(line, context, match["phase"], {name: size(text, GIB) for name, text in texts.items() if text}, rounding(match[2], GIB))


def _slime(line: LogLine, context: Context) -> bool:
    if not (match := _SLIME.search(line.text)):
        return False
    items = dict(_ITEM.findall(match["body"]))
    names = {"allocated_GB": "allocated_bytes", "reserved_GB": "reserved_bytes", "used_GB": "device_used_bytes", "total_GB": "device_total_bytes"}
    sizes = {column: size(items[name], GIB) for name, column in names.items() if name in items}
    if not sizes:
        return False
    other = {(f"{name[:-3]}_bytes" if name.endswith("_GB") else name): (str(size(text, GIB)) if name.endswith("_GB") else text)
             for name, text in items.items() if name not in names}
    if "host_total_GB" in items:
        context.emit("device_memory", line, rank=None, iteration=context.iteration, host=line.host, source="host", valid=True, at=line.at,
                     used_bytes=size(items["host_used_GB"], GIB) if "host_used_GB" in items else None, total_bytes=size(items["host_total_GB"], GIB))
    who: dict[str, Any] = {"rank": int(match["rank"])} if match["rank"] else {}
    return _emit(line, context, match["phase"], sizes, GIB // 200 + 1, other=other, **who)


def _swift(line: LogLine, context: Context) -> bool:
    if not (match := _SWIFT.search(line.text)):
        return False
    _, allocated, unit, reserved, other_unit = match.groups()
    sizes = {"allocated_bytes": size(allocated, unit), "reserved_bytes": size(reserved, other_unit)}
    return _emit(line, context, match["phase"], sizes, rounding(allocated, unit))


def _print(line: LogLine, context: Context) -> bool:
    if not (match := _PRINT.search(line.text)):
        return False
    phase, allocated, unit, most, most_unit, reserved, reserved_unit = match.groups()
    sizes = {"allocated_bytes": size(allocated, unit), "reserved_bytes": size(reserved, reserved_unit)}
    if most:
        sizes["max_allocated_bytes"] = size(most, most_unit)
    return _emit(line, context, phase, sizes, rounding(allocated, unit))


def _saver(line: LogLine, context: Context) -> bool:
    if not (match := _SAVER.search(line.text)):
        return False
    phase, allocated, private, gap, reserved, device = match.groups()
    sizes = {"allocated_bytes": size(allocated, "MiB"), "reserved_bytes": size(reserved, "MiB"), "device_used_bytes": size(device, "MiB")}
    other = {"private_bytes": str(size(private, "MiB")), "reserved_minus_allocated_bytes": str(size(gap, "MiB"))}
    return _emit(line, context, " ".join(phase.split()), sizes, 2**19, "memory_saver", other=other)


def _graph(line: LogLine, context: Context) -> bool:
    """Sizes of what the graphs added, human 1024-based: kept as a measurement of its own source."""
    if not (match := _GRAPH.search(line.text)):
        return False
    sizes = {"allocated_bytes": size(match[1], match[2]), "reserved_bytes": size(match[3], match[4])}
    return _emit(line, context, "cuda_graph_built", sizes, rounding(match[1], match[2]), "cuda_graph")
