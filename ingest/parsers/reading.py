"""One local file read at once, all its pieces together: for faces that answer from a file and write nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ingest.artifacts import HEAD_BYTES, open_stream
from ingest.errors import LedgerError
from ingest.parsers import PARSERS
from ingest.parsers.base import Row


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """Rows by table, and the parser that read them; `kind` is null for an empty file."""

    path: str
    kind: str | None
    rows: dict[str, list[Row]] = field(default_factory=dict)


def parse_file(path: str | Path) -> ParsedFile:
    """Every record of a file, compressed or not. LedgerError where it cannot be opened or is of no kind that is read."""
    where = str(path)
    if Path(path).is_dir():
        raise LedgerError("is a folder, and one file is read here", where=where, todo="name its files, or ingest the folder")
    try:
        with open_stream(path) as stream:
            head = stream.read(HEAD_BYTES)
    except OSError as error:
        raise LedgerError(f"cannot be read: {error.strerror or error}", where=where, todo="check the path and its permissions") from error
    if not head:
        return ParsedFile(where, None)
    parser = next((one for one in PARSERS if one.matches(head, where)), None)
    if parser is None:
        raise LedgerError("is of no kind that is read here", where=where, todo="see docs/formats.md for what is")
    rows: dict[str, list[Row]] = {}
    with open_stream(path) as stream:
        for piece in parser.parse(stream, where, final=True):
            for table, found in piece.rows.items():
                rows.setdefault(table, []).extend(found)
    return ParsedFile(where, parser.name, rows)
