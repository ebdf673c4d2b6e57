"""`hbmledger watch PATH...`: ingest again and again until it is stopped, for where no timer is at hand.

Nothing is remembered but what the lake knows, so any number of watches and timers on any hosts may run beside each other, and one that was killed is
simply started again. A round that fails (a file system that is away, a lake that is busy) is told and tried again; the first one has to work.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime

from cli.ingest import Task, add_choice, line, tell
from cli.stopping import Stop
from ingest.errors import OK, USAGE, LedgerError

NAME = "watch"
HELP = "ingest again and again until stopped"
_EVERY_SECONDS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    add_choice(parser)
    parser.add_argument("--every", metavar="TIME", help="from the begin of a round to the next: 30s, 5m (default: of the settings, else 60s)")
    parser.add_argument("--once", action="store_true", help="one round; exit code as of ingest")


def run(arguments: argparse.Namespace) -> int:
    """Rounds until Ctrl-C or SIGTERM, which end it with 0 once the batch under way is committed."""
    task = Task(arguments)
    every_seconds = _every(arguments.every) or task.settings.every_seconds or _EVERY_SECONDS
    told: set[tuple[str, str]] = set()
    code = OK
    with Stop() as stop:
        first = True
        while not stop.asked():
            began = time.monotonic()
            code = _round(task, stop, told, first=first or arguments.once)
            first = False
            if arguments.once or stop.wait(max(every_seconds - (time.monotonic() - began), 0.0)):
                break
    return code if arguments.once and not stop.number else OK


def _every(given: str | None) -> int | None:
    from ingest.settings import seconds

    try:
        return seconds(given) if given else None
    except ValueError as error:
        raise LedgerError(f"--every is {given!r}", todo="a duration such as 30s, 5m or 1h would fit") from error


def _round(task: Task, stop: Stop, told: set[tuple[str, str]], *, first: bool) -> int:
    """One ingest, told in a line; a sentence about a file is told when it is new. An error of the first round ends the watch."""
    try:
        summary = task.ingest(_silent, stop)
    except LedgerError as error:
        if first:
            raise
        print(f"hbmledger: {error} (tried again in the next round)", file=sys.stderr, flush=True)
        return USAGE
    print(f"{datetime.now().astimezone():%Y-%m-%dT%H:%M:%S%z} {line(summary, task.lake)}", flush=True)
    said = [*summary.problems, *summary.notes]
    tell([pair for pair in said if pair not in told])
    told.clear()
    told.update(said)
    return summary.exit_code


def _silent(stage: str, done: int, total: int, path: str) -> None:
    pass
