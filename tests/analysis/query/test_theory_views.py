"""The tables of the theory in SQL: made when named, on the locked connection, with the columns that are documented."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from duckdb import DuckDBPyConnection

from analysis.database import from_rows, locked
from analysis.query import theory_views
from analysis.query.ask import ask
from analysis.query.computed import filled
from analysis.query.theory_views import COLUMNS
from ingest.errors import LedgerError
from ingest.tables import BY_NAME
from tests.analysis.made import GIB, memory
from tests.analysis.theory.test_branch import RESTARTED, RESTARTED_TEXT, SLURM_70B, SLURM_TEXT

Rows = dict[str, list[dict[str, Any]]]


def rows() -> Rows:
    """A run of 32 ranks with text and arguments, one of 8 with another text, and one that printed nothing at all."""
    given: Rows = {"run_args": [], "theory_reports": [], "runs": [{"run": "bare", "framework": "megatron-lm", "line": 1}], "rank_memory": []}
    for run, text, args in (("slurm", SLURM_TEXT, SLURM_70B), ("restart", RESTARTED_TEXT, RESTARTED)):
        given["run_args"] += [{"run": run, "name": name, "value": None if value == "None" else value, "origin": "dump", "line": 9}
                              for name, value in args.items()]
        given["theory_reports"].append({"run": run, "producer": "megatron-lm", "text": text, "line": 40, "iteration": 10})
        given["runs"].append({"run": run, "world_size": int(args["world_size"]), "line": 1})
    given["rank_memory"] += [{"run": "slurm", **memory(rank, line=50 + rank, peak=50 + rank % 4 / 1024, allocated=40)} for rank in range(24, 28)]
    given["rank_memory"] += [{"run": "slurm", **memory(rank, line=50 + rank, peak=51.5, allocated=41)} for rank in range(28, 32)]
    return given


@cache
def opened() -> DuckDBPyConnection:
    return locked(from_rows(rows()))


def asked(query: str) -> list[tuple[Any, ...]]:
    return list(ask(opened(), query).rows)


def test_the_branch_card_of_every_attempt():
    found = asked("SELECT run, branch, confidence, generations, artifact IS NULL FROM branch_card ORDER BY run")
    assert found == [("bare", "undecided", "none", [], True), ("restart", "sp_selective", "proven", ["G09"], False),
                     ("slurm", "without_sp", "proven", ["G11", "G12"], False)]


def test_the_terms_of_a_card_add_up_in_sql():
    query = """SELECT SUM(size) FROM (SELECT UNNEST(map_values(terms)) AS size FROM branch_card WHERE run = 'slurm')"""
    both = asked("SELECT weight_and_optimizer_bytes + activation_bytes FROM branch_card WHERE run = 'slurm'")
    assert asked(query)[0][0] == pytest.approx(both[0][0], abs=1e-3)
    assert asked("SELECT left_out['full_recompute'] < 0 FROM branch_card WHERE run = 'slurm'") == [(True,)]


def test_the_formula_stage_by_stage():
    found = asked("SELECT stage, layers, embedding, head, alive_layers FROM stage_theory WHERE run = 'slurm' ORDER BY stage")
    assert found == [(stage, 10, stage == 0, stage == 7, 10.0 * (8 - stage)) for stage in range(8)]
    first, middle, last = asked("SELECT parameters FROM stage_theory WHERE run = 'slurm' AND stage IN (0, 1, 7) ORDER BY stage")
    vocabulary = 8192 * 32256 // 4
    assert (first[0] - middle[0], last[0] - middle[0]) == (vocabulary, vocabulary + 8192)


def test_the_last_stage_against_its_neighbour():
    found = asked("SELECT verdict, stage, neighbour_stage, difference_bytes, parts_high_bytes['output_weight'] FROM last_stage_logits "
                  "WHERE run = 'slurm'")
    assert found[0][1:4] == (7, 6, int(1.5 * GIB) - 3 * GIB // 1024)
    assert found[0][4] > 8192 * 32256 // 4 * 6
    assert dict(asked("SELECT run, verdict FROM last_stage_logits"))["bare"] == "not_measurable"


def test_columns_are_those_that_are_documented():
    described, counted = locked(from_rows(rows())), locked(from_rows(rows()))
    for name in sorted(COLUMNS):
        assert [row[0] for row in ask(described, f"DESCRIBE {name}").rows] == [column for column, _, _ in COLUMNS[name]]
        assert ask(counted, f"SELECT COUNT(*) FROM {name.upper()}").rows[0][0] > 0, name


def test_an_empty_lake_has_them_too():
    empty = locked(from_rows({}))
    for name in COLUMNS:
        assert ask(empty, f"SELECT COUNT(*) FROM {name}").rows == ((0,),)


def test_only_what_a_query_names_is_worked_out(monkeypatch):
    def refused(*_):
        raise AssertionError("worked out although nothing named it")

    monkeypatch.setattr(theory_views, "_attempts", refused)
    connection = locked(from_rows(rows()))
    assert ask(connection, "SELECT COUNT(*) FROM runs").rows == ((3,),)
    with pytest.raises(AssertionError):
        filled(connection, {"stage_theory"}, COLUMNS, theory_views.make)


def test_asked_twice_on_one_connection_and_in_the_catalogue():
    connection = locked(from_rows(rows()))
    for _ in range(2):
        assert ask(connection, "SELECT COUNT(*) FROM branch_card AS card JOIN stage_theory USING (run, run_index)").rows == ((9,),)
    assert set(COLUMNS) <= {row[0] for row in ask(connection, "SHOW TABLES").rows}


def test_the_connection_stays_locked():
    connection = locked(from_rows(rows()))
    ask(connection, "SELECT 1 FROM branch_card")
    for query in ("SELECT * FROM read_csv('/etc/passwd') -- branch_card", "SELECT * FROM '/etc/passwd', stage_theory"):
        with pytest.raises(LedgerError):
            ask(connection, query)
    with pytest.raises(LedgerError, match="is not allowed here"):
        ask(connection, "DROP TABLE branch_card")


def test_names_do_not_hide_a_stored_table():
    assert not set(COLUMNS) & set(BY_NAME)
