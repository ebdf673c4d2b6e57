"""`hbmledger parse FILE...`: every record found, one JSON object a line; nothing is written."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from datetime import date, datetime
from pathlib import Path
from typing import Any

from ingest.tables import BY_NAME

HELP = "print every record found in files, as JSON lines or as counts"
_PLACE = frozenset({"run", "artifact", "month", "cluster"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Files and the format."""
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path, help="log, memory_stats file, ...; may be compressed")
    parser.add_argument("--format", choices=("text", "jsonl"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Read each file and print its records."""
    from ingest.parsers.reading import parse_file

    for path in arguments.files:
        parsed = parse_file(path)
        if arguments.format == "text":
            _print_counts(path, parsed.kind, parsed.rows)
            continue
        for table, rows in parsed.rows.items():
            names = [name for name in BY_NAME[table].names if name not in _PLACE]
            for row in rows:
                print(json.dumps({"table": table, **{name: row.get(name) for name in names}}, default=_text))
    return 0


def _print_counts(path: Path, kind: str | None, rows: dict[str, list[dict[str, Any]]]) -> None:
    print(f"{path}: {kind or 'empty'}")
    for table, found in sorted(rows.items()):
        ranks = Counter(row["rank"] for row in found if row.get("rank") is not None)
        print(f"  {table:<20}{len(found):>8}" + (f"   ranks {min(ranks)}-{max(ranks)} ({len(ranks)} seen)" if ranks else ""))


def _text(value: object) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)
