"""One local file read whole, in memory: for `parse`, `theory --log` and whoever needs no lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ingest.artifacts import damage, open_stream
from ingest.errors import LedgerError
from ingest.parsers.base import Parser, Row

HEAD_BYTES = 1 << 16


@dataclass(slots=True)
class ParsedFile:
    """Rows by table (`rejects` included), the parser that read them (null for an empty file), and why a compressed file ended early."""

    path: str
    kind: str | None
    rows: dict[str, list[Row]] = field(default_factory=dict)
    damage: str | None = None


def parse_file(path: str | Path, parsers: Sequence[Parser] | None = None) -> ParsedFile:
    """Read a file, compressed or not, by the first parser that matches. Raises LedgerError where it cannot be read."""
    if parsers is None:
        from ingest.parsers import PARSERS

        parsers = PARSERS
    name = str(path)
    if Path(path).is_dir():
        raise LedgerError("is a folder", where=name, todo="give files; `hbmledger ingest` reads folders and archives")
    if Path(path).exists() and not Path(path).is_file():
        raise LedgerError("is no regular file", where=name, todo="copy its bytes into a file")
    with open_stream(path) as stream:
        head = stream.read(HEAD_BYTES)
        if not head:
            return ParsedFile(name, None, damage=damage(stream))
    parser = next((one for one in parsers if one.matches(head, name)), None)
    if parser is None:
        raise LedgerError("is of no kind that is read here (Megatron logs, memory_stats files, memory snapshots)", where=name,
                          todo="`hbmledger ingest` reads archives")
    found = ParsedFile(name, parser.name)
    with open_stream(path) as stream:
        for piece in parser.parse(stream, name, final=True):
            for table, rows in piece.records().items():
                found.rows.setdefault(table, []).extend(rows)
        found.damage = damage(stream)
    return found
