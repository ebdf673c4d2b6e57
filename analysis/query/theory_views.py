"""The tables `branch_card`, `stage_theory` and `last_stage_logits`, worked out for every attempt of a lake when a query first names one.

Branches are solved and layers placed in Python, so these cannot be SQL text; `analysis.query.computed` makes them. Cards are cached by their text and
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from analysis.query.computed import Columns, Row, grouped, rows_of
from analysis.theory.branch import Card
from analysis.theory.generations import BY_NAME, NEWEST
from analysis.theory.last_stage import LastStage, Measured, last_stage
from analysis.theory.run_arguments import RunArguments, run_arguments
from analysis.theory.run_card import card_of
from analysis.theory.stage_theory import StageTheory, stage_theory
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

_KEY: Columns = (
    ("run", "string", "name of the run"), ("run_index", "int32", "which attempt of the run, from 0"))
COLUMNS: dict[str, Columns] = {
    "branch_card": (
        *_KEY, ("artifact", "string", "piece of an artifact that holds the last printed block, null where none was printed"),
        ("line", "int64", "its 1-based line"), ("iteration", "int64", "iteration it was printed at"),
        ("branch", "string", "sp_selective, without_sp, weights_only, silent, hybrid_unsupported, raises or undecided"),
        ("confidence", "string", "proven, solved, contradicted, shape or none"),
        ("generations", "list<string>", "generations of the formula that print this very text"),
        ("releases", "list<string>", "releases that carry them"),
        ("weight_and_optimizer_bytes", "double", "the formula's value behind the printed digits"),
        ("activation_bytes", "double", "the same, activation; null where the branch prints none"),
        ("terms", "map<string,double>", "bytes of each term of both"),
        ("other_branch", "string", "the formula's other branch"), ("other_activation_bytes", "double", "what it would have said"),
        ("other_total_bytes", "double", "what it would have said in total"),
        ("left_out", "map<string,int64>", "effect -> real minus printed bytes on its stage; effects overlap and are no sum"),
        ("solved", "map<string,string>", "arguments solved for from the text"),
        ("evidence", "list<string>", "the reasons"), ("contradictions", "list<string>", "where text and arguments do not agree")),
    "stage_theory": (
        *_KEY, ("generation", "string", "generation whose layer's activation was taken"), ("stage", "int32", "pipeline stage"),
        ("layers", "int32", "decoder layers on it"), ("moe_layers", "int32", "of them MoE layers"), ("mtp_layers", "int32", "MTP layers on it"),
        ("embedding", "bool", "holds the input embedding"), ("head", "bool", "holds final norm, output layer and loss"),
        ("alive_layers", "double", "layers x micro-batches of activation alive at its peak"),
        ("parameters", "int64", "parameters of a rank"),
        ("weight_and_optimizer_bytes", "int64", "by the printed formula's bytes a parameter"),
        ("activation_bytes", "int64", "by the printed formula's layer"), ("total_bytes", "int64", "sum of both")),
    "last_stage_logits": (
        *_KEY, ("verdict", "string", "explained, partly, not_explained or not_measurable"), ("reason", "string", "why"),
        ("stage", "int32", "last pipeline stage"), ("neighbour_stage", "int32", "the measured stage it is held against"),
        ("implementations", "list<string>", "loss implementations that may have run"), ("te_version", "string", "Transformer Engine, null unknown"),
        *((f"predicted_{what}_{end}_bytes", "int64", f"{words}, {end} end") for what, words in (
            ("saved", "logits, loss and their inputs from forward to backward"), ("peak", "the same at the highest instant"),
            ("with_weight", "peak with the output weight and its optimizer state")) for end in ("low", "high")),
        ("measured_last_bytes", "int64", "peak of the last stage's fullest rank"),
        ("measured_neighbour_bytes", "int64", "peak of the neighbour's fullest rank"), ("difference_bytes", "int64", "last less neighbour"),
        ("surplus_low_bytes", "int64", "the head's share of it: over the neighbour's ledger, low end"),
        ("surplus_high_bytes", "int64", "the same, high end"),
        ("steady_difference_bytes", "int64", "what the last stage keeps after a step above the neighbour"),
        ("steady_low_bytes", "int64", "expected of it, low end"), ("steady_high_bytes", "int64", "expected of it, high end"),
        ("parts_low_bytes", "map<string,int64>", "each part, low end"), ("parts_high_bytes", "map<string,int64>", "each part, high end"),
        ("assumptions", "list<string>", "what was assumed")),
}
"""Columns of each table: name, type as in `ingest.tables`, meaning."""
GRAIN = {"branch_card": "one attempt: which formula printed its last footprint, and why", "stage_theory": "one pipeline stage of an attempt whose "
         "arguments lay it out", "last_stage_logits": "one attempt: what the head adds on the last stage, against what was measured"}
_REPORTS = "SELECT run, run_index, artifact, line, iteration, producer, text FROM theory_reports ORDER BY run, run_index, artifact, line"
_ARGUMENTS = "SELECT run, run_index, name, value, origin, line FROM run_args"
_ATTEMPTS = "SELECT * FROM run_attempts ORDER BY run, run_index"
_STAGES = """
SELECT run, run_index, pp, MIN(max_allocated_bytes) AS low, MAX(max_allocated_bytes) AS high, MAX(allocated_bytes) AS allocated_bytes
FROM rank_headroom WHERE pp IS NOT NULL AND max_allocated_bytes IS NOT NULL GROUP BY run, run_index, pp ORDER BY pp
"""
_PARAMETERS = """
SELECT run, run_index, pipeline_rank, MAX(parameters) AS parameters FROM parameter_counts
WHERE pipeline_rank IS NOT NULL AND bucket IS NULL GROUP BY run, run_index, pipeline_rank
"""
_ENGINE = "SELECT run, run_index, value FROM environment WHERE LOWER(name) IN ('transformer engine', 'te_version') ORDER BY line"



@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt with what its rows say."""

    facts: Row
    known: RunArguments
    has_arguments: bool
    report: Row | None


