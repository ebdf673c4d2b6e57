"""One reading of a device, and the name and capacity that it proves of the run's devices."""

from __future__ import annotations

from typing import Any

from ingest.parsers.log.quantities import believable
from ingest.parsers.log.records import Context, LogLine

_MOST = 16


def emit(line: LogLine, context: Context, source: str, sizes: dict[str, int | None], **more: Any) -> bool:
    """A row of `device_memory`; the first reading of each kind of device also tells the run's GPU."""
    context.emit("device_memory", line, **{"rank": None, "iteration": context.iteration, "host": line.host, "source": source, "at": line.at,
                                           "valid": believable(*sizes.values()), **sizes, **more})
    tell(line, context, more.get("device_name"), sizes.get("total_bytes"))
    return True


def tell(line: LogLine, context: Context, name: str | None, total: int | None) -> None:
    """A row of `runs` with the device's name and capacity, once a kind of device and attempt."""
    known = context.facts.setdefault("devices", [])
    if [name, total] not in known and len(known) < _MOST and (name or total):
        known.append([name, total])
        context.emit("runs", line, rank=None, gpu_name=name, capacity_bytes=total)
