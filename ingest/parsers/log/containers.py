"""Lines that containers and structured loggers wrap: docker's json-file, CRI, JSON loggers.

Docker cuts a line after 16 KiB and CRI marks a cut one with P: the parts are joined before anything reads them. A naive
`json.loads` a line would lose the record in the middle of which a cut falls. A joined line stands where its first part does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

CRI = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* (stdout|stderr) ([FP]) ")
LITERALS = ('{"log":', "Z stdout P ", "Z stderr P ", ":00 stdout P ", ":00 stderr P ")
"""What lets a line through that may hold a part of a record and no literal of it."""
LONGEST_JOINED = 1 << 20

Text = tuple[str, int, int]
"""A logical line, and number and byte offset of the physical line where it begins."""


class Containers:
    """Joins what containers cut; `open` while a part waits for its rest."""

    def __init__(self) -> None:
        self._parts: dict[str, Text] = {}

    @property
    def open(self) -> bool:
        """Whether a line is still incomplete."""
        return bool(self._parts)

    def texts(self, text: str, number: int, offset: int) -> Iterator[Text]:
        """The line as the program wrote it; nothing while it is incomplete."""
        text = text.removeprefix("\ufeff")
        if text.startswith("{"):
            record = _record(text) or {}
            if isinstance(record.get("log"), str) and "stream" in record:
                log = str(record["log"])
                yield from self._join(str(record["stream"]), (log, number, offset), log.endswith(("\n", "\r")))
                return
            message = next((record[key] for key in ("msg", "message", "log", "text") if isinstance(record.get(key), str)), None)
            if message is not None:
                rank = record.get("rank")
                yield f"[rank{rank}]: {message}" if isinstance(rank, int) and not isinstance(rank, bool) else str(message), number, offset
                return
        elif match := CRI.match(text):
            yield from self._join(match[1], (text[match.end():], number, offset), match[2] == "F")
            return
        yield text, number, offset

    def rest(self) -> Iterator[Text]:
        """What was still waiting when the artifact ended."""
        yield from self._parts.values()
        self._parts.clear()

    def _join(self, stream: str, part: Text, closed: bool) -> Iterator[Text]:
        if stream in self._parts:
            text, number, offset = self._parts.pop(stream)
            part = text + part[0], number, offset
        if closed or len(part[0]) > LONGEST_JOINED:
            yield part
        else:
            self._parts[stream] = part


def _record(text: str) -> dict[str, object] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
