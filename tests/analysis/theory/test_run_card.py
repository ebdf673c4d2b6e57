"""Branch cards of the attempts of a run, and the arguments of an attempt from its rows."""

from __future__ import annotations

import duckdb
import pytest

from analysis.theory.run_arguments import run_arguments
from analysis.theory.run_card import run_cards
from ingest.errors import LedgerError
from ingest.tables import BY_NAME
from tests.analysis.theory.test_branch import RESTART, RESTART_TEXT, RESTARTED, RESTARTED_TEXT, SLURM_TEXT

TYPES = {"string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE", "timestamp": "TIMESTAMP",
         "map<string,string>": "MAP(VARCHAR, VARCHAR)", "map<string,double>": "MAP(VARCHAR, DOUBLE)"}


@pytest.fixture
def lake():
    connection = duckdb.connect()
    for name, table in (("theory_reports", "theory_reports"), ("run_args", "run_args"), ("run_attempts", "runs")):
        columns = ", ".join(f'"{column.name}" {TYPES[column.type]}' for column in BY_NAME[table].columns)
        connection.execute(f"CREATE TABLE {name} ({columns})")
    return connection


def put(connection, table, **values):
    names = ", ".join(values)
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", list(values.values()))


def attempt(connection, index, text, args, **facts):
    put(connection, "run_attempts", run="r", run_index=index, **facts)
    if text:
        put(connection, "theory_reports", run="r", run_index=index, artifact="a", line=100 + index, iteration=10, producer="megatron-lm", text=text)
    for line, (name, value) in enumerate(args.items(), 3):
        put(connection, "run_args", run="r", run_index=index, name=name, value=None if value == "None" else value, origin="dump", line=line)


def test_each_attempt_has_its_own_card(lake):
    attempt(lake, 0, RESTART_TEXT, RESTART)
    attempt(lake, 1, RESTARTED_TEXT, RESTARTED)
    first, second = run_cards(lake, "r")
    assert (first.card.branch, first.card.generations) == ("weights_only", ("G09",))
    assert (second.card.branch, second.card.generations, second.line) == ("sp_selective", ("G09",), 101)
    mutated = next(one for one in first.card.contradictions if one.kind == "mutated_argument")
    assert mutated.argument_line == 3 + list(RESTART).index("num_query_groups")


def test_facts_of_the_log_fill_what_the_dump_lacks(lake):
    attempt(lake, 0, RESTARTED_TEXT, {**RESTARTED, "padded_vocab_size": "None"}, padded_vocab_size=32000, num_microbatches=16)
    card = run_cards(lake, "r")[0].card
    assert (card.generations, card.confidence, card.solved) == (("G09",), "proven", {})


def test_no_arguments_no_text_and_other_programs(lake):
    attempt(lake, 0, SLURM_TEXT, {})
    attempt(lake, 1, "", RESTARTED)
    attempt(lake, 2, SLURM_TEXT, {"hidden_size": "8192"})
    put(lake, "run_attempts", run="r", run_index=3)
    put(lake, "theory_reports", run="r", run_index=3, producer="flagscale", text=SLURM_TEXT, line=1)
    alone, silent, missing, foreign = (one.card for one in run_cards(lake, "r"))
    assert (alone.branch, alone.generations, alone.confidence) == ("without_sp", ("G10", "G11", "G12"), "shape")
    assert (silent.branch, silent.generations) == ("undecided", ())
    assert missing.branch == "without_sp"
    assert missing.evidence[-1].sentence.startswith("no arithmetic: argument num_layers is missing")
    assert foreign.branch == "undecided"
    with pytest.raises(LedgerError, match="no run 'other' in this lake"):
        run_cards(lake, "other")


def test_the_better_origin_wins_and_launch_switches_are_forced():
    def row(name, value, origin, line=None):
        return {"name": name, "value": value, "origin": origin, "line": line}

    merged = run_arguments([row("seq_length", "4096", "dump", 7), row("seq_length", "1", "command_line", 2), row("bf16", "", "command_line", 2)], [])
    assert (merged.args["seq_length"], merged.lines["seq_length"]) == ("4096", 7)
    launched = run_arguments([row("sequence_parallel", "", "command_line"), row("recompute_activations", "", "command_line"),
                              row("global_batch_size", "64", "command_line"), row("micro_batch_size", "2", "command_line")],
                             [{"data_parallel_size": 8, "world_size": 8}])
    assert (launched.args["sequence_parallel"], launched.args["recompute_granularity"], launched.microbatches) == (False, "selective", 4)
    ramped = run_arguments([row("global_batch_size", "64", "dump"), row("micro_batch_size", "2", "dump"), row("data_parallel_size", "8", "dump"),
                            row("rampup_batch_size", "['16', '16', '100']", "dump")], [])
    assert ramped.microbatches is None
