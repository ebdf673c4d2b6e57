"""When the collector looks for garbage among all that the server holds: at the end of a script, at most twice a minute.

Streamlit does so at the end of every script unless told otherwise. With a few overviews kept that is 0.15 s in which no reader is served, three
times what a page itself takes. Never would be wrong too: what sessions leave behind is tied in circles and holds open files, which Python's own
rounds over old objects come to far too seldom.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import monotonic

EVERY_SECONDS = 30.0
_last = monotonic()


def collect_now_and_then(clock: Callable[[], float] = monotonic) -> bool:
    """Collect where the last round was long enough ago; whether it did."""
    global _last
    now = clock()
    if now - _last < EVERY_SECONDS:
        return False
    _last = now  # first, so that another reader's script does not begin the same round
    gc.collect()
    return True
