"""Write docs/questions.md, each canned question with the answer of the sample runs: `python -m docs.make_questions`. A test holds the file to it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from analysis.database import connect
from analysis.query.ask import ask
from analysis.query.questions import Question, questions
from ingest.lake import Lake
from ingest.pipeline import ingest
from sample_data.make import RUNS

TARGET = Path(__file__).with_name("questions.md")
SAMPLES = TARGET.parent.parent / "sample_data"
ROWS = 12
INGESTED = "2026-11-29 12:00:00"
"""When the samples are said to have been ingested, so that the answers do not change with the day."""
_HEAD = f"""\
# Questions to a fleet

Generated from `analysis/sql/questions` by `docs/make_questions.py`; do not edit.

Each is one SELECT for `hbmledger sql`, the SQL page or Spark, over the views on history; sizes are bytes, so the queries divide where a person
reads. The answers are those of the sample runs in one lake, the first {ROWS} rows; records that print no time stand on the day of
their ingest, here {INGESTED[:10]}. To look at another month, run or cluster, change the literals.

The views: `fleet_runs` (one row an attempt), `fleet_ratio` (a stage), `fleet_near_limit` (a rank and day), `fleet_ranks` (a rank),
`fleet_outside_torch` (a rank), `fleet_oom` (an error), `fleet_drift` (a thing that changed between two runs of one configuration). The first comment
of each in `analysis/sql` tells its rules. They stand on the daily rollups of an ingest: raw records are read for errors only, so they answer
for months as for a day. Attempts are told apart by cluster, run and attempt: two clusters may give two runs one name.
"""


def markdown() -> str:
    """The whole page."""
    with TemporaryDirectory() as folder:
        connection = sample_lake(Path(folder) / "lake")
        parts = [line for at, question in enumerate(questions(), 1) for line in _part(at, question, connection)]
    return "\n".join([_HEAD, *parts])


def sample_lake(root: Path) -> duckdb.DuckDBPyConnection:
    """A connection to a new lake of every sample run."""
    lake = Lake(root)
    ingest([SAMPLES / run for run in RUNS if run != "truth"], lake)
    connection = connect(lake)
    connection.execute(f"UPDATE artifacts SET ingested_at = TIMESTAMP '{INGESTED}'")
    return connection


def _part(at: int, question: Question, connection: duckdb.DuckDBPyConnection) -> list[str]:
    answer = ask(connection, question.sql)
    rows = [answer.columns, tuple("---" for _ in answer.columns), *(tuple(map(_cell, row)) for row in answer.rows[:ROWS])]
    more = [f"and {len(answer.rows) - ROWS} more rows", ""] if len(answer.rows) > ROWS else []
    table = ["| " + " | ".join(row) + " |" for row in rows] if answer.rows else ["No row."]
    return [f"## {at}. {question.title}", "", question.note, "", "```sql", question.sql, "```", "", *table, "", *more]


def _cell(value: Any) -> str:
    return "-" if value is None else str(value).replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(markdown(), encoding="utf-8")
    print(TARGET)
