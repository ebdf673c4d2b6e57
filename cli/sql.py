"""`hbmledger sql QUERY`: one SELECT over the tables and views of a lake, read only, on this machine or on a Spark cluster."""

from __future__ import annotations

import argparse
import json
import math
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ingest.errors import OK, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.query.ask import Answer

NAME = "sql"
HELP = "one SELECT over the tables and views of a lake"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("query", metavar="QUERY", help="one SELECT, or - to read it from standard input")
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--format", choices=("text", "table", "csv", "json", "parquet"), default="text", help="output format; table is text")
    parser.add_argument("--output", metavar="FILE", help="write there, a file that is not there yet (needed for parquet)")
    parser.add_argument("--rows", type=int, default=10_000, metavar="N", help="most rows to show (default 10000)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="longest time to run (default 30)")
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb", help="where it runs (default duckdb: this machine)")
    parser.add_argument("--remote", metavar="URL", help="the Spark Connect server, such as sc://host:15002 (with --engine spark)")


def run(arguments: argparse.Namespace) -> int:
    """Answer one query; says on stderr where rows were left off."""
    _usage(arguments)
    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    answer = _asked(arguments, query)
    if arguments.format == "parquet":
        _write_parquet(answer, arguments.output)
    else:
        with _output(arguments.output) as file:
            _show(answer, arguments.format, file)
    if answer.capped:
        print(f"hbmledger: only the first {len(answer.rows)} rows are shown; --rows N shows more", file=sys.stderr)
    return OK


def _usage(arguments: argparse.Namespace) -> None:
    if not 1 <= arguments.rows <= 2**31:
        raise LedgerError(f"--rows is {arguments.rows}; a number from 1 to {2**31} would fit")
    if not (math.isfinite(arguments.seconds) and 0 < arguments.seconds <= 86_400):
        raise LedgerError(f"--seconds is {arguments.seconds}; a number above 0, at most 86400, would fit")
    if arguments.format == "parquet" and not arguments.output:
        raise LedgerError("Parquet is not for a terminal", todo="name a file with --output FILE")
    if arguments.output and Path(arguments.output).exists():
        raise LedgerError("the file is there already and is not overwritten", where=arguments.output, todo="name another with --output FILE")
    if (arguments.engine == "spark") != bool(arguments.remote):
        raise LedgerError("--engine spark and --remote URL go together", todo="such as --engine spark --remote sc://127.0.0.1:15002")


def _asked(arguments: argparse.Namespace, query: str) -> Answer:
    from cli.opening import lake_of

    lake = lake_of(arguments.lake)
    if arguments.engine == "spark":
        from analysis.query import spark

        with spark.session(arguments.remote) as session:
            return spark.ask(session, lake, query, rows=arguments.rows, seconds=arguments.seconds)
    from analysis.query.process import answer

    return answer(lake.root, query, rows=arguments.rows, seconds=arguments.seconds)


@contextmanager
def _output(path: str | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    with open(path, "x", encoding="utf-8", newline="") as file:
        yield file


def _write_parquet(answer: Answer, path: str) -> None:
    from analysis.query.export import parquet

    with open(path, "xb") as file:
        file.write(parquet(answer))


def _show(answer: Answer, form: str, file: IO[str]) -> None:
    from analysis.query.export import csv_text
    from cli.table import table

    if form == "json":
        print(json.dumps([dict(zip(answer.columns, map(_finite, row), strict=True)) for row in answer.rows], indent=1, default=_plain), file=file)
    elif form == "csv":
        file.write(csv_text(answer))
    else:
        print(table(answer.columns, answer.rows), file=file)


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
