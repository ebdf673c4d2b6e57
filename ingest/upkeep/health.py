"""What a lake's logs and folders say of its state, without reading a record: files, sizes, what upkeep is due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ingest.lake import Lake
from ingest.tables import BY_NAME
from ingest.upkeep.compact import TARGET_BYTES
from ingest.upkeep.stored import version_of
from ingest.upkeep.vacuum import vacuum

MANY_SMALL = 200
"""Small files of one month and cluster from which a compaction is due: queries open each of them."""


@dataclass(frozen=True, slots=True)
class Health:
    """One table: rows and files of its newest version, small files that could be merged, and files that `vacuum` would remove by default."""

    table: str
    rows: int
    files: int
    size_bytes: int
    small_files: int
    most_small_files: int
    commits: int
    removable_files: int
    removable_bytes: int
    oldest_removable: datetime | None


def health(lake: Lake) -> list[Health]:
    """Every table that the lake has. Raises LedgerError where one cannot be opened."""
    removable = {one.table: one for one in vacuum(lake, dry_run=True)}
    found = []
    for name in BY_NAME:
        version = version_of(lake, name)
        if version is None:
            continue
        small: dict[tuple[str, ...], int] = {}
        for one in version.files:
            small[one.partition] = small.get(one.partition, 0) + (one.size_bytes < TARGET_BYTES // 2)
        old = removable[name]
        found.append(Health(name, sum(one.rows for one in version.files), len(version.files), sum(one.size_bytes for one in version.files),
                            sum(count for count in small.values() if count > 1), max(small.values(), default=0), int(version.handle.version()),
                            old.files, old.size_bytes, old.oldest))
    return found
