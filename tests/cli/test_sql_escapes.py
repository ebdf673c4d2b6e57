"""What a person's SQL may not do, asked of the function that both faces call, and of the command for some of each kind.

Every query is refused, or stopped within its limits, in one sentence with exit code 2, and this process lives through it.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from analysis.database import locked
from analysis.query.ask import ask
from analysis.query.process import MEMORY_BYTES, SPARE_BYTES, answer
from cli import main
from ingest.errors import USAGE, LedgerError
from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.cli.refusals import told
from tests.conftest import ROOT

SECONDS = 20
REFUSED = {
    "copy": "COPY (SELECT 1) TO '{folder}/out.csv'",
    "copy the database": "COPY FROM DATABASE memory TO other",
    "attach": "ATTACH '{folder}/other.db'",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "pragma": "PRAGMA database_list",
    "set": "SET enable_external_access = true",
    "reset": "RESET lock_configuration",
    "several": "SELECT 1; SELECT 2",
    "hidden second": "SELECT 1; /* ; */ COPY runs TO '{folder}/out.csv'",
    "write": "DELETE FROM artifacts",
    "drop": "DROP VIEW runs",
    "view over files": "CREATE VIEW mine AS SELECT * FROM read_parquet('{folder}/*')",
    "macro": "CREATE MACRO mine() AS TABLE SELECT * FROM read_text('/etc/hostname')",
    "call": "CALL duckdb_settings()",
    "explain analyze": "EXPLAIN ANALYZE SELECT * FROM read_text('/etc/hostname')",
    "prepared": "PREPARE mine AS SELECT 1",
    "transaction": "BEGIN",
    "export": "EXPORT DATABASE '{folder}/all'",
    "empty": "",
    "comment": "-- nothing",
    "no SQL": "drop it all",
    "csv": "SELECT * FROM read_csv('/etc/passwd')",
    "csv auto": "SELECT * FROM read_csv_auto('/etc/passwd')",
    "parquet": "SELECT * FROM read_parquet('{folder}/**/*.parquet')",
    "parquet by its other name": "SELECT * FROM parquet_scan('{folder}/**/*.parquet')",
    "parquet metadata": "SELECT * FROM parquet_metadata('{folder}/**/*.parquet')",
    "text": "SELECT * FROM read_text('/etc/hostname')",
    "blob": "SELECT * FROM read_blob('/etc/hostname')",
    "json": "SELECT * FROM read_json('/etc/hostname')",
    "glob": "SELECT * FROM glob('/etc/*')",
    "sniff": "SELECT * FROM sniff_csv('/etc/passwd')",
    "file": "SELECT * FROM '{folder}/x.parquet'",
    "file of the web": "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
    "quoted file": 'SELECT * FROM "/etc/passwd"',
    "described file": "DESCRIBE '/etc/passwd.csv'",
    "summarized file": "SUMMARIZE '/etc/passwd.csv'",
    "in a subquery": "SELECT (SELECT MAX(content) FROM read_text('/etc/hostname'))",
    "in WITH": "WITH a AS MATERIALIZED (SELECT * FROM read_text('/etc/hostname')) SELECT * FROM a",
    "in a lateral join": "SELECT * FROM runs, LATERAL (SELECT * FROM glob('/*'))",
    "in EXISTS": "SELECT 1 WHERE EXISTS (FROM duckdb_secrets())",
    "settings": "SELECT * FROM duckdb_settings()",
    "secrets": "SELECT * FROM duckdb_secrets()",
    "logs": "SELECT * FROM duckdb_logs()",
    "views with their files": "SELECT sql FROM duckdb_views()",
    "system catalogue": "SELECT * FROM pg_catalog.pg_settings",
    "master table": "SELECT sql FROM sqlite_master",
    "environment": "SELECT getenv('HOME')",
    "one setting": "SELECT current_setting('allowed_paths')",
    "variable": "SELECT getvariable('x')",
    "log": "SELECT write_log('x')",
    "query in a text": "SELECT * FROM query('SELECT * FROM read_text(''/etc/hostname'')')",
    "table in a text": "SELECT * FROM query_table(['/etc/passwd'])",
    "serialized": "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "checkpoint": "SELECT * FROM force_checkpoint()",
    "Python variable": "SELECT * FROM request",
    "pandas": "SELECT * FROM pandas_scan(140000000)",
    "Python arrow": "SELECT * FROM arrow_scan(1, 2, 3)",
    "unknown": "SELECT * FROM no_such_table",
    "no column": "SELECT no_such_column FROM runs",
}
STOPPED = {
    "cross join": "SELECT COUNT(*) FROM range(1000000) AS a, range(1000000) AS b, range(1000000) AS c WHERE a.range + b.range > c.range",
    "sorted cross join": "SELECT * FROM range(100000000) AS a, range(1000000) AS b ORDER BY 1 DESC, 2",
    "recursion": "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT COUNT(*) FROM r",
    "doubling recursion": "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r, range(10)) SELECT * FROM r ORDER BY n",
    "sleep": "SELECT sleep_ms(600000)",
}
TOO_LARGE = {
    "two gigabytes": "SELECT repeat('x', 2000000000)",
    "one gigabyte": "SELECT repeat('x', 1000000000)",
    "large cells": "SELECT repeat('x', 100000000) FROM range(50)",
    "list": "SELECT list(range) FROM range(2000000000)",
    "text": "SELECT string_agg(range) FROM range(2000000000)",
    "many lists": "SELECT range(1000000) FROM range(10000)",
    "parentheses": "SELECT " + "(" * 60_000 + "1" + ")" * 60_000,
    "brackets": "SELECT " + "[" * 900 + "]" * 900,
    "signs": "SELECT 1" + " + 1" * 40_000,
    "long": "SELECT '" + "x" * 300_000 + "'",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    root = tmp_path_factory.mktemp("lakes") / "lake"
    ingest([ROOT / "sample_data" / "dense_7b5_pp2"], Lake(root))
    return str(root)


def page_says(lake, query, seconds):
    with pytest.raises(LedgerError) as refused:
        answer(lake, query, seconds=seconds)
    return str(refused.value)


def command_says(capsys, lake, query, seconds):
    assert main(["sql", "--lake", lake, "--seconds", str(seconds), "--", query]) == USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("hbmledger: ")
    return said.err.removesuffix("\n")


def is_one_sentence(said):
    assert said
    assert "\n" not in said
    assert "Traceback" not in said
    assert len(said) < 600


def files(folder):
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*")}


def test_what_is_not_one_select_over_the_lake_is_refused(lake):
    """By one child in the place of one each: none of these needs limits of its own."""
    before = files(Path(lake).parent)
    answers = told(lake, [query.format(folder=lake) for query in REFUSED.values()], SECONDS)
    assert len(answers) == len(REFUSED)
    for name, one in zip(REFUSED, answers, strict=True):
        assert list(one) == ["error"], name
        is_one_sentence(str(LedgerError(**one["error"])))
    assert files(Path(lake).parent) == before


@pytest.mark.parametrize("name", ["copy", "file", "settings", "several", "in a subquery"])
def test_and_by_the_command_and_by_the_process_of_the_page_in_the_same_words(name, lake, capsys):
    query = REFUSED[name].format(folder=lake)
    said = page_says(lake, query, SECONDS)
    is_one_sentence(said)
    assert command_says(capsys, lake, query, SECONDS) == f"hbmledger: {said}"


@pytest.mark.parametrize("name", STOPPED)
def test_what_would_not_end_is_stopped_in_time(name, lake):
    is_told_as_stopped(page_says(lake, STOPPED[name], 1))


def is_told_as_stopped(said):
    is_one_sentence(said)
    assert "1 s and was stopped" in said or "memory" in said


def test_the_command_stops_it_too(lake, capsys):
    is_told_as_stopped(command_says(capsys, lake, STOPPED["sleep"], 1))


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_large_is_stopped_before_it_harms(name, lake):
    is_told_as_too_large(page_says(lake, TOO_LARGE[name], SECONDS))


@pytest.mark.parametrize("name", [pytest.param("two gigabytes", marks=pytest.mark.long), "parentheses"])
def test_the_command_stops_it_before_it_harms_too(name, lake, capsys):
    is_told_as_too_large(command_says(capsys, lake, TOO_LARGE[name], SECONDS))


def is_told_as_too_large(said):
    is_one_sentence(said)
    assert any(word in said for word in ("memory", "larger than", "nested", "depth", "longer than", "was stopped"))
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert largest < MEMORY_BYTES + SPARE_BYTES + 2**29


def test_a_billion_rows_are_cut_and_that_is_told(lake, capsys):
    assert main(["sql", "--lake", lake, "--format", "csv", "--rows", "5", "SELECT * FROM range(1000000000)"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["range", "0", "1", "2", "3", "4"]
    assert "only the first 5 rows" in said.err
    assert answer(lake, "SELECT * FROM range(1000000000)", rows=7).capped


@pytest.fixture(scope="module")
def connection(lake):
    return locked(Lake(lake))


@pytest.mark.parametrize("query", ["SHOW TABLES", "DESCRIBE rank_memory", "SELECT * FROM information_schema.columns", "FROM runs", "VALUES (1)",
                                   "SUMMARIZE runs", "WITH a AS (SELECT 1 AS x) SELECT * FROM a", "SELECT unnest([1, 2])",
                                   "SELECT COUNT(*) FROM range(10)", "SELECT * FROM stored.runs", "SELECT * FROM MAIN.Runs", "SELECT 1;"])
def test_what_people_ask_is_answered(query, connection):
    assert ask(connection, query).rows


def test_an_error_in_the_options_is_one_sentence(capsys):
    for argv in (["sql"], ["sql", "SELECT 1", "--rows", "many"], ["sql", "SELECT 1", "--format", "xls"], ["nosuch"], ["sql", "SELECT 1", "--nosuch"]):
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == USAGE
        is_one_sentence(capsys.readouterr().err.removesuffix("\n"))
