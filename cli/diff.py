"""`hbmledger diff RUN RUN`: what changed between two attempts, and which change explains how many bytes.

Each RUN is as in `report`: a run of the lake, `RUN#attempt`, or a path that is read straight. Exit codes: 0 nothing differs, 1 something does,
2 the two cannot be compared, 3 some inputs of a path could not be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from ingest.errors import OK, QUARANTINED, USAGE, LedgerError

if TYPE_CHECKING:
    from analysis.diff.rows import Side

NAME = "diff"
HELP = "what changed between two runs, by the bytes it explains; exit code 0 nothing, 1 something, 2 not comparable"
DIFFERS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("before", metavar="RUN", help="a run, RUN#attempt, or a path: a log, a folder, an archive")
    parser.add_argument("after", metavar="RUN", help="the run to hold against it")
    parser.add_argument("--lake", metavar="DIR", help="the lake that holds the runs (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Compare the two."""
    from analysis.diff.compare import diff
    from analysis.diff.text import as_plain, as_text

    (before, first), (after, second) = _side(arguments.before, arguments.lake), _side(arguments.after, arguments.lake)
    found = diff(before, after)
    print(json.dumps(as_plain(found), indent=1) if arguments.format == "json" else as_text(found), end="\n" if arguments.format == "json" else "")
    for problem in (*first, *second):
        print(f"hbmledger: {problem}", file=sys.stderr)
    if first or second:
        return QUARANTINED
    return USAGE if not found.comparable else DIFFERS if found.differs else OK


def _side(name: str, lake: str | None) -> tuple[Side, tuple[str, ...]]:
    """One side, and the inputs of its path that could not be read."""
    from analysis.diff.compare import side_of
    from cli.opening import asked_run

    with asked_run(name, lake) as asked:
        if len(asked.runs) != 1:
            raise LedgerError(f"{len(asked.runs)} runs in it; a side of a diff is one", where=name, todo="give one run or one file")
        return side_of(asked.connection, asked.runs[0], asked.run_index, called=asked.called(asked.runs[0])), asked.problems
