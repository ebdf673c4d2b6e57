"""The canned questions of `analysis/sql/questions`: one SELECT each, its question in the first line of comment, how to read its answer in the others.

They are asked of the views as anyone would ask them; docs/questions.md shows each with the answer of the sample runs, and a test asks them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Question:
    """One question; `note` says how to read its answer."""

    name: str
    title: str
    note: str
    sql: str


@cache
def questions() -> tuple[Question, ...]:
    """Every question, in the order of its file."""
    found = sorted((one for one in files("analysis").joinpath("sql", "questions").iterdir() if one.name.endswith(".sql")), key=lambda one: one.name)
    return tuple(_question(one.name.removesuffix(".sql").partition("_")[2], one.read_text(encoding="utf-8")) for one in found)


def _question(name: str, text: str) -> Question:
    lines = text.strip().splitlines()
    comments = [line.removeprefix("--").strip() for line in lines if line.startswith("--")]
    return Question(name, comments[0], " ".join(comments[1:]), "\n".join(line for line in lines if not line.startswith("--")))
