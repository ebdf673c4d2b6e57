"""`hbmledger sql QUERY`: one SELECT over the tables and views of a lake, read only."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from ingest.errors import OK, LedgerError

if TYPE_CHECKING:
    from analysis.query import Answer

NAME = "sql"
HELP = "one SELECT over the tables and views of a lake"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("query", metavar="QUERY", help="one SELECT, or - to read it from standard input")
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--format", choices=("text", "table", "csv", "json"), default="text", help="output format; table is text")
    parser.add_argument("--rows", type=int, default=10_000, metavar="N", help="most rows to show (default 10000)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="longest time to run (default 30)")


def run(arguments: argparse.Namespace) -> int:
    """Answer one query; says on stderr where rows were left off."""
    from analysis.database import locked
    from analysis.query import ask
    from cli.opening import lake_of

    if arguments.rows < 1:
        raise LedgerError(f"--rows is {arguments.rows}; at least 1 would fit")
    if not (math.isfinite(arguments.seconds) and arguments.seconds > 0):
        raise LedgerError(f"--seconds is {arguments.seconds}; a number above 0 would fit")
    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    answer = ask(locked(lake_of(arguments.lake)), query, rows=arguments.rows, seconds=arguments.seconds)
    _show(answer, arguments.format)
    if answer.capped:
        print(f"hbmledger: only the first {len(answer.rows)} rows are shown; --rows N shows more", file=sys.stderr)
    return OK


def _show(answer: Answer, form: str) -> None:
    from cli.table import table

    if form == "json":
        print(json.dumps([dict(zip(answer.columns, map(_finite, row), strict=True)) for row in answer.rows], indent=1, default=_plain))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([answer.columns, *answer.rows])
    else:
        print(table(answer.columns, answer.rows))


def _finite(value: Any) -> Any:
    """NaN and infinities as null, also inside lists and structs, and keys as text: JSON has no other form for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return {str(key): _finite(one) for key, one in value.items()} if isinstance(value, dict) else value


def _plain(value: Any) -> str:
    """Times and other values that JSON has no form for, as text."""
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)
