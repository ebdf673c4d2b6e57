"""`hbmledger plan RUN --set NAME=VALUE ...`: each stage with other settings, the run's own residual kept, and whether it fits.

Without `--set` it answers what each single change of the catalogue would save on the fullest rank of this run.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ingest.errors import OK, LedgerError

if TYPE_CHECKING:
    from analysis.plan.change import Plan, Sensitivity

NAME = "plan"
HELP = "what other settings would do to a run: each stage before and after, and whether it fits"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("run_name", metavar="RUN", help="a run, RUN#attempt, or a path: a log, a folder, an archive")
    parser.add_argument("--set", metavar="NAME=VALUE", nargs="+", action="extend", default=[], help="settings by Megatron's own names")
    parser.add_argument("--gpu", metavar="NAME", help="another device: its memory, such as H200, or a size such as 139.8GiB")
    parser.add_argument("--lake", metavar="DIR", help="the lake that holds RUN (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Answer for one run."""
    from analysis.plan.run import planned, sensitivities
    from cli.opening import asked_run

    changes = dict(_setting(text) for text in arguments.set)
    with asked_run(arguments.run_name, arguments.lake) as asked:
        if len(asked.runs) != 1:
            raise LedgerError(f"{len(asked.runs)} runs in it; a plan is made for one", where=arguments.run_name, todo="give one run or one file")
        if changes or arguments.gpu:
            answer = planned(asked.connection, asked.runs[0], asked.run_index, changes, arguments.gpu)
            print(json.dumps(asdict(answer), indent=1) if arguments.format == "json" else _plan_text(answer))
        else:
            rows = sensitivities(asked.connection, asked.runs[0], asked.run_index)
            print(json.dumps([asdict(row) for row in rows], indent=1) if arguments.format == "json" else _table(rows))
    return OK


def _setting(text: str) -> tuple[str, Any]:
    """`tensor_model_parallel_size=4`; a list as `recompute_modules=[moe,mlp]` or `moe,mlp`."""
    from analysis.theory.arguments import native

    name, mark, value = text.partition("=")
    if not mark or not name.strip():
        raise LedgerError(f"--set {text!r}; NAME=VALUE such as tensor_model_parallel_size=4 would fit")
    name = name.strip().lstrip("-").replace("-", "_")
    if name.endswith("_modules"):
        return name, [one.strip(" '\"") for one in value.strip("[]").split(",") if one.strip()]
    return name, native(value)


def _plan_text(one: Plan) -> str:
    from analysis.verdict import size_text

    named = ", ".join(f"{name.upper()} {size}" for name, size in one.sizes.items() if name != "world_size")
    lines = [f"{one.sizes['world_size']} ranks: {named}; {one.microbatches} micro-batches a step",
             f"fullest stage {one.fullest_stage}: peak {size_text(one.fullest_bytes)}, was {size_text(one.before_bytes)}: "
             + (f"saves {size_text(one.saved_bytes)}" if one.saved_bytes >= 0 else f"costs {size_text(-one.saved_bytes)}") + f"; {one.fits}",
             f"{'stage':>6} {'peak':>10} {'90 % interval':>21} {'before':>10} {'saved':>10} {'steady':>10}  {'':<13}at"]
    for stage in one.stages:
        interval = f"{size_text(stage.low_bytes)} to {size_text(stage.high_bytes)}"
        sizes = "".join(f" {size_text(size):>10}" for size in (stage.before_bytes, stage.saved_bytes, stage.steady_bytes))
        at = stage.peak_instant.replace("_", " ")
        lines.append(f"{stage.stage:>6} {size_text(stage.peak_bytes):>10} {interval:>21}{sizes}  {stage.fits:<13}{at}")
    return "\n".join([*lines, *(f"assumed: {text}" for text in one.assumptions[:6])])


def _table(rows: tuple[Sensitivity, ...]) -> str:
    from analysis.verdict import size_text

    lines = [f"{'saves':>10}  change"]
    for row in rows:
        told = row.refused or f"computation: {row.computation}; communication: {row.communication}; {row.complexity}; fails when {row.fails_when}"
        lines += [f"{size_text(row.saved_bytes):>10}  {row.sentence}", f"{'':>12}{told}"]
    return "\n".join(lines)
