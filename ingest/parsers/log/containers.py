"""Lines that containers and structured loggers wrap: docker's json-file, CRI, JSON loggers.

Docker cuts a line after 16 KiB and CRI marks a cut one with P: the parts are joined before anything reads them. A naive
`json.loads` a line would lose the record in the middle of which a cut falls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

CRI = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* (stdout|stderr) ([FP]) ")


class Containers:
    """Joins what containers cut; `open` while a part waits for its rest."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}

    @property
    def open(self) -> bool:
        """Whether a line is still incomplete."""
        return bool(self.parts)

    def texts(self, text: str) -> Iterator[str]:
        """The line as the program wrote it; nothing while it is incomplete."""
        if text.startswith('{"log":'):
            record = _record(text)
            if record is not None and isinstance(record.get("log"), str):
                yield from self._join(str(record.get("stream")), record["log"], record["log"].endswith("\n"))
                return
        elif match := CRI.match(text):
            yield from self._join(match[1], text[match.end():], match[2] == "F")
            return
        elif text.startswith("{") and (record := _record(text)) is not None:
            message = next((record[key] for key in ("msg", "message", "log", "text") if isinstance(record.get(key), str)), None)
            if message is not None:
                rank = record.get("rank")
                yield f"[rank{rank}]: {message}" if isinstance(rank, int) else message
                return
        yield text

    def _join(self, stream: str, part: str, closed: bool) -> Iterator[str]:
        part = self.parts.pop(stream, "") + part
        if closed or len(part) > 1 << 20:
            yield part
        else:
            self.parts[stream] = part


def _record(text: str) -> dict[str, object] | None:
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
