"""`hbmledger report RUN`: what an attempt's artifacts show: verdict, coverage, printed theory beside measured memory, stages, ranks.

RUN is a run of the lake, `RUN#attempt`, or a file, folder or archive that is read straight.
"""

from __future__ import annotations

import argparse
import json
import sys

from ingest.errors import OK, QUARANTINED, LedgerError

NAME = "report"
HELP = "what theory said, what each rank used, and how close it came to the limit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("run_name", metavar="RUN", help="a run, RUN#attempt, or a path: a log, a folder, an archive")
    parser.add_argument("--lake", metavar="DIR", help="the lake that holds RUN (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--capacity", metavar="SIZE", help="memory of a device: 79.2GiB, or a name such as H100-80; wins over the artifacts'")
    parser.add_argument("--format", choices=("text", "json", "markdown", "html"), default="text", help="output format")
    parser.add_argument("--next-steps", type=int, metavar="N", help="steps ahead that the JSON's outlook speaks of (default: as many as were seen)")
    parser.add_argument("--redact", action="store_true", help="without hosts, addresses, users and folders; read it before you send it")


def run(arguments: argparse.Namespace) -> int:
    """Report every run that was asked for: one, or those of a folder."""
    from analysis.capacity import given_capacity
    from analysis.overview import overview
    from analysis.report.html import as_html, hosts_of, redacted
    from analysis.report.keys import as_json, as_markdown
    from analysis.report.text import as_text
    from cli.opening import asked_run

    if arguments.next_steps is not None and arguments.next_steps < 1:
        raise LedgerError(f"--next-steps is {arguments.next_steps}", todo="give a number of steps, 1 or more")
    capacity = given_capacity(arguments.capacity) if arguments.capacity else None
    with asked_run(arguments.run_name, arguments.lake) as asked:
        found = [overview(asked.connection, name, asked.run_index, capacity=capacity) for name in asked.runs]
        if arguments.redact:
            found = [redacted(one, hosts_of(asked.connection, one.run)) for one in found]
    if not found:
        raise LedgerError("no run in it", where=arguments.run_name, todo="give a log or a folder of logs")
    if arguments.format == "json":
        answers = [as_json(one, arguments.next_steps) for one in found]
        print(json.dumps(answers[0] if len(answers) == 1 else answers, indent=1))
    else:
        if arguments.format == "html" and len(found) > 1:
            raise LedgerError(f"{len(found)} runs in it; an HTML report tells of one", where=arguments.run_name, todo="give one run or one file")
        render = {"text": as_text, "markdown": as_markdown, "html": as_html}[arguments.format]
        print("\n".join(render(one) for one in found), end="")
    for problem in asked.problems:
        print(f"hbmledger: {problem}", file=sys.stderr)
    return QUARANTINED if asked.problems else OK
