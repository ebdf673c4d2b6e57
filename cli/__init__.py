"""The command face: one file a verb, listed here; a verb checks its arguments, asks `ingest` or `analysis`, and renders.

A verb module offers `NAME`, `HELP`, `add_arguments(parser)` and `run(arguments) -> int` and imports what is heavy
inside `run`, so that `hbmledger theory` starts without an engine. Errors a user can cause are `LedgerError`: what,
where, what to do, on stderr, without a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ingest.errors import OK, USAGE, LedgerError

INTERRUPTED = 130
"""Ended by Ctrl-C, as shells count it."""

VERBS = ("ingest", "watch", "parse", "runs", "report", "check", "plan", "diff", "theory", "expected", "branch", "snapshot", "sql", "export-db", "app",
         "probe", "doctor", "compact", "vacuum", "retention")
"""Every verb, in the order of `--help`; `cli.<verb>` is its module (`cli.app_` where the name is taken)."""

_MODULES = {"app": "app_server", "export-db": "export_db"}


class _Parser(argparse.ArgumentParser):
    """A mistake in the options is told in one sentence, as any other."""

    def error(self, message: str) -> NoReturn:
        """End with the exit code of usage; the command's own help says what would fit."""
        self.exit(USAGE, f"hbmledger: {message} — `{self.prog} --help` says what fits\n")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of the command, with all verbs or (faster to build) one of them."""
    parser = _Parser(prog="hbmledger", description="What Megatron-LM said a run would use, and what every rank really used.")
    commands = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    for verb in VERBS if only is None else (only,):
        module = importlib.import_module(f"cli.{_MODULES.get(verb, verb)}")
        command = commands.add_parser(verb, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(run=module.run, told_by=command)
    return parser


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The options of one command; what it does not know is told by its own parser, whose help says what it does know."""
    only = argv[0] if argv and argv[0] in VERBS else None
    arguments, unknown = build_parser(only).parse_known_args(argv)
    if unknown:
        arguments.told_by.error(f"unrecognized arguments: {' '.join(unknown)}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 fine, 1 findings, 2 usage or cannot judge, 3 some inputs quarantined: an error that ends it is never 3."""
    arguments = _parsed(list(sys.argv[1:] if argv is None else argv))
    try:
        return int(arguments.run(arguments))
    except LedgerError as error:
        print(f"hbmledger: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        where, what = error.filename or "output", error.strerror or error
        print(f"hbmledger: {where}: {what} — check the path, its permissions and the room left", file=sys.stderr)
        return USAGE
    except Exception as error:
        if (told := _damage(error)) is None:
            raise
        print(f"hbmledger: {told}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("hbmledger: stopped; what was committed stays, nothing is half written — run the same command to go on", file=sys.stderr)
        return INTERRUPTED


def _damage(error: Exception) -> LedgerError | None:
    """A file of the lake that the engine could not read, by whichever query it came out; None for a defect of ours."""
    if "duckdb" not in sys.modules:
        return None
    from analysis.database import damage

    return damage(error)
