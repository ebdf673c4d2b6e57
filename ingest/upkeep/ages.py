"""Ages as people write them: `36h`, `7d`, `12w`."""

from __future__ import annotations

import re
from datetime import timedelta

from ingest.errors import LedgerError

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def age(text: str, where: str) -> timedelta:
    """The time that a text means. Raises LedgerError, at `where`, for anything but a number with h, d or w."""
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", text.strip())
    if match is None:
        raise LedgerError(f"{text!r} is no age", where=where, todo="give hours, days or weeks: 36h, 7d, 12w")
    return int(match[1]) * _UNITS[match[2]]


def told(span: timedelta) -> str:
    """An age as it is written."""
    hours = int(span.total_seconds() // 3600)
    return f"{hours // 24}d" if hours % 24 == 0 else f"{hours}h"
