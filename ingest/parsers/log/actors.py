"""Which global rank a Ray actor's process is, where the log itself proves it.

Ray prefixes a line with the actor's name, process and host; records such as `[Rank 3] ...` name the rank of that process. From then on its
other lines (an out-of-memory error, a phase) belong to that rank. A process that speaks for two ranks proves nothing for good.
"""

from __future__ import annotations

from ingest.parsers.log.records import Context, LogLine

_MOST = 20_000


def _process(line: LogLine) -> str | None:
    return f"{line.prefix['pid']}@{line.host or ''}" if "pid" in line.prefix and "actor" in line.prefix else None


def learn(line: LogLine, context: Context, rank: int | None) -> None:
    """Remember that the process of this line is `rank`."""
    process = _process(line)
    if process is None or rank is None:
        return
    known = context.facts.setdefault("actors", {})
    if process in known or len(known) < _MOST:
        known[process] = rank if known.get(process, rank) == rank else -1


def rank_of(line: LogLine, context: Context) -> int | None:
    """The rank of the line: its own prefix, or what its process was proven to be."""
    if line.rank is not None:
        return line.rank
    process = _process(line)
    rank = context.facts.get("actors", {}).get(process) if process else None
    return rank if rank is not None and rank >= 0 else None
