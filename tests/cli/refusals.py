"""Many queries through one child with the limits of `analysis.query.process`: what each is told, without a process for each.

`python -m tests.cli.refusals` reads a request as that module does, with `queries` in place of `query`, and prints a line a query.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from analysis.database import locked
from analysis.query import process as query_process
from ingest.lake import Lake


def told(lake: str, queries: Iterable[str], seconds: float) -> list[dict[str, Any]]:
    """The first line of the child's answer to each query: an error, or whether rows were cut."""
    request = json.dumps({"root": lake, "queries": list(queries), "seconds": seconds})
    done = subprocess.run([sys.executable, "-P", "-m", "tests.cli.refusals"], input=request, env=query_process._environment(), text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """What `query_process.main` does, query after query on one connection."""
    request = json.load(sys.stdin)
    connection = locked(Lake(request["root"]))
    query_process._confine(request["seconds"])
    for query in request["queries"]:
        print(query_process._answered(connection, query, 10, request["seconds"]).partition(b"\n")[0].decode(), flush=True)


if __name__ == "__main__":
    main()
