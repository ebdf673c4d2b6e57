"""docs/questions.md: every question is asked of the sample runs, and the page holds its answer."""

from __future__ import annotations

import re

import pytest

from analysis.database import connect, locked
from analysis.query.ask import ask
from analysis.query.questions import questions
from docs.make_questions import TARGET, markdown
from ingest.lake import Lake


def test_the_page_is_what_the_samples_answer() -> None:
    assert TARGET.read_text(encoding="utf-8") == markdown(), "run `python -m docs.make_questions`"


def test_there_are_a_dozen_and_each_has_an_answer() -> None:
    page = TARGET.read_text(encoding="utf-8")
    assert len(questions()) >= 12
    assert len(re.findall(r"^## \d+\. ", page, re.MULTILINE)) == len(questions())
    assert page.count("No row.") <= 2


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    return locked(connect(Lake(tmp_path_factory.mktemp("lakes") / "empty")))


@pytest.mark.parametrize("question", questions(), ids=lambda one: one.name)
def test_a_question_may_be_asked_of_a_locked_lake(question, empty) -> None:
    assert question.title.endswith("?")
    assert question.note.endswith(".")
    answer = ask(empty, question.sql)
    assert answer.columns
    assert answer.rows == ()
