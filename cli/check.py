"""`hbmledger check [RUN ...]`: an exit code for cron and CI: 0 clear, 1 findings at or above `--fail-on`, 2 could not judge.

RUN is as in `report`; without one every run of the lake that was ingested since `--since` is checked. A run of which no rank's memory is known,
or none whose headroom can be judged and no finding that fails, could not be judged: silence is not a pass.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.errors import OK, USAGE, LedgerError

if TYPE_CHECKING:
    from analysis.checking import Checked

NAME = "check"
HELP = "an exit code: 0 clear, 1 findings at or above --fail-on, 2 could not judge"
FINDINGS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("run_names", metavar="RUN", nargs="*", help="runs, RUN#attempt, or paths; none: every run of the lake")
    parser.add_argument("--since", metavar="WHEN", help="without RUN: only runs ingested since, 2026-11-01 or 36h or 7d")
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--capacity", metavar="SIZE", help="memory of a device: 79.2GiB, or a name such as H100-80")
    parser.add_argument("--fail-on", choices=("error", "warning", "note"), default="error", help="the least severity that fails (default: error)")
    parser.add_argument("--format", choices=("text", "json", "junit", "prometheus"), default="text", help="output format")
    parser.add_argument("--output", metavar="FILE", help="write there instead, whole or not at all (for the textfile collector of node exporters)")


def run(arguments: argparse.Namespace) -> int:
    """Check what was asked for; the worst run decides."""
    from analysis.checking import as_junit, as_plain, as_prometheus, as_text

    checked = list(_checked(arguments))
    if arguments.format == "json":
        text = json.dumps([as_plain(one) for one in checked], indent=1) + "\n"
    else:
        text = {"text": as_text, "junit": as_junit, "prometheus": as_prometheus}[arguments.format](checked)
    _write(text, arguments.output)
    return exit_code(checked)


def exit_code(checked: Sequence[Checked]) -> int:
    """1 where a run fails, else 2 where one could not be judged (or there is none), else 0."""
    if any(one.failing for one in checked):
        return FINDINGS
    return OK if checked and all(one.judged for one in checked) else USAGE


def _checked(arguments: argparse.Namespace) -> Iterator[Checked]:
    from analysis.capacity import given_capacity
    from analysis.checking import check
    from analysis.overview import overview
    from cli.opening import asked_run

    capacity = given_capacity(arguments.capacity) if arguments.capacity else None
    for name in arguments.run_names or _recent(arguments):
        with asked_run(name, arguments.lake) as asked:
            for one in asked.runs:
                found = overview(asked.connection, one, asked.run_index, capacity=capacity)
                yield check(replace(found, run=asked.called(one)), arguments.fail_on)
            for problem in asked.problems:
                print(f"hbmledger: {problem}", file=sys.stderr)


def _recent(arguments: argparse.Namespace) -> list[str]:
    from analysis.checking import moment, runs_since
    from analysis.database import connect
    from cli.opening import lake_of

    lake = lake_of(arguments.lake)
    arguments.lake = str(lake.root)
    found = runs_since(connect(lake), moment(arguments.since) if arguments.since else None)
    if not found:
        print("hbmledger: no run to check", file=sys.stderr)
    return found


def _write(text: str, target: str | None) -> None:
    if target is None:
        print(text, end="")
        return
    path = Path(target)
    if path.is_dir():
        raise LedgerError("is a folder", where=target, todo="give --output a file")
    partial = path.with_name(f".{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
