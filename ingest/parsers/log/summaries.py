"""`torch.cuda.memory_summary()` tables, and `memory_stats()` printed into a log on one line or over several.

A table's unit is chosen per metric and figures are cut to 3 or 4 digits, so each row keeps its rounding; counts are cut to thousands
(`K`) or millions (`M`).
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsers.allocator_stats import readings, rows_of
from ingest.parsers.log import actors
from ingest.parsers.log.quantities import UNITS
from ingest.parsers.log.records import Context, Fed, LogLine
from ingest.parsers.memory_stats import decode

_SUMMARY = re.compile(r"PyTorch \w+ memory summary, device ID (\d+)")
_ROW = re.compile(r"^\|\s+(?P<label>[A-Za-z][\w -]*?)\s+\|(?P<cells>(?:[^|]*\|){4})\s*$")
_CELL = re.compile(r"(?P<number>-?\d+)(?: +(?P<unit>B|[KMGTP]i?B|K|M))?$")
_COUNT_UNITS = {"K": 1_000, "M": 1_000_000}
_COUNTS = re.compile(r"\w+ OOMs: (?P<ooms>\d+).*?(?:cudaMalloc|\w+) retries: (?P<retries>\d+)")
_RANK = re.compile(r"\b[Rr]ank[ :_=]*(\d{1,7})\b")
_OPENING = re.compile(r"OrderedDict\(|\{\s*['\"]")
_COUNTER = re.compile(r"""^\s*[({]*\s*['"][\w.]+['"]\s*[:,]\s*[-\w.'"]+\s*[)\]},]*\s*$""")
LONGEST_COUNTERS, MOST_STRANGE = 600, 5


class Summaries:
    """Rows of `memory_summary`, `memory_stats` and `rank_memory`."""

    literals = ("memory summary, device ID", "OrderedDict(", "allocated_bytes", "active.all.")

    def take(self, line: LogLine, context: Context) -> bool:
        """Open a table, or read counters."""
        if match := _SUMMARY.search(line.text):
            context.open(Summary(int(match[1])))
            return True
        start = min((match.start() for match in _OPENING.finditer(line.text)), default=-1)
        if start < 0:
            return False
        text = line.text[start:]
        if _depth(text) > 0 and (_COUNTER.match(text.removeprefix("OrderedDict([").removeprefix("OrderedDict(")) or text.rstrip().endswith("(")):
            context.open(Counters(line, text))
            return True
        return _counters(line, context, text, line.text[:start])


class Summary:
    """An open memory_summary table."""

    def __init__(self, device: int) -> None:
        self.device, self.metric = device, ""
        self.other: dict[str, str] = {}
        self.rows: list[tuple[LogLine, dict[str, Any]]] = []
        self.strange = 0

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Rows until a line that is none; other ranks' tables and lines may stand between."""
        text = line.text.strip()
        if counts := _COUNTS.search(text):
            self.other.update(ooms=counts["ooms"], cudamalloc_retries=counts["retries"])
            return Fed.TAKEN
        if re.fullmatch(r"\|[=-]{20,}\|", text) or "Cur Usage" in text:
            return Fed.TAKEN
        if match := _ROW.match(text):
            self._row(line, match)
            return Fed.TAKEN
        self.strange += 1
        if text.startswith("|") and self.strange <= MOST_STRANGE and not _SUMMARY.search(text):
            return Fed.FOREIGN
        self.finish(context)
        return Fed.CLOSED_BEFORE

    def finish(self, context: Context) -> None:
        """Emit the rows; the first one also carries the table's header and main figures, so that it stands by itself."""
        for at, (line, row) in enumerate(self.rows):
            rank = actors.rank_of(line, context)
            who = {} if rank is None else {"rank": rank}
            context.emit("memory_summary", line, iteration=context.iteration, **who, **row, other=self.other if at == 0 and self.other else None)

    def _row(self, line: LogLine, match: re.Match[str]) -> None:
        label, cells = match["label"], [_CELL.search(one.strip()) for one in match["cells"].split("|")[:4]]
        pool = re.match(r"from (large|small) pool", label)
        self.metric = self.metric if pool else label
        values = [int(cell["number"]) * _factor(cell["unit"]) if cell else None for cell in cells]
        unit = _factor(cells[0]["unit"]) if cells[0] and cells[0]["unit"] not in _COUNT_UNITS else 0
        self.rows.append((line, {
            "device": self.device, "metric": self.metric, "pool": pool[1] if pool else "all", "current": values[0], "peak": values[1],
            "total_allocated": values[2], "total_freed": values[3], "rounding_bytes": unit if unit > 1 else 0,
        }))
        name = f"{self.metric} ({pool[1]} pool)" if pool else self.metric
        if len(self.rows) > 1 and values[0] is not None and values[1] is not None:
            self.other.update({f"{name}, current": str(values[0]), f"{name}, peak": str(values[1])})


def _factor(unit: str | None) -> int:
    return 1 if unit is None else _COUNT_UNITS[unit] if unit in _COUNT_UNITS else UNITS[unit.lower()]


class Counters:
    """An open `memory_stats()` dump, one counter a line."""

    def __init__(self, line: LogLine, text: str) -> None:
        self.line, self.texts = line, [text]
        self.depth, self.strange = _depth(text), 0

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Counters until the brackets close."""
        if not _COUNTER.match(line.text) or len(self.texts) > LONGEST_COUNTERS:
            self.strange += 1
            if self.strange <= MOST_STRANGE and not _OPENING.search(line.text):
                return Fed.FOREIGN
            self.finish(context)
            return Fed.CLOSED_BEFORE
        self.texts.append(line.text)
        self.depth += _depth(line.text)
        if self.depth > 0:
            return Fed.TAKEN
        self.finish(context)
        return Fed.CLOSED

    def finish(self, context: Context) -> None:
        """The whole dump; one that never closed is kept as a reject where it held the counters sought."""
        text = "\n".join(self.texts)
        if not _counters(self.line, context, text) and "_bytes.all." in text:
            context.reject(self.line, text, "counters whose brackets do not close")


def _depth(text: str) -> int:
    return sum(text.count(one) for one in "([{") - sum(text.count(one) for one in ")]}")


def _counters(line: LogLine, context: Context, text: str, before: str = "") -> bool:
    """A memory_stats dump or summary: JSON or the text of Python dictionaries; `before` may name the rank."""
    named = _RANK.search(before)
    told = int(named[1]) if named else actors.rank_of(line, context)
    value = decode(text.encode("utf-8", "replace"))
    if value is None and (end := max(text.rfind(one) for one in ")}")) > 0:
        value = decode(text[:end + 1].encode("utf-8", "replace"))
    if value is None:
        return False
    found = False
    for reading in readings(value):
        for table, row in rows_of(reading).items():
            row = {key: one for key, one in row.items() if one is not None and key not in ("line", "run_index")}
            if row.get("rank") is None:
                row.pop("rank", None)
                row |= {} if told is None else {"rank": told}
            context.emit(table, line, **{"iteration": context.iteration, "at": line.at, **row})
            found = True
    return found