def make(connection: duckdb.DuckDBPyConnection, wanted: list[str]) -> Mapping[str, Iterable[Row]]:
    """The rows of the tables wanted."""
    attempts = list(_attempts(connection))
    return {name: _MAKERS[name](connection, attempts) for name in wanted}


def _attempts(connection: duckdb.DuckDBPyConnection) -> Iterator[Attempt]:
    arguments, reports = grouped(connection, _ARGUMENTS), grouped(connection, _REPORTS)
    for facts in rows_of(connection, _ATTEMPTS):
        key = facts["run"], facts["run_index"]
        own = arguments.get(key, [])
        yield Attempt(facts, run_arguments(own, [facts]), bool(own), reports.get(key, [None])[-1])


def _branch_cards(connection: duckdb.DuckDBPyConnection, attempts: list[Attempt]) -> Iterator[Row]:
    for one in attempts:
        yield {**_key(one), **{name: one.report[name] if one.report else None for name in ("artifact", "line", "iteration")}, **_card_row(_card(one))}


def _stage_theories(connection: duckdb.DuckDBPyConnection, attempts: list[Attempt]) -> Iterator[Row]:
    """No rows for an attempt whose arguments do not lay its stages out."""
    for one in attempts:
        generations = _card(one).generations if one.has_arguments else ()
        generation = BY_NAME[generations[-1]] if generations else NEWEST
        try:
            stages: list[StageTheory] = stage_theory(one.known.args, microbatches=one.known.microbatches, generation=generation)
        except LedgerError:
            continue
        yield from ({**_key(one), "generation": generation.name, **asdict(stage)} for stage in stages)


def _last_stages(connection: duckdb.DuckDBPyConnection, attempts: list[Attempt]) -> Iterator[Row]:
    measured, counted, engines = (grouped(connection, query) for query in (_STAGES, _PARAMETERS, _ENGINE))
    for one in attempts:
        key = one.facts["run"], one.facts["run_index"]
        parameters = {row["pipeline_rank"]: row["parameters"] for row in counted.get(key, [])}
        stages = [Measured(row["pp"], row["low"], row["high"], row["allocated_bytes"], parameters.get(row["pp"])) for row in measured.get(key, [])]
        engine = engines.get(key, [{"value": None}])[-1]["value"]
        yield {**_key(one), **_last_row(last_stage(one.known.args, stages, microbatches=one.known.microbatches, te_version=engine))}


_MAKERS: dict[str, Callable[[duckdb.DuckDBPyConnection, list[Attempt]], Iterator[Row]]] = {
    "branch_card": _branch_cards, "stage_theory": _stage_theories, "last_stage_logits": _last_stages}


def _card(one: Attempt) -> Card:
    report = one.report or {"text": "", "producer": None}
    args = tuple(sorted(one.known.args.items())) if one.has_arguments else None
    return _solved(report["text"] or "", report["producer"], args, one.known.microbatches)


@lru_cache(maxsize=4096)
def _solved(text: str, producer: str | None, args: tuple[tuple[str, Any], ...] | None, microbatches: int | None) -> Card:
    """Attempts with the same text and arguments share a card; the lines of their arguments are not part of it."""
    return card_of(text, producer, RunArguments(dict(args or ()), {}, microbatches), has_arguments=args is not None)


def _card_row(card: Card) -> Row:
    other = card.other_branch
    return {
        "branch": card.branch, "confidence": card.confidence, "generations": list(card.generations), "releases": list(card.releases),
        "weight_and_optimizer_bytes": card.weight_and_optimizer_bytes, "activation_bytes": card.activation_bytes,
        "terms": [(f"{term.part}.{term.name}", term.bytes) for term in card.terms], "other_branch": other.branch if other else None,
        "other_activation_bytes": other.activation_bytes if other else None, "other_total_bytes": other.total_bytes if other else None,
        "left_out": [(one.name, one.bytes) for one in card.left_out], "solved": [(name, str(value)) for name, value in card.solved.items()],
        "evidence": [one.sentence for one in card.evidence], "contradictions": [one.sentence for one in card.contradictions],
    }


def _last_row(found: LastStage) -> Row:
    row = asdict(found)
    for end in ("low", "high"):
        row[f"parts_{end}_bytes"] = [(part.name, getattr(part, f"{end}_bytes")) for part in found.parts]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items() if name != "parts"}


def _key(one: Attempt) -> Row:
    return {"run": one.facts["run"], "run_index": one.facts["run_index"]}
