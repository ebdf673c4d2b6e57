"""Remove data files that no reader can need any more: those that compaction replaced, and those that a killed writer left.

A reader keeps to the files that were listed when it began. A replaced file is kept until `older_than` has passed since it was replaced (the log's
own stamp, not the file's age: a file may be old and replaced a minute ago). A file that no log names is kept until it is that old: it may
belong to a writer that has not committed yet. The log remembers what was replaced for a week; so a longer time cannot be promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pyarrow.fs as pafs

from ingest.errors import LedgerError
from ingest.lake import Lake
from ingest.tables import BY_NAME
from ingest.upkeep.ages import told
from ingest.upkeep.reading import in_one_sentence
from ingest.upkeep.stored import file_system

LEAST, MOST = timedelta(hours=1), timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """Files of one table that were removed, or would be: how many, their bytes, and when the oldest was written (UTC, null for none)."""

    table: str
    files: int
    size_bytes: int
    oldest: datetime | None


def vacuum(lake: Lake, older_than: timedelta = MOST, *, dry_run: bool = False, tables: Sequence[str] | None = None) -> list[Vacuumed]:
    """Remove files that were replaced, or never committed, longer ago. Raises LedgerError for a time outside `LEAST` and `MOST`."""
    if not LEAST <= older_than <= MOST:
        raise LedgerError(f"files cannot be removed after {told(older_than)}", where=lake.root, todo=(
            "give an hour at least, for writers and readers at work need theirs, and 7d at most, for the log remembers no longer"))
    with in_one_sentence(lake):
        return [found for name in tables or BY_NAME if (found := _table(lake, name, older_than, dry_run)) is not None]


def _table(lake: Lake, name: str, older_than: timedelta, dry_run: bool) -> Vacuumed | None:
    handle = lake._open(name)
    if handle is None:
        return None
    hours = -(-int(older_than.total_seconds()) // 3600)
    names = handle.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True)
    files = file_system(handle)
    there = [one for one in files.get_file_info([unquote(name) if "%25" in name else name for name in names]) if one.type == pafs.FileType.File]
    if names and not dry_run:
        handle.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True)
    oldest = min((one.mtime for one in there if one.mtime is not None), default=None)
    return Vacuumed(name, len(names), sum(one.size or 0 for one in there), oldest.astimezone(UTC).replace(tzinfo=None) if oldest else None)
