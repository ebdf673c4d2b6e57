"""Tables in a log: torch.cuda.memory_summary, nvidia-smi, rocm-smi and npu-smi, and nvidia-smi's CSV; counters printed as text.

Units switch per cell and only 3 to 4 digits are printed, so each row keeps its rounding.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsers.allocator_stats import readings, rows_of
from ingest.parsers.log.quantities import MIB, UNITS, believable, size
from ingest.parsers.log.records import Context, Fed, LogLine
from ingest.parsers.memory_stats import decode

_SUMMARY = re.compile(r"PyTorch \w+ memory summary, device ID (\d+)")
_ROW = re.compile(r"^\|\s+(?P<label>[A-Za-z][\w -]*?)\s+\|(?P<cells>(?:[^|]*\|){4})\s*$")
_CELL = re.compile(r"(-?\d+)(?: (B|[KMGT]i?B))?$")
_COUNTS = re.compile(r"\w+ OOMs: (?P<ooms>\d+).*?(?:cudaMalloc|\w+) retries: (?P<retries>\d+)")
_SMI_NAME = re.compile(r"^\|\s+(?P<device>\d+)\s+(?P<name>[A-Z]\S*(?: \S+)*?)\s+(?:On|Off|N/A)\s+\|\s+[0-9A-Fa-f]{8}:")
_SMI_MEMORY = re.compile(r"(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|\s*(?P<load>\d+)?%?")
_NPU_NAME = re.compile(r"^\|\s+(?P<device>\d+)\s+(?P<name>\d*[A-Z]\w*)\s+\|\s+\w+\s+\|")
_NPU_MEMORY = re.compile(
    r"^\|\s+(?P<chip>\d+)\s+(?:\d+\s+)?\|\s+[0-9A-Fa-f:.]{10,}\s+\|\s+(?P<load>\d+)\s.*?(?P<used>\d+)\s*/\s*(?P<total>\d+)\s*\|\s*$")
_CSV = re.compile(
    r"^(?:(?P<at>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+), )?(?P<device>\d+), (?:(?P<name>(?!\d+ MiB)[^,]*[A-Za-z][^,]*), )?(?P<rest>\d+ MiB(?:, .*)?)$")
_ROCM = re.compile(r"GPU\[(?P<device>\d+)\]\s*: VRAM Total (?P<what>Used )?Memory \(B\): (?P<value>\d+)")


class Tables:
    """Rows of `memory_summary`, `device_memory`, `memory_stats`."""

    literals = ("memory summary, device ID", "MiB", ".0 Off |", ".0  On |", ".0 On |", "OrderedDict(",
                "allocated_bytes", "VRAM Total", "NPU ", "HBM-Usage")

    def take(self, line: LogLine, context: Context) -> bool:
        """Open a table or read a line that is complete in itself."""
        if match := _SUMMARY.search(line.text):
            context.open(Summary(int(match[1])))
            return True
        if "NPU " in line.text and "Health" in line.text:
            context.open(NpuTable())
            return True
        if "reserved_bytes" in line.text or "allocated_bytes" in line.text:
            return _counters(line, context)
        return _smi(line, context) or _csv(line, context) or _rocm(line, context)


class Summary:
    """An open memory_summary table."""

    def __init__(self, device: int) -> None:
        self.device, self.metric = device, ""
        self.other: dict[str, str] = {}
        self.rows: list[tuple[LogLine, dict[str, Any]]] = []

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Rows until the closing rule or a line that is no row."""
        text = line.text.strip()
        if counts := _COUNTS.search(text):
            self.other.update(ooms=counts["ooms"], cudamalloc_retries=counts["retries"])
            return Fed.TAKEN
        if re.fullmatch(r"\|[=-]{20,}\|", text) or "Cur Usage" in text:
            return Fed.TAKEN
        if match := _ROW.match(text):
            self._row(line, context, match)
            return Fed.TAKEN
        if text.startswith("|") and self.device_lines(line):
            return Fed.FOREIGN
        self.finish(context)
        return Fed.CLOSED_BEFORE

    def device_lines(self, line: LogLine) -> bool:
        """Whether a strange line still stands within the table: not beyond 200 lines of its last row."""
        return not self.rows or line.number - self.rows[-1][0].number < 200

    def finish(self, context: Context) -> None:
        """Emit the rows; the first one also carries the table's header and main figures, so that it stands by itself."""
        for at, (line, row) in enumerate(self.rows):
            context.emit("memory_summary", line, iteration=context.iteration, **row, other=self.other if at == 0 and self.other else None)

    def _row(self, line: LogLine, context: Context, match: re.Match[str]) -> None:
        label, cells = match["label"], [_CELL.search(one.strip()) for one in match["cells"].split("|")[:4]]
        pool = re.match(r"from (large|small) pool", label)
        self.metric = self.metric if pool else label
        values = [int(cell[1]) * (UNITS[cell[2].lower()] if cell[2] else 1) if cell else None for cell in cells]
        unit = UNITS[cells[0][2].lower()] if cells[0] and cells[0][2] else 0
        self.rows.append((line, {
            "device": self.device, "metric": self.metric, "pool": pool[1] if pool else "all", "current": values[0], "peak": values[1],
            "total_allocated": values[2], "total_freed": values[3], "rounding_bytes": unit if unit > 1 else 0,
        }))
        if not pool and len(self.rows) > 1 and values[0] is not None and values[1] is not None:
            self.other.update({f"{self.metric}, current": str(values[0]), f"{self.metric}, peak": str(values[1])})


