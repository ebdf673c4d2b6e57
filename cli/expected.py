"""`hbmledger expected`: what each rank should hold, class by class, in steady state and at its peak.

The arguments come from a JSON file (`--args`), from a log (`--log`, with its own environment lines), or many at once,
one line each (`--batch`: `{args, env, environment, world_size, num_microbatches, resolved_args}`, answered for the last rank).
What a person writes into `--args` is checked as `plan` checks it: a word that Megatron does not take is refused, an unknown name is told.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cli.given import args_of, print_answers, read_json, read_lines
from ingest.errors import OK, LedgerError

if TYPE_CHECKING:
    from analysis.expected.rank import RankExpectation

NAME = "expected"
MOST_RANKS = 1 << 18
HELP = "what each rank should hold: weights, gradients, optimizer, activations and more, steady and at the peak"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--args", metavar="FILE.json", help="arguments by Megatron's own names, native or as the dump prints them")
    source.add_argument("--log", metavar="FILE", help="take the arguments and the environment from a Megatron log")
    source.add_argument("--batch", metavar="FILE.jsonl", help="many at once: {args, env?, environment?, world_size?, num_microbatches?}, one a line")
    parser.add_argument("--env", metavar="FILE.json", help="environment variables of the run, one JSON object")
    parser.add_argument("--gpu", metavar="NAME", help="the GPU, such as H100 (default: as the log or the environment's name says)")
    parser.add_argument("--container", metavar="NAME", help="the name of the run's software environment, if it is one that is calibrated")
    parser.add_argument("--microbatches", type=int, metavar="N", help="micro-batches a step (default: as the log or the batch sizes say)")
    parser.add_argument("--steps", type=int, metavar="N", help="steps that the peak covers, 1 for a run's first (default: as the log says)")
    parser.add_argument("--run-index", type=int, metavar="I", help="which attempt of the log, from 0 (default: the last)")
    parser.add_argument("--by", choices=("rank", "stage"), default="rank", help="one answer a rank or a pipeline stage")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Answer one question, or one a line."""
    if arguments.batch:
        return print_answers(_answers(arguments.batch, arguments.gpu))
    if arguments.steps is not None and arguments.steps < 1:
        raise LedgerError(f"--steps is {arguments.steps}; at least 1 would fit")
    args, microbatches, env, gpu, steps = _given(arguments)
    from analysis.expected import expect, expect_stages
    from analysis.expected.expect import last_rank

    microbatches = _microbatches(args, microbatches, where=arguments.args or arguments.log, todo="give --microbatches N")
    if arguments.by == "rank" and last_rank(args) >= MOST_RANKS:
        raise LedgerError(f"world_size is {last_rank(args) + 1}; up to {MOST_RANKS} ranks are listed one by one", todo="give --by stage")
    ask = expect if arguments.by == "rank" else expect_stages
    found = ask(args, microbatches=microbatches, env=env, gpu=arguments.gpu or gpu, container=arguments.container, steps=arguments.steps or steps)
    told = _told(args, microbatches) if arguments.args else ()
    found = [replace(row, assumptions=(*told, *row.assumptions)) for row in found] if told else found
    if arguments.format == "json":
        print("[" + ",\n".join(_texts(found)) + "]")
    else:
        print("\n".join(_table(found) + (_classes(found) if arguments.by == "stage" else [])))
    return OK


def _microbatches(args: dict[str, Any], given: Any, *, where: str, todo: str) -> int:
    """The number of micro-batches as given, else as the batch sizes say."""
    from analysis.expected.expect import microbatches_of
    from analysis.theory.arguments import whole

    number = microbatches_of(args) if given is None else given
    if number is None:
        raise LedgerError("the number of micro-batches is not known", where=where, todo=todo)
    return whole({"num_microbatches": number}, "num_microbatches")


def _told(args: dict[str, Any], microbatches: int) -> tuple[str, ...]:
    """What is told of names that nobody knows."""
    from analysis.expected import expect_stages
    from analysis.expected.names import strangers

    return tuple(strangers(args, lambda given: expect_stages(given, microbatches=microbatches)))


def as_json(row: RankExpectation) -> dict[str, Any]:
    """One row of the fixed face: coordinates, then what all ranks of its stage share."""
    return _place(row) | _shared(row)


def _place(row: RankExpectation) -> dict[str, Any]:
    return {"rank": row.rank, "pp": row.pp, "tp": row.tp, "cp": row.cp, "dp": row.dp, "ep": row.ep}


