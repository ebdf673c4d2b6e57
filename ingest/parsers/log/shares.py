"""Megatron-FSDP's warning that a rank's memory is nearly full: shares of a device whose size the line does not tell."""

from __future__ import annotations

import re

from ingest.parsers.log import actors
from ingest.parsers.log.records import Context, LogLine

_SHARES = re.compile(r"GPU Memory: Allocated: (?P<allocated>\d{1,3}\.\d\d)%, Reserved: (?P<reserved>\d{1,3}\.\d\d)%(?!\d)")


class MemoryShares:
    """Rows of `job_events`: shares without a capacity are no bytes, so they are no measurement of `rank_memory`."""

    literals = ("GPU Memory: Allocated:",)

    def take(self, line: LogLine, context: Context) -> bool:
        """One event a warning; the line is searched, because ranks glue their lines."""
        found = list(_SHARES.finditer(line.text))
        for match in found:
            rank = actors.rank_of(line, context)
            who = {} if rank is None else {"rank": rank}
            context.emit("job_events", line, event="memory_nearly_full", iteration=context.iteration, host=line.host, at=line.at,
                         detail=match.group(), other={f"{name}_percent": text for name, text in match.groupdict().items()}, **who)
        return bool(found)
