"""`hbmledger compact`: many small files of a lake as few large sorted ones; safe while others ingest and read."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from ingest.errors import OK

if TYPE_CHECKING:
    from ingest.upkeep.compact import Compacted

NAME = "compact"
HELP = "merge a lake's small files into large sorted ones, sum up days, drop rows that can never count"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--table", action="append", metavar="NAME", help="only this table; may be given several times (default: all)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Compact, and say what was done."""
    from cli.opening import lake_of
    from ingest.upkeep.compact import compact

    done = compact(lake_of(arguments.lake), arguments.table, progress=_told if sys.stderr.isatty() else None)
    if arguments.format == "json":
        print(json.dumps([asdict(one) for one in done], indent=1))
    else:
        print("\n".join(_sentences(done)))
    return OK


def _told(table: str, done: int, total: int) -> None:
    print(f"\r{table}: {done:,} of {total:,} small files", end="" if done < total else "\n", file=sys.stderr)


def _sentences(done: list[Compacted]) -> list[str]:
    changed = [one for one in done if one.commits]
    if not changed:
        return ["Nothing to do: no table has two small files in one month and cluster."]
    return [*map(_sentence, changed), "The files they replace stay for readers at work until `hbmledger vacuum`."]


def _sentence(one: Compacted) -> str:
    counts = ((one.rows_folded, "summed up"), (one.rows_dropped, "that could never count dropped"))
    more = "".join(f", {count:,} rows {what}" for count, what in counts if count)
    return f"{one.table}: {one.files_before:,} files of {_size(one.bytes_before)} are now {one.files_after:,} of {_size(one.bytes_after)}{more}"


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