def _shared(row: RankExpectation) -> dict[str, Any]:
    """Bytes by class in steady state and at the peak, their sums with intervals, the instant and what was assumed."""
    return {
        "parameters": row.parameters, "classes_bytes": row.classes, "peak_classes_bytes": row.peak_classes,
        "steady_allocated_bytes": row.steady_allocated_bytes, "steady_low_bytes": row.steady_low_bytes, "steady_high_bytes": row.steady_high_bytes,
        "peak_allocated_bytes": row.peak_allocated_bytes, "peak_low_bytes": row.peak_low_bytes, "peak_high_bytes": row.peak_high_bytes,
        "peak_instant": row.peak_instant, "assumptions": list(row.assumptions),
    }


def _texts(rows: Iterable[RankExpectation]) -> Iterator[str]:
    """Each row as JSON; what a stage's ranks share is rendered once, because there may be thousands of them."""
    shared: dict[int, str] = {}
    for row in rows:
        if row.pp not in shared:
            shared[row.pp] = json.dumps(_shared(row))[1:]
        yield json.dumps(_place(row))[:-1] + ", " + shared[row.pp]


def _given(arguments: argparse.Namespace) -> tuple[dict[str, Any], int | None, dict[str, Any], str | None, int | None]:
    """Arguments, micro-batches, environment, GPU and steps measured from the files named."""
    env = args_of(read_json(arguments.env, what="the variables"), where=arguments.env, what="the variables") if arguments.env else {}
    if arguments.log:
        from cli.arguments_of_log import surroundings_of_log

        found = surroundings_of_log(arguments.log, run_index=arguments.run_index)
        microbatches = found.microbatches if arguments.microbatches is None else arguments.microbatches
        return found.args, microbatches, found.environment | env, found.gpu, found.steps
    from analysis.expected.words import refuse_words
    from analysis.theory.arguments import native_args

    args = args_of(read_json(arguments.args, what="the arguments"), where=arguments.args)
    refuse_words(native_args(args))
    return args, arguments.microbatches, env, None, None


def _answers(path: str, gpu: str | None) -> Iterator[dict[str, Any]]:
    """One answer a line, for the last rank; errors inside the line."""
    for asked, broken in read_lines(path):
        try:
            if broken:
                raise LedgerError(broken)
            yield _last(asked, gpu)
        except LedgerError as error:
            yield {"error": str(error)}


def _last(asked: dict[str, Any], gpu: str | None) -> dict[str, Any]:
    from analysis.expected.expect import expect, last_rank
    from analysis.theory.arguments import native

    args = args_of(asked.get("resolved_args") or {}, where="resolved_args") | args_of(asked.get("args"), where="args")
    if asked.get("world_size") is not None:
        args["world_size"] = asked["world_size"]
    microbatches = _microbatches(args, native(asked.get("num_microbatches")), where="",
                                 todo="give num_microbatches, or global_batch_size beside micro_batch_size")
    env, container = asked.get("env") or {}, asked.get("environment")
    if not isinstance(env, dict):
        raise LedgerError("env is no JSON object; the run's environment variables by name would fit")
    row = expect(args, microbatches=microbatches, env=env, gpu=gpu or asked.get("gpu"), container=container, ranks=[last_rank(args)])[0]
    return as_json(row)


def _table(rows: Iterable[RankExpectation]) -> list[str]:
    """For a reader: GiB by stage or rank, the peak's instant, and what was assumed once at the end."""
    listed = list(rows)
    lines = [f"{'rank':>6} {'stage':>5} {'parameters':>15} {'steady GiB':>11} {'90 % interval':>17} {'peak GiB':>9} {'90 % interval':>17}  peak at"]
    for row in listed:
        lines.append(f"{'-' if row.rank is None else row.rank:>6} {row.pp:>5} {row.parameters:>15,} {_gib(row.steady_allocated_bytes):>11} "
                     f"{_range(row.steady_low_bytes, row.steady_high_bytes):>17} {_gib(row.peak_allocated_bytes):>9} "
                     f"{_range(row.peak_low_bytes, row.peak_high_bytes):>17}  {row.peak_instant}")
    said = dict.fromkeys(one for row in listed for one in row.assumptions)
    return lines + [f"assumed: {one}" for one in said]


def _classes(rows: list[RankExpectation]) -> list[str]:
    """Which class stands where: MiB by stage, after the step and at the peak, classes that no stage has left out."""
    lines = []
    for title, of in (("after the step", "classes"), ("at the peak", "peak_classes")):
        names = [name for name in dict.fromkeys(name for row in rows for name in getattr(row, of)) if any(getattr(row, of).get(name) for row in rows)]
        lines += ["", f"MiB {title:<20}" + "".join(f"{f'stage {row.pp}':>12}" for row in rows)]
        lines += [f"  {name:<22}" + "".join(f"{getattr(row, of).get(name, 0) / 2**20:>12,.0f}" for row in rows) for name in names]
    return lines


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}"


def _range(low: int, high: int) -> str:
    return f"{_gib(low)}-{_gib(high)}"
