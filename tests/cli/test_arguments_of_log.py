"""Arguments of an attempt of a log, from the rows that a parser gives."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from cli.arguments_of_log import arguments_of_log
from ingest.errors import LedgerError


def row(index, name, value, origin="dump"):
    return {"run_index": index, "name": name, "value": value, "origin": origin, "line": 5}


@pytest.fixture
def parser(monkeypatch):
    """Stand for the log parser with rows of our own."""
    def give(**rows):
        monkeypatch.setitem(sys.modules, "ingest.parsers.reading", SimpleNamespace(parse_file=lambda path: SimpleNamespace(rows=rows)))

    return give


def test_the_last_attempt_or_the_one_asked_for(parser):
    parser(run_args=[row(0, "seq_length", "1024"), row(1, "seq_length", "2048"), row(1, "padded_vocab_size", None)],
           runs=[{"run_index": 1, "padded_vocab_size": 50688, "num_microbatches": 16}, {"run_index": 0, "world_size": 8}, {"run_index": 2}])
    assert arguments_of_log("train.log") == ({"seq_length": "2048", "padded_vocab_size": 50688}, 16)
    assert arguments_of_log("train.log", run_index=0) == ({"seq_length": "1024", "world_size": 8}, None)
    with pytest.raises(LedgerError, match="no arguments of attempt 2 found: it has attempts 0, 1"):
        arguments_of_log("train.log", run_index=2)


def test_a_log_without_arguments(parser):
    parser(runs=[{"run_index": 0}])
    with pytest.raises(LedgerError, match="no arguments of any attempt found: it has no argument dump"):
        arguments_of_log("train.log")
