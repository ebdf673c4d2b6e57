"""`hbmledger branch`: which formula made a printed number, proven: branch, generations, releases, and what it left out here.

The text comes from a run of the lake, from a file (`--text`, `-` for standard input; a whole log does), or many at once, one line
each (`--batch`: `{text, args?, num_microbatches?}`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cli.given import args_of, print_answers, read_bytes, read_json, read_lines
from ingest.errors import OK, LedgerError

if TYPE_CHECKING:
    from analysis.theory.branch import Card

NAME = "branch"
HELP = "which formula printed a theoretical footprint: branch, generations, releases, and what it left out"
GIB = 2**30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("run_name", nargs="?", metavar="RUN", help="a run of the lake, RUN#attempt, or a path")
    source.add_argument("--text", metavar="FILE", help="a file with the printed block, `-` for standard input")
    source.add_argument("--batch", metavar="FILE.jsonl", help="many at once: {text, args?, num_microbatches?} a line, one card a line")
    parser.add_argument("--args", metavar="FILE.json", help="the run's arguments by Megatron's own names")
    parser.add_argument("--microbatches", type=int, metavar="N", help="micro-batches a step")
    parser.add_argument("--lake", metavar="DIR", help="the lake that holds RUN")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Judge one text, one run or one text a line."""
    if arguments.batch:
        return print_answers(_cards(arguments.batch))
    cards = _of_run(arguments) if arguments.run_name else [_of_text(arguments)]
    if arguments.format == "json":
        print(json.dumps(cards if len(cards) > 1 else cards[0], indent=1))
    else:
        print("\n".join(_shown(card) for card in cards), end="")
    return OK


def _of_text(arguments: argparse.Namespace) -> dict[str, Any]:
    from analysis.theory.branch import branch_card
    from analysis.theory.consistency import contradictions

    args = None
    if arguments.args:
        args = args_of(read_json(arguments.args, what="the arguments"), where=arguments.args)
    card = branch_card(_read_text(arguments.text), args, _microbatches(arguments.microbatches))
    for contradiction in contradictions(args or {}):
        raise contradiction.error()
    return as_json(card)


def _of_run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Every attempt of a run, or the one that `RUN#attempt` names; a path is read straight."""
    from analysis.overview import attempts_of
    from analysis.theory.run_card import run_cards
    from cli.opening import asked_run

    with asked_run(arguments.run_name, arguments.lake) as asked:
        for run in asked.runs:
            attempts_of(asked.connection, run, asked.run_index)
        cards = [card for run in asked.runs for card in run_cards(asked.connection, run) if asked.run_index in (None, card.run_index)]
    return [{"run": one.run, "run_index": one.run_index, "artifact": one.artifact, "line": one.line, **as_json(one.card)} for one in cards]


def _cards(path: str) -> Iterator[dict[str, Any]]:
    """One card a line, errors inside the line."""
    from analysis.theory.branch import branch_card

    for asked, broken in read_lines(path):
        try:
            if broken or not isinstance(asked.get("text"), str):
                raise LedgerError(broken or "the line has no text")
            args = None if asked.get("args") is None else args_of(asked["args"], where="args")
            yield as_json(branch_card(asked["text"], args, _microbatches(asked.get("num_microbatches"))))
        except LedgerError as error:
            yield {"error": str(error)}


def _microbatches(value: Any) -> int | None:
    from analysis.theory.arguments import native, whole

    return None if native(value) is None else whole({"num_microbatches": native(value)}, "num_microbatches")


def _read_text(path: str) -> str:
    return read_bytes(path, what="the text").decode("utf-8", "replace")


def as_json(card: Card) -> dict[str, Any]:
    """The card with the keys of the fixed face."""
    return asdict(card)


def _shown(card: dict[str, Any]) -> str:
    """The card for a reader; GiB only here."""
    head = f"run {card['run']} attempt {card['run_index']}\n" if "run" in card else ""
    lines = [f"branch       {card['branch']} ({card['confidence']})", f"generations  {', '.join(card['generations']) or 'none'}",
             f"releases     {', '.join(card['releases']) or 'none'}"]
    of = f" of the block that ends on line {card['line']}" if card.get("line") else ""
    lines += [f"evidence     {_at(one, of)}{one['sentence']}" for one in card["evidence"]]
    lines += [f"contradicts  {_at(one, of)}{one['sentence']}" for one in card["contradictions"]]
    for one in card["left_out"]:
        lines.append(f"left out     {one['bytes'] / GIB:+9.3f} GiB on the {one['stage']} stage: {one['name']}, {one['sentence']}")
    lines += _terms(f"terms        as {card['generations'][-1]} counts them", card["terms"]) if card["terms"] else []
    if other := card["other_branch"]:
        said = f"other branch {other['branch']}: {_gib(other['activation_bytes'], 'activation')}, {_gib(other['total_bytes'], 'total')}"
        lines += _terms(said, other["terms"])
    return head + "\n".join(lines) + "\n"


def _terms(head: str, found: list[dict[str, Any]]) -> list[str]:
    from analysis.theory.terms import Term
    from analysis.theory.terms_text import term_lines

    return [head, *term_lines([Term(**term) for term in found], "  ")]


def _gib(value: float | None, name: str) -> str:
    return f"no {name}" if value is None else f"{name} {value / GIB:.3f} GiB"


def _at(one: dict[str, Any], of: str) -> str:
    return f"line {one['line']}{of}: " if one["line"] else ""
