"""Columns between processes: eight Arrow streams one after the other in one file, mapped by the process that asked.

The first carries everything that is no table as JSON. The mapped file is never copied: a table's arrays lie in its pages.
"""

from __future__ import annotations

import json
import mmap
from typing import Any, BinaryIO

import pyarrow as pa

from ingest.parsers.snapshot.columns import SnapshotColumns

_TABLES = ("events", "segments", "blocks", "annotations", "stacks", "frames")


def write(columns: SnapshotColumns, file: BinaryIO) -> None:
    """Append the columns to a binary file."""
    facts = {"reader": columns.reader, "file_bytes": columns.file_bytes, "devices": columns.devices, "actions": columns.actions,
             "states": columns.states, "settings": columns.settings, "unknown": columns.unknown}
    texts = pa.table({"text": columns.texts}).replace_schema_metadata({"facts": json.dumps(facts)})
    for table in (texts, *(getattr(columns, name) for name in _TABLES)):
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)


def load(file: BinaryIO) -> SnapshotColumns:
    """The columns that `write` put into a file; the file may be closed and removed while they live."""
    source = pa.BufferReader(pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    texts, *tables = [_table(source) for _ in range(1 + len(_TABLES))]
    facts: dict[str, Any] = json.loads(texts.schema.metadata[b"facts"])
    facts |= {name: tuple(facts[name]) for name in ("actions", "states")}
    return SnapshotColumns(**facts, **dict(zip(_TABLES, tables, strict=True)), texts=texts["text"].combine_chunks())


def _table(source: pa.BufferReader) -> pa.Table:
    with pa.ipc.open_stream(source) as stream:
        return stream.read_all()
