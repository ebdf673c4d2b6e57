"""`hbmledger runs`: the attempts a lake holds, each with its program, sizes, ranks seen, iterations, rejects and time."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from ingest.errors import OK

if TYPE_CHECKING:
    import duckdb

NAME = "runs"
HELP = "list the runs of a lake"

_QUERY = """
WITH rejected AS (
    SELECT run, COALESCE(run_index, 0) AS run_index, COUNT(*) AS rejects FROM rejects GROUP BY run, COALESCE(run_index, 0)
), died AS (
    SELECT run, run_index, COUNT(*) AS ooms FROM oom_events GROUP BY run, run_index
)
SELECT
    attempt.run, attempt.run_index, attempt.framework, attempt.world_size, attempt.tensor_model_parallel_size AS tp,
    attempt.pipeline_model_parallel_size AS pp, attempt.context_parallel_size AS cp, attempt.expert_model_parallel_size AS ep, attempt.ranks_seen,
    attempt.first_iteration, attempt.last_iteration, COALESCE(rejected.rejects, 0) AS rejects, COALESCE(died.ooms, 0) AS out_of_memory,
    attempt.started_at, attempt.ended_at
FROM run_attempts AS attempt
LEFT JOIN rejected ON rejected.run = attempt.run AND rejected.run_index = attempt.run_index
LEFT JOIN died ON died.run = attempt.run AND died.run_index = attempt.run_index
ORDER BY attempt.run, attempt.run_index
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """List every attempt."""
    from analysis.database import connect
    from analysis.scope import clusters_of, listed, within_cluster
    from cli.opening import lake_of
    from cli.table import table

    connection = connect(lake_of(arguments.lake))
    clusters = clusters_of(connection)
    with listed(connection):
        found = []
        for cluster in clusters:
            with within_cluster(connection, cluster):
                found += _attempts(connection, cluster)
    if arguments.format == "json":
        print(json.dumps(found, indent=1, default=lambda value: value.isoformat()))
    elif not found:
        print("no runs in this lake yet")
    else:
        hidden = 0 if len(clusters) > 1 else 1
        names = ("cluster", "run", "attempt", "program", "sizes", "ranks seen", "iterations", "rejects", "oom", "from")
        print(table(names[hidden:], [_row(one)[hidden:] for one in found]))
    return OK


def _attempts(connection: duckdb.DuckDBPyConnection, cluster: str) -> list[dict[str, Any]]:
    from analysis.database import records

    return [{"cluster": cluster, **row} for row in records(connection, _QUERY)]


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    sizes = " ".join(f"{name.upper()}{one[name]}" for name in ("tp", "pp", "cp", "ep") if one[name] and (one[name] > 1 or name in ("tp", "pp")))
    seen = f"{one['ranks_seen']} of {one['world_size'] if one['world_size'] is not None else '?'}"
    steps = "-" if one["last_iteration"] is None else f"{one['first_iteration']}-{one['last_iteration']}"
    when = f"{one['started_at']:%Y-%m-%d %H:%M}" if one["started_at"] else "-"
    counts = (str(one["rejects"]), str(one["out_of_memory"]))
    return (one["cluster"], one["run"], str(one["run_index"]), one["framework"] or "-", sizes or "-", seen, steps, *counts, when)
