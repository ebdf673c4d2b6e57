"""The data files of a table as its log lists them, and the one way to replace some: a commit that finds all of them still there, or fails.

Readers hold the file list of the moment they opened, and the replaced files stay on the disk until `vacuum`, so none is disturbed. Writers append
files and are never in the way for long. The commit is tried for exactly the version after the one in which every replaced file was seen: the
check of conflicts in delta-rs 1.6 overlooks files that an `optimize` took out (it looks at changes of data only), and would let both stand.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction

from ingest.errors import LedgerError
from ingest.lake import PARTITION, Lake

ROW_GROUP_ROWS = 122_880
"""DuckDB's own size: what a query reads at least."""

_TRIES = 60
_ONCE = CommitProperties(max_commit_retries=0)
_TOLD = ("run", "run_index", "rank", "iteration", "day")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One data file: its path below the table, its address for DuckDB, bytes, rows, when it was written (ms since 1970), and its partition."""

    path: str
    uri: str
    size_bytes: int
    rows: int
    written_ms: int
    partition: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a table: the handle that commits on it, and its files."""

    table: str
    handle: DeltaTable
    files: tuple[StoredFile, ...]

    @property
    def schema(self) -> pa.Schema:
        """Columns of the data files in order: those of the table, newer ones that this release does not know included, but the partition's."""
        return pa.schema([field for field in pa.schema(self.handle.schema().to_arrow()) if field.name not in PARTITION])


def version_of(lake: Lake, table: str, at: datetime | None = None) -> Version | None:
    """The newest version of a table, or the one that was newest at a time; None where there is no such table. Raises LedgerError."""
    handle = lake._open(table)
    if handle is None:
        return None
    if at is not None:
        handle = DeltaTable(lake._address(table), storage_options=lake._options)
        handle.load_as_version(at)
    actions = pa.table(handle.get_add_actions(flatten=True))
    if not actions.num_rows:
        return Version(table, handle, ())
    names = ["path", "size_bytes", "num_records", "modification_time", *(f"partition.{name}" for name in PARTITION)]
    return Version(table, handle, tuple(_stored_file(lake, table, row) for row in actions.select(names).to_pylist()))


def _stored_file(lake: Lake, table: str, action: dict[str, Any]) -> StoredFile:
    """The log escapes paths once; the folder's names hold the escaped text of the partition's values."""
    path, remote = unquote(action["path"]), lake.file_system() is not None
    if remote:
        lake._sizes[f"{table}/{path}"] = action["size_bytes"]
    return StoredFile(path, f"lake://{table}/{path}" if remote else f"{lake.root}/{table}/{path}", action["size_bytes"], action["num_records"] or 0,
                      action["modification_time"], tuple(str(action[f"partition.{name}"]) for name in PARTITION))


def write(version: Version, like: StoredFile, batches: Iterable[pa.Table], target_bytes: int, prefix: str = "compacted") -> list[AddAction]:
    """Rows into new files beside `like`, named from `prefix` on, of about `target_bytes` each, not yet part of the table.

    One row group is in memory at a time. Where it fails (a full disk), what was begun is away again.
    """
    files = file_system(version.handle)
    folder, _, _ = like.path.rpartition("/")
    paths: list[str] = []
    waiting = iter(batches)
    try:
        while (first := next(waiting, None)) is not None:
            paths.append(f"{folder}/{prefix}-{uuid.uuid4()}.parquet")
            with files.open_output_stream(paths[-1]) as sink, pq.ParquetWriter(sink, version.schema, compression="zstd") as writer:
                for rows in _until_full(first, waiting, sink, target_bytes):
                    writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        return [_added(files, path, like) for path in paths]
    except BaseException:
        _thrown_away(files, paths)
        raise


def _until_full(first: pa.Table, waiting: Iterator[pa.Table], sink: Any, target_bytes: int) -> Iterator[pa.Table]:
    yield first
    while sink.tell() < target_bytes and (rows := next(waiting, None)) is not None:
        yield rows


def _added(files: pafs.FileSystem, path: str, like: StoredFile) -> AddAction:
    with files.open_input_file(path) as source:
        size, footer = source.size(), pq.read_metadata(source)
    return AddAction(path, size, dict(zip(PARTITION, like.partition, strict=True)), int(time.time() * 1000), True, json.dumps(_statistics(footer)))


def _statistics(footer: Any) -> dict[str, Any]:
    """What the log says of a file: rows, and the range of the columns that rows are sorted by."""
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    ranges = {}
    for name in (name for name in _TOLD if name in places):
        told = [group.column(places[name]).statistics for group in groups]
        if all(one is not None and one.has_min_max for one in told):
            ranges[name] = (min(one.min for one in told), max(one.max for one in told))
    texts = {name: [str(end) if name == "day" else end for end in both] for name, both in ranges.items()}
    return {"numRecords": footer.num_rows, "minValues": {name: both[0] for name, both in texts.items()},
            "maxValues": {name: both[1] for name, both in texts.items()}, "nullCount": {}}


def replace(lake: Lake, table: str, removed: Sequence[StoredFile], added: Sequence[AddAction]) -> bool:
    """Take files out and put others in, at once; False where somebody took one of them out meanwhile: the new files are away again.

    Raises LedgerError where others kept coming first.
    """
    now = int(time.time() * 1000)
    gone = [RemoveAction(path=one.path, deletion_timestamp=now, data_change=True, partition_values=dict(zip(PARTITION, one.partition, strict=True)),
                         size=one.size_bytes) for one in removed]
    paths = {one.path for one in removed}
    for attempt in range(_TRIES):
        handle = lake._opened(table)
        if not paths <= {unquote(path) for path in pa.table(handle.get_add_actions())["path"].to_pylist()}:
            _thrown_away(file_system(handle), [one.path for one in added])
            return False
        try:
            handle.create_write_transaction([*added, *gone], "append", handle.schema(), PARTITION, commit_properties=_ONCE)
            return True
        except CommitFailedError:
            time.sleep(random.uniform(0.0, min(0.02 * 2**attempt, 1.0)))
    _thrown_away(file_system(lake._opened(table)), [one.path for one in added])
    raise LedgerError("other writers kept coming first", where=lake.root, todo="run the same command again")


def _thrown_away(files: pafs.FileSystem, paths: Sequence[str]) -> None:
    """Remove new files that no log names, as far as that goes; `vacuum` removes the others."""
    for path in paths:
        with suppress(OSError):
            files.delete_file(path)


def file_system(handle: DeltaTable) -> pafs.FileSystem:
    """Where the table lies, for writing; a folder is written by Arrow itself, see `ingest.lake`."""
    options = handle._storage_options
    if options is None:
        return pafs.SubTreeFileSystem(unquote(handle.table_uri.removeprefix("file://")), pafs.LocalFileSystem())
    return pafs.PyFileSystem(DeltaStorageHandler(handle.table_uri, options))


def rows_of(added: AddAction) -> int:
    """How many rows a new file has."""
    return int(json.loads(added.stats)["numRecords"])
