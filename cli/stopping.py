"""Ctrl-C and a stop from the system (SIGTERM) as a question that work asks between its steps, so that what is whole can be committed.

The first is remembered and told; a second one ends the command at once, as it would have without this. Outside the main thread (where signals
cannot be caught) nothing is.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any


class Stop:
    """Whether a stop was asked for, while this is entered; `number` is the signal's, 0 where none came."""

    def __init__(self, says: str = "stopping: what is being read is committed first; once more to stop at once") -> None:
        self.number = 0
        self._says = says
        self._event = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number
        self._event.set()
        print(f"hbmledger: {self._says}", file=sys.stderr)

    def asked(self) -> bool:
        """Whether it was."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for it, at most so long."""
        return self._event.wait(seconds)
