"""Every page of the app in a real browser on every sample: its figures are there, nothing raises, nothing is asked of anybody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.driving import NEEDS_BROWSER, clicked
from tests.browser.expected import CASES, RUNS, facts, peak, report, size
from tests.browser.visiting import PAGES, Visitor, gib_cell
from tests.conftest import ROOT

pytestmark = NEEDS_BROWSER

OF_THE_LAKE = ("start", "fleet", "compare", "sql", "glossary")
"""Pages that show no single run; every other one, a new one too, is met with each run."""
OF_A_RUN = tuple(page for page in PAGES if page not in OF_THE_LAKE)
QUICK = {"dense_7b5_pp2": set(OF_A_RUN), "moe_16ranks": {"overview", "findings", "steps", "ledger", "communication"},
         "oom_run": {"overview", "steps", "plan"}}
"""Pages that meet each run, and `overview` each out-of-memory case; the rest meet them in the long tests."""


def _met() -> list[object]:
    return [pytest.param(run, page, id=f"{run}-{page}", marks=() if _quick(run, page) else pytest.mark.long)
            for run in (*RUNS, *CASES) for page in OF_A_RUN]


def _quick(run: str, page: str) -> bool:
    return page in QUICK.get(run, {"overview"})


def test_the_pages_are_those_of_the_navigation(visitor: Visitor) -> None:
    visitor.open("start")
    links = visitor.browser.find_elements("css selector", "[data-testid=stSidebarNavLink], [data-testid=stTopNavLink]")
    assert [link.get_attribute("href").rpartition("/")[2] or "start" for link in links] == list(PAGES)
    assert {path.stem for path in (ROOT / "app_pages").glob("[a-z]*.py")} == set(PAGES)


@pytest.mark.parametrize(("run", "page"), _met())
def test_a_page_of_a_run(visitor: Visitor, samples: Path, run: str, page: str) -> None:
    visitor.look(page, run)
    wanted = facts(samples, page, run)
    visitor.shows(*wanted.words, cells=wanted.cells)
    if page == "snapshot" and run in CASES and CASES[run]["snapshot"]:
        visitor.click("Out of memory", "button")
        visitor.shows(f"{size(CASES[run]['account_bytes']['requested'])} asked", f"Case {CASES[run]['case']}")
    visitor.in_order()


@pytest.mark.parametrize("page", [page for page in OF_THE_LAKE if page not in ("compare", "sql")])
def test_a_page_of_the_lake(visitor: Visitor, samples: Path, page: str) -> None:
    visitor.look(page, None)
    wanted = facts(samples, page, None)
    visitor.shows(*wanted.words, cells=wanted.cells)
    visitor.in_order()


def test_compare_shows_what_lies_between_two_runs(visitor: Visitor, samples: Path) -> None:
    before, after = (peak(report(samples, run)) for run in ("dense_7b5_pp2", "oom_run"))
    visitor.open("compare", before="dense_7b5_pp2#0", after="oom_run#0")
    visitor.shows(f"peaked {size(after - before)} above", f"{size(after)} on rank 0", f"{size(before)} on rank 1",
                  cells=("micro_batch_size", gib_cell(after - before)))
    visitor.in_order()


def test_a_question_in_sql_is_answered(visitor: Visitor, samples: Path) -> None:
    query = "SELECT rank, MAX(max_allocated_bytes) AS peak FROM rank_memory WHERE run = 'moe_16ranks' GROUP BY rank ORDER BY peak DESC"
    visitor.open("sql", query=query)
    visitor.shows("This query came with the link")
    clicked(visitor.browser, "Ask", "button")
    visitor.shows("15 rows", cells=(str(peak(report(samples, "moe_16ranks"))),))
    visitor.in_order()
