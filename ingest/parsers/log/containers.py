"""Lines that containers and structured loggers wrap: docker's json-file, CRI, JSON loggers.

Docker cuts a line after 16 KiB and CRI marks a cut one with P: the parts are joined before anything reads them. A naive
`json.loads` a line would lose the record in the middle of which a cut falls. A joined line stands where its first part does, and
its time before it, as a logger would print it. A part whose rest never comes is let go after a while: a stream may have died.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

CRI = re.compile(r"^(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) (?P<stream>stdout|stderr) (?P<mark>[FP]) ")
LITERALS = ('{"log":', "Z stdout P ", "Z stderr P ", ":00 stdout P ", ":00 stderr P ")
"""What lets a line through that may hold a part of a record and no literal of it."""
LONGEST_JOINED = 1 << 20
LONGEST_WAIT_LINES = 1_000
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$")
_MESSAGES = ("msg", "message", "log", "text", "event", "textPayload")
_TIMES = ("time", "ts", "timestamp", "@timestamp", "asctime")

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
        for stream in [one for one, part in self._parts.items() if number - part[1] > LONGEST_WAIT_LINES]:
            yield self._parts.pop(stream)
        text = text.removeprefix("\ufeff")
        if text.startswith("{"):
            record = _record(text) or {}
            if isinstance(record.get("log"), str) and "stream" in record:
                log = str(record["log"])
                yield from self._join(str(record["stream"]), (_timed(record, log), number, offset), log, log.endswith(("\n", "\r")))
                return
            message = next((record[key] for key in _MESSAGES if isinstance(record.get(key), str)), None)
            if message is not None:
                rank = record.get("rank")
                known = isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 10**7
                yield _timed(record, f"[rank{rank}]: {message}" if known else str(message)), number, offset
                return
        elif match := CRI.match(text):
            log = text[match.end():]
            yield from self._join(match["stream"], (_timed({"time": match["at"]}, log), number, offset), log, match["mark"] == "F")
            return
        yield text, number, offset

    def rest(self) -> Iterator[Text]:
        """What was still waiting when the artifact ended."""
        yield from self._parts.values()
        self._parts.clear()

    def _join(self, stream: str, part: Text, log: str, closed: bool) -> Iterator[Text]:
        if stream in self._parts:
            text, number, offset = self._parts.pop(stream)
            part = text + log, number, offset
        if closed or len(part[0]) > LONGEST_JOINED:
            yield part
        else:
            self._parts[stream] = part


def _timed(record: dict[str, object], text: str) -> str:
    """The text behind the record's time, where it has one and anything to say."""
    time = next((record[key] for key in _TIMES if isinstance(record.get(key), str)), None)
    return f"{time} {text}" if isinstance(time, str) and _STAMP.match(time) and text.strip() else text


def _record(text: str) -> dict[str, object] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
