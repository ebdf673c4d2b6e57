"""The arguments of one attempt of a log file: for the verbs that take `--log FILE`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.theory.run_arguments import Row, RunArguments, run_arguments
from ingest.errors import LedgerError


def arguments_of_log(path: str, *, run_index: int | None = None) -> tuple[dict[str, Any], int | None]:
    """Arguments and micro-batches of one attempt of a log file (default: the last that has arguments)."""
    found, _ = _chosen(path, _rows_of_log(path), run_index)
    return found.args, found.microbatches


def arguments_of_rows(run_args: Iterable[Row], runs: Iterable[Row], run_index: int) -> RunArguments:
    """Arguments of attempt `run_index` from the rows of a file."""
    return run_arguments([row for row in run_args if _attempt(row) == run_index], [row for row in runs if _attempt(row) == run_index])


def _chosen(path: str, rows: dict[str, list[dict[str, Any]]], run_index: int | None) -> tuple[RunArguments, int]:
    """The arguments of the attempt asked for, and which one it is; a sentence where there is none."""
    args, runs = rows.get("run_args", []), rows.get("runs", [])
    known = sorted({_attempt(row) for row in args})
    if not known or (run_index is not None and run_index not in known):
        has = f"it has attempts {', '.join(map(str, known))}" if known else "it has no argument dump and no launch command"
        which = "any attempt" if run_index is None else f"attempt {run_index}"
        raise LedgerError(f"no arguments of {which} found: {has}", where=path, todo="give --args FILE.json")
    attempt = known[-1] if run_index is None else run_index
    return arguments_of_rows(args, runs, attempt), attempt


def _rows_of_log(path: str) -> dict[str, list[dict[str, Any]]]:
    """Every table's rows of one file; the parsers are loaded only here, so that `theory --args` starts without them."""
    try:
        parse_file = importlib.import_module("ingest.parsers.reading").parse_file
    except (ImportError, AttributeError) as error:
        raise LedgerError("this installation has no log parser", where=path, todo="give --args FILE.json") from error
    rows: dict[str, list[dict[str, Any]]] = parse_file(Path(path)).rows
    return rows


def _attempt(row: Row) -> int:
    return int(row.get("run_index") or 0)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Arguments, micro-batches, environment variables and GPU of one attempt of a log, and the last step whose memory it tells."""

    args: dict[str, Any]
    microbatches: int | None
    environment: dict[str, str]
    gpu: str | None
    steps: int | None


def surroundings_of_log(path: str, *, run_index: int | None = None) -> Surroundings:
    """As `arguments_of_log`, with what the same file says about the environment and the GPU."""
    rows = _rows_of_log(path)
    found, attempt = _chosen(path, rows, run_index)
    variables = {row["name"]: row["value"] for row in rows.get("environment", []) if _attempt(row) == attempt and row.get("value") is not None}
    runs = [row for row in rows.get("runs", []) if _attempt(row) == attempt]
    gpu = next((row["gpu_name"] for row in runs if row.get("gpu_name")), None)
    told = [row["iteration"] for row in rows.get("rank_memory", []) if _attempt(row) == attempt and row.get("iteration")]
    return Surroundings(found.args, found.microbatches, variables, gpu, max(told, default=None))
