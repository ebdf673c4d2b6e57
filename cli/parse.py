"""`hbmledger parse`: every record of files, as JSON lines or as counts; writes nothing.

No engine and no Arrow is loaded. A record shows all columns of its table but those that a lake adds (run, artifact, month, cluster).
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from ingest.errors import OK, QUARANTINED, LedgerError

if TYPE_CHECKING:
    from ingest.parsers import ParsedFile

NAME = "parse"
HELP = "every record found in files: counts, or one JSON object a line with --format jsonl"
_OF_THE_LAKE = ("run", "artifact", "month", "cluster")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="logs, memory_stats files and memory snapshots, compressed or not")
    parser.add_argument("--format", choices=("text", "json", "jsonl"), default="text",
                        help="jsonl: each record; json: the same in one list; text: counts")


def run(arguments: argparse.Namespace) -> int:
    """Read the files one after the other; one that cannot be read is told and the others go on."""
    from ingest.parsers import parse_file

    listed: list[dict[str, Any]] = []
    failed = 0
    for path in arguments.files:
        try:
            found = parse_file(path)
        except LedgerError as error:
            if len(arguments.files) == 1:
                raise
            print(f"hbmledger: {error}", file=sys.stderr)
            failed += 1
            continue
        if found.damage:
            print(f"hbmledger: {path}: {found.damage}", file=sys.stderr)
            failed += 1
        if arguments.format == "text":
            print(_counts(path, found))
        elif arguments.format == "json":
            listed.extend(_records(found))
        else:
            sys.stdout.writelines(json.dumps(record, default=_plain) + "\n" for record in _records(found))
    if arguments.format == "json":
        print(json.dumps(listed, default=_plain, indent=1))
    return QUARANTINED if failed else OK


def _records(found: ParsedFile) -> list[dict[str, Any]]:
    from ingest.tables import BY_NAME

    records: list[dict[str, Any]] = []
    for table, rows in found.rows.items():
        names = [name for name in BY_NAME[table].names if name not in _OF_THE_LAKE]
        records.extend({"table": table, **{name: row.get(name) for name in names}} for row in rows)
    return records


def _counts(path: str, found: ParsedFile) -> str:
    counted = ", ".join(f"{table} {len(rows)}" for table, rows in found.rows.items() if rows)
    attempts = {row.get("run_index") or 0 for table, rows in found.rows.items() if table != "rejects" for row in rows}
    more = f" in {len(attempts)} attempts" if len(attempts) > 1 else ""
    return f"{path} ({found.kind or 'empty'}): {counted or 'no record'}{more}"


def _plain(value: object) -> object:
    """Times as ISO text; anything else that JSON lacks as its own text."""
    return value.isoformat() if isinstance(value, datetime | date) else str(value)
