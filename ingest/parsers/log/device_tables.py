"""Tables of nvidia-smi, rocm-smi and npu-smi that a job's script printed into the log.

A device takes two rows in nvidia-smi and npu-smi: the name, then the figures. rocm-smi prints bytes in a line each for total and used, or a
table with shares alone, which are no bytes.
"""

from __future__ import annotations

import json
import re

from ingest.parsers.log import devices
from ingest.parsers.log.quantities import MIB
from ingest.parsers.log.records import Context, Fed, LogLine

_SMI_NAME = re.compile(r"^\|\s+(?P<device>\d+)\s+(?P<name>[A-Z]\S*(?: \S+)*?)\s+(?:On|Off|N/A)\s+\|\s+[0-9A-Fa-f]{8}:")
_SMI_MEMORY = re.compile(r"(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|\s*(?P<load>\d+)?%?")
_SMI_STATE = re.compile(r"^\|\s+(?:\d+%|N/A)\s+(?P<temperature_c>\d+)C\s+\w+\s+(?P<power_w>\d+)W / (?P<power_limit_w>\d+)W")
_NPU_STATE = re.compile(r"\|\s+(?P<power_w>\d+(?:\.\d+)?)\s+(?P<temperature_c>\d+)\s+\d+\s*/\s*\d+\s*\|$")
_NPU_NAME = re.compile(r"^\|\s+(?P<device>\d+)\s+(?P<name>(?:Ascend ?)?\d*[A-Z]?\w*)\s+\|\s+\w+\s+\|\s+[\d.-]+\s")
_NPU_MEMORY = re.compile(
    r"^\|\s+(?P<chip>\d+)\s+(?:(?P<physical>\d+)\s+)?\|\s+[0-9A-Fa-f:.]{10,}\s+\|\s+(?P<load>\d+)\s.*?(?P<used>\d+)\s*/\s*(?P<total>\d+)\s*\|\s*$")
_ROCM = re.compile(r"GPU\[(?P<device>\d+)\]\s*: (?:VRAM|vram) Total (?P<what>Used )?Memory \(B\): (?P<value>\d+)")
_CONCISE = re.compile(r"^\s*(?:GPU|Device)\s.*\bVRAM%\s+GPU%\s*$")
_CONCISE_ROW = re.compile(r"^\s*(?P<device>\d+)\s.*\s(?P<used>\d+)%\s+(?P<load>\d+)%\s*$")
_PROPERTIES = re.compile(r"_CudaDeviceProperties\(name='(?P<name>[^']+)'.*?total_memory=(?P<total>\d+)MB")
NEAR_LINES = 64


class Tables:
    """Rows of `device_memory`, and the GPU of `runs`."""

    literals = ("MiB |", "MiB/", "MiB /", ".0 Off |", ".0  On |", ".0 On |", "VRAM Total", "VRAM%", "NPU ", "HBM-Usage",
                "| OK  ", "| Warning ", "| Alarm ", "DeviceProperties(")

    def take(self, line: LogLine, context: Context) -> bool:
        """Open a table or read a line that is complete in itself."""
        text = line.text.strip()
        if _CONCISE.match(text):
            context.open(RocmTable())
            return True
        if ("NPU " in text and "Health" in text) or (_NPU_NAME.match(text) and "MiB" not in text):
            table = NpuTable()
            table.feed(line, context)
            context.open(table)
            return True
        if match := _PROPERTIES.search(text):
            devices.tell(line, context, match["name"], int(match["total"]) * MIB)
            return True
        return _smi(line, context) or _rocm(line, context) or _rocm_json(line, context)


class NpuTable:
    """npu-smi prints a name row, then a row for each chip of the module."""

    def __init__(self) -> None:
        self.device: re.Match[str] | None = None

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Rows until a line that is no row of a table."""
        text = line.text.strip()
        if self.device and (match := _NPU_MEMORY.match(text)):
            state = _NPU_STATE.search(self.device.string)
            other = {"chip": match["chip"]} | ({"physical": match["physical"]} if match["physical"] else {}) | (state.groupdict() if state else {})
            devices.emit(line, context, "npu-smi", {"used_bytes": int(match["used"]) * MIB, "total_bytes": int(match["total"]) * MIB},
                         device=int(self.device["device"]), device_name=self.device["name"], utilization_percent=float(match["load"]), other=other)
        elif match := _NPU_NAME.match(text):
            self.device = match
        return Fed.TAKEN if text.startswith(("|", "+")) else Fed.CLOSED_BEFORE

    def finish(self, context: Context) -> None:
        """Rows are emitted as they come."""


class RocmTable:
    """rocm-smi's concise table: shares of memory and of time, no bytes."""

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Rows until a line that is none; rules and the second line of the header are passed over."""
        text = line.text.strip()
        if match := _CONCISE_ROW.match(text):
            context.emit("device_memory", line, rank=None, iteration=context.iteration, host=line.host, device=int(match["device"]),
                         utilization_percent=float(match["load"]), source="rocm-smi", valid=True, at=line.at, other={"used_percent": match["used"]})
            return Fed.TAKEN
        return Fed.TAKEN if re.match(r"[=(]", text) and "End" not in text else Fed.CLOSED_BEFORE

    def finish(self, context: Context) -> None:
        """Rows are emitted as they come."""


def _smi(line: LogLine, context: Context) -> bool:
    if match := _SMI_NAME.match(line.text):
        context.facts["smi_device"] = [int(match["device"]), match["name"], line.number]
        return False
    match, device = _SMI_MEMORY.search(line.text), context.facts.get("smi_device")
    if not match or ("Default" not in line.text and "%" not in line.text):
        return False
    known = device if device and device[2] == line.number - 1 else [None, None, 0]
    sizes: dict[str, int | None] = {"used_bytes": int(match["used"]) * MIB, "total_bytes": int(match["total"]) * MIB}
    state = _SMI_STATE.match(line.text)
    return devices.emit(line, context, "nvidia-smi", sizes, device=known[0], device_name=known[1], other=state.groupdict() if state else None,
                        utilization_percent=float(match["load"]) if match["load"] else None)


def _rocm(line: LogLine, context: Context) -> bool:
    match = _ROCM.search(line.text)
    if not match:
        return False
    device, value = int(match["device"]), int(match["value"])
    if not match["what"]:
        context.facts["rocm_total"] = [device, value, line.number]
        return True
    known = context.facts.pop("rocm_total", None)
    total = known[1] if known and known[0] == device and line.number - known[2] <= NEAR_LINES else None
    return devices.emit(line, context, "rocm-smi", {"used_bytes": value, "total_bytes": total}, device=device)


def _rocm_json(line: LogLine, context: Context) -> bool:
    if "{" not in line.text or "VRAM Total" not in line.text:
        return False
    try:
        cards = json.loads(line.text[line.text.index("{"):])
    except (ValueError, RecursionError):
        return False
    found = False
    for card, fields in cards.items() if isinstance(cards, dict) else ():
        index = re.fullmatch(r"card(\d{1,4})", card)
        if index and isinstance(fields, dict):
            total, used = (str(fields.get(f"VRAM Total {what}Memory (B)", "")) for what in ("", "Used "))
            if used.isdecimal():
                found = devices.emit(line, context, "rocm-smi", {"used_bytes": int(used), "total_bytes": int(total) if total.isdecimal() else None},
                                     device=int(index[1]))
    return found
