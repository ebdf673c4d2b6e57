"""`hbmledger theory`: what Megatron's own formula would print for these arguments, in one generation or in all.

The arguments come from a JSON file (`--args`), from a log (`--log`), or many at once, one line each (`--batch`). No engine
and no Arrow is loaded: the answer for all generations takes a fraction of a second.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cli.given import args_of, print_answers, read_json, read_lines
from ingest.errors import OK, LedgerError

if TYPE_CHECKING:
    from analysis.theory.megatron import Report
    from analysis.theory.terms import Term

NAME = "theory"
HELP = "what Megatron's printed memory formula says for given arguments, in every generation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--args", metavar="FILE.json", help="arguments by Megatron's own names, native or as the dump prints them")
    source.add_argument("--log", metavar="FILE", help="take the arguments from a Megatron log")
    source.add_argument("--batch", metavar="FILE.jsonl", help="many at once: {args, num_microbatches, generation?, verbose?}, one a line")
    parser.add_argument("--microbatches", type=int, metavar="N", help="micro-batches a step (default: as the log says, else a full pipeline)")
    parser.add_argument("--quiet", action="store_true", help="the text without its verbose lines")
    parser.add_argument("--generation", default=None, metavar="G15|all", help="generation of the formula (default: the newest)")
    parser.add_argument("--run-index", type=int, metavar="I", help="which attempt of the log, from 0 (default: the last)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Answer one question, or one a line."""
    from analysis.theory.generations import NEWEST

    generation = NEWEST.name if arguments.generation is None else arguments.generation
    if arguments.batch:
        return print_answers(_answers(arguments.batch, generation, verbose=not arguments.quiet))
    args, microbatches = _given(arguments)
    found = _answer(args, microbatches, generation, verbose=not arguments.quiet)
    _refuse(args)
    if arguments.format == "json":
        print(json.dumps(found if generation == "all" else found[0], indent=1))
    else:
        print("\n".join(_shown(one) for one in found), end="")
    return OK


def _given(arguments: argparse.Namespace) -> tuple[dict[str, Any], int | None]:
    if arguments.log:
        from cli.arguments_of_log import arguments_of_log

        args, printed = arguments_of_log(arguments.log, run_index=arguments.run_index)
        return args, printed if arguments.microbatches is None else arguments.microbatches
    return args_of(read_json(arguments.args, what="the arguments"), where=arguments.args), arguments.microbatches


def _refuse(args: dict[str, Any]) -> None:
    """Stop at the first contradiction: one sentence, exit code 2."""
    from analysis.theory.consistency import contradictions

    for contradiction in contradictions(args):
        raise contradiction.error()


def _answers(path: str, generation: str, *, verbose: bool) -> Iterator[dict[str, Any] | list[dict[str, Any]]]:
    """One answer a line, errors inside the line."""
    from analysis.theory.consistency import contradictions

    for asked, broken in read_lines(path):
        try:
            if broken:
                raise LedgerError(broken)
            wanted = str(asked.get("generation") or generation)
            args = args_of(asked.get("args"), where="args")
            found = _answer(args, asked.get("num_microbatches"), wanted, verbose=_switch(asked.get("verbose"), verbose))
            doubts = [one.sentence for one in contradictions(args)]
            for one in found:
                one["contradictions"] = doubts
            yield found if wanted == "all" else found[0]
        except LedgerError as error:
            yield {"error": str(error)}


def _switch(value: Any, default: bool) -> bool:
    """A switch as JSON or as a dump prints it; the default where it is null."""
    from analysis.theory.arguments import native

    given = native(value)
    if given is None:
        return default
    if given not in (True, False):
        raise LedgerError(f"verbose is {value!r:.60}; true or false would fit")
    return bool(given)


def _answer(args: dict[str, Any], microbatches: Any, generation: str, *, verbose: bool) -> list[dict[str, Any]]:
    from analysis.theory.arguments import native, whole
    from analysis.theory.formula_arguments import formula_arguments
    from analysis.theory.generations import BY_NAME
    from analysis.theory.megatron import report_args
    from analysis.theory.terms import terms

    number = None if native(microbatches) is None else whole({"num_microbatches": native(microbatches)}, "num_microbatches")
    known, _ = formula_arguments(args)
    return [_as_json(one, filled, terms(BY_NAME[one.generation], known, number, one))
            for one, filled in report_args(args, number, generation=generation, verbose=verbose)]


def _as_json(one: Report, filled: dict[str, Any], found: tuple[Term, ...]) -> dict[str, Any]:
    return {
        "generation": one.generation, "branch": one.branch, "raises": one.raises, "weight_and_optimizer_bytes": one.weight_and_optimizer_bytes,
        "activation_bytes": one.activation_bytes, "total_bytes": one.total_bytes, "printed_text": one.printed_text, "filled_defaults": filled,
        "parameters": asdict(one.parameters) if one.parameters else None,
        "activation_terms_bytes": dict(one.activation.terms) if one.activation else None, "terms": [asdict(term) for term in found],
    }


def _shown(one: dict[str, Any]) -> str:
    """The answer for a reader: what is printed, or why nothing is, and the terms that make the numbers."""
    from analysis.theory.terms import Term
    from analysis.theory.terms_text import term_lines

    said = one["printed_text"] or "(prints nothing)\n"
    died = f"dies with {one['raises']}\n" if one["raises"] else ""
    filled = ", ".join(f"{name}={value}" for name, value in one["filled_defaults"].items())
    terms = "".join(f"{line}\n" for line in term_lines([Term(**term) for term in one["terms"]]))
    return f"{one['generation']} {one['branch']}\n{said.rstrip()}\n{died}" + (f"filled defaults: {filled}\n" if filled else "") + terms
