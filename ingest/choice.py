"""Which of the files that lie there are read, and what they are named after, beyond what their paths say by themselves.

A rotated or compressed log counts as the log it was (`train.log.2.gz` is taken by `*.log`). An archive is taken or left as a whole. Age is
the time a file was last written: the only one that costs no read. Names are given by the first pattern that fits (`ingest.settings`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from ingest.globs import Pattern
from ingest.naming import plain_name
from ingest.settings import Settings


@dataclass(frozen=True, slots=True)
class Choice:
    """Files taken: those that fit one of `include` (all where there is none), none of `exclude`, and were written `since`; and their names."""

    include: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    since: datetime | None = None
    naming: Settings = field(default_factory=Settings)

    def takes(self, path: str) -> bool:
        """By its absolute path."""
        if not self.include and not self.exclude:
            return True
        paths = list(_spellings(path))
        if self.include and not any(one.match(spelling) is not None for one in self.include for spelling in paths):
            return False
        return not any(one.match(spelling) is not None for one in self.exclude for spelling in paths)

    def enters(self, folder: str) -> bool:
        """Whether a folder is walked: not where a pattern that ends in `/**` leaves all of it out."""
        return not any(one.text.endswith("/**") and one.match(folder) is not None for one in self.exclude)

    def recent(self, file: str) -> bool:
        """Whether it was written since; a file that cannot be looked at is taken, so that its reason is told."""
        if self.since is None:
            return True
        try:
            return os.stat(file).st_mtime >= self.since.timestamp()
        except OSError:
            return True


def _spellings(path: str) -> Iterator[str]:
    yield path
    folder, _, name = path.rpartition("/")
    if (plain := plain_name(name)) != name:
        yield f"{folder}/{plain}"