class NpuTable:
    """npu-smi prints a device in two rows."""

    def __init__(self) -> None:
        self.device: re.Match[str] | None = None

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Rows until a line that is no row of a table."""
        text = line.text.strip()
        if self.device and (match := _NPU_MEMORY.match(text)):
            used, total = int(match["used"]) * MIB, int(match["total"]) * MIB
            context.emit("device_memory", line, iteration=context.iteration, host=line.host, device=int(self.device["device"]),
                         device_name=self.device["name"], used_bytes=used, total_bytes=total, utilization_percent=float(match["load"]),
                         source="npu-smi", valid=believable(used, total), at=line.at, other={"chip": match["chip"]})
            self.device = None
        elif match := _NPU_NAME.match(text):
            self.device = match
        return Fed.TAKEN if text.startswith(("|", "+")) else Fed.CLOSED_BEFORE

    def finish(self, context: Context) -> None:
        """Rows are emitted as they come."""


def _counters(line: LogLine, context: Context) -> bool:
    """A memory_stats dump or summary on one line: JSON or OrderedDict text, prefix allowed."""
    start = min((at for one in ("OrderedDict(", "{") if (at := line.text.find(one)) >= 0), default=-1)
    value = decode(line.text[start:].encode()) if start >= 0 else None
    if value is None:
        return False
    found = False
    for reading in readings(value):
        for table, row in rows_of(reading).items():
            row = {key: one for key, one in row.items() if one is not None and key not in ("line", "run_index")}
            if row.get("rank") is None:
                row.pop("rank", None)
            context.emit(table, line, **{"iteration": context.iteration, "at": line.at, **row})
            found = True
    return found


def _emit_device(line: LogLine, context: Context, source: str, sizes: dict[str, int | None], **more: Any) -> bool:
    context.emit("device_memory", line, rank=None, iteration=context.iteration, host=line.host, source=source, valid=believable(*sizes.values()),
                 **{"at": line.at, **sizes, **more})
    return True


def _smi(line: LogLine, context: Context) -> bool:
    if match := _SMI_NAME.match(line.text):
        context.facts["smi_device"] = [int(match["device"]), match["name"], line.number]
        return False
    match, device = _SMI_MEMORY.search(line.text), context.facts.get("smi_device")
    if not match or ("Default" not in line.text and "%" not in line.text):
        return False
    known = device if device and device[2] == line.number - 1 else [None, None, 0]
    sizes: dict[str, int | None] = {"used_bytes": int(match["used"]) * MIB, "total_bytes": int(match["total"]) * MIB}
    return _emit_device(line, context, "nvidia-smi", sizes, device=known[0], device_name=known[1],
                        utilization_percent=float(match["load"]) if match["load"] else None)


def _csv(line: LogLine, context: Context) -> bool:
    """Sizes in the order total, used, free of nvidia-smi's usual query; used is never above total."""
    match = _CSV.match(line.text.strip())
    if not match:
        return False
    sizes = [int(one) * MIB for one in re.findall(r"(\d+) MiB", match["rest"])]
    if len(sizes) < 2:
        return False
    total, used = max(sizes[0], sizes[1]), min(sizes[0], sizes[1])
    load = re.search(r"(\d+) %", match["rest"])
    return _emit_device(line, context, "nvidia-smi", {"total_bytes": total, "used_bytes": used, "free_bytes": sizes[2] if len(sizes) > 2 else None},
                        device=int(match["device"]), utilization_percent=float(load[1]) if load else None,
                        other={"name": match["name"]} if match["name"] else None)


def _rocm(line: LogLine, context: Context) -> bool:
    match = _ROCM.search(line.text)
    if not match:
        return False
    column = "used_bytes" if match["what"] else "total_bytes"
    return _emit_device(line, context, "rocm-smi", {column: size(match["value"], 1)}, device=int(match["device"]))
