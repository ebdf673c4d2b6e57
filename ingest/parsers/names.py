"""The rank that an artifact's name proves, and what it only hints at.

`rank3.log`, `rank_3`, `log_rank-12.txt`, `memory_stats_rank_0007.jsonl`: a global rank. torchelastic's `attempt_0/3/stdout.log` names a
LOCAL rank, which is no proof on more than one node. A number alone proves nothing.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_RANK = re.compile(r"(?<!local)(?<!local[_-])(?<!node)(?<!node[_-])(?<![A-Za-z])rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_LOCAL = re.compile(r"(?:^|/)attempt_\d+/(\d+)/[^/]+$")


def rank_of(path: str) -> int | None:
    """The global rank in the file's name, or else in that of its folder; None where nothing proves one."""
    parts = PurePosixPath(str(path).replace("!", "/")).parts
    for part in reversed(parts[-2:]):
        if match := _RANK.search(part):
            return int(match[1])
    return None


def local_rank_of(path: str) -> int | None:
    """The local rank in a torchelastic log folder."""
    match = _LOCAL.search(str(path))
    return int(match[1]) if match else None
