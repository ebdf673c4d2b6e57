"""How far a table's application transactions reach, read from its log in one pass.

The table format answers for one identity at a time by going through the log each time: with ten thousand growing files that is a minute a
commit. Here the newest checkpoint and the commits after it are read once, and only new commits when the same table is asked again. Where
the log has a form that is not known here (a checkpoint in several parts, a commit cleaned away), the table format is asked, one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

_FEW = 8
_TRANSACTION = re.compile(rb'^\{"txn":(\{[^{}]*\})\}\s*$', re.MULTILINE)
_READABLE = re.compile(rb'"appId":"([^"\\]*)","version":(\d+)[,}]')


@dataclass(slots=True)
class _Log:
    """What the log of one table said up to `version`."""

    table_id: str
    version: int = -1
    reached: dict[str, int] = field(default_factory=dict)


class _Unknown(Exception):
    """The log is not in the form that is read here."""


class Transactions:
    """The transactions of the tables of one lake, remembered between questions."""

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}

    def reached(self, handle: DeltaTable, app_ids: Collection[str]) -> dict[str, int]:
        """The newest version of each identity that has one, as the handle sees the table."""
        if len(app_ids) > _FEW:
            try:
                log = self._read(handle)
                return {app_id: log.reached[app_id] for app_id in app_ids if app_id in log.reached}
            except (_Unknown, OSError, ValueError, KeyError, pa.ArrowException):
                self._logs.pop(handle.table_uri, None)
        found = {app_id: handle.transaction_version(app_id) for app_id in app_ids}
        return {app_id: int(version) for app_id, version in found.items() if version is not None}

    def _read(self, handle: DeltaTable) -> _Log:
        """The log up to the handle's version: from what is remembered, else from the newest checkpoint, else from the start."""
        table_id, version = str(handle.metadata().id), int(handle.version())
        log = self._logs.get(handle.table_uri)
        read = _reader(handle)
        if log is None or log.table_id != table_id or log.version > version:
            log = _from_checkpoint(read, table_id, version)
        for commit in range(log.version + 1, version + 1):
            content = read(f"{commit:020d}.json")
            if content is None:
                raise _Unknown
            log.reached.update(_transactions(content))
            log.version = commit
        self._logs[handle.table_uri] = log
        return log


def _reader(handle: DeltaTable) -> Callable[[str], bytes | None]:
    """Whole files of a table's log by name; None for one that is not there. Local files are opened as such, see `ingest.lake`."""
    address = urlparse(handle.table_uri)
    if address.scheme in ("", "file"):
        folder = Path(unquote(address.path) if address.scheme else handle.table_uri, "_delta_log")

        def local(name: str) -> bytes | None:
            return (folder / name).read_bytes() if (folder / name).exists() else None

        return local
    store = DeltaStorageHandler(handle.table_uri, handle._storage_options)

    def remote(name: str) -> bytes | None:
        try:
            with store.open_input_file(f"_delta_log/{name}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    return remote


def _from_checkpoint(read: Callable[[str], bytes | None], table_id: str, version: int) -> _Log:
    """What the newest checkpoint holds; an empty log where there is none. Raises `_Unknown` for one newer than the handle or of another form."""
    pointer = read("_last_checkpoint")
    if pointer is None:
        return _Log(table_id)
    said = json.loads(pointer)
    content = read(f"{int(said['version']):020d}.checkpoint.parquet") if said["version"] <= version and not said.get("parts") else None
    if content is None:
        raise _Unknown
    file = pq.ParquetFile(pa.BufferReader(content))
    if "txn" not in file.schema_arrow.names:
        raise _Unknown
    entries = file.read(columns=["txn.appId", "txn.version"], use_threads=False)["txn"].combine_chunks()
    pairs = zip(entries.field("appId").to_pylist(), entries.field("version").to_pylist(), strict=True)
    return _Log(table_id, int(said["version"]), {app_id: reached for app_id, reached in pairs if app_id is not None})


def _transactions(commit: bytes) -> dict[str, int]:
    """The transactions of one commit: what is written as usual by pattern, anything else as JSON."""
    entries = _TRANSACTION.findall(commit)
    if len(entries) != commit.count(b'"txn"'):
        raise _Unknown
    found: dict[str, int] = {}
    for entry in entries:
        if usual := _READABLE.search(entry):
            found[usual[1].decode()] = int(usual[2])
        else:
            said = json.loads(entry)
            found[said["appId"]] = int(said["version"])
    return found
