"""The Theory page: terms with this run's numbers, evidence over the lines that show it, the other branch, the last stage's head."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis.charts.theory import last_stage_bars, term_bars
from analysis.rows import Source
from analysis.theory.logits import Part
from analysis.theory.terms import Term
from app_pages._origin import located
from ingest.lake import Lake
from ingest.pipeline import ingest

ROOT = Path(__file__).resolve().parent.parent
LOG = ROOT / "sample_data/dense_7b5_pp2/train.log"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The page on the dense sample."""
    ingest([LOG], Lake(tmp_path / "lake"), run="dense")
    monkeypatch.setenv("HBMLEDGER_LAKE", str(tmp_path / "lake"))
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.run()
    app.switch_page("app_pages/theory.py").run()
    assert not app.exception
    return app


def test_the_terms_shown_add_up_to_the_printed_number(page: AppTest) -> None:
    printed = re.search(r"weight and optimizer=(\S+) MB, activation=(\S+) MB", page.code[-2].value + page.code[0].value)
    assert printed
    for part, figure in zip(("weight and optimizer", "activation"), printed.groups(), strict=True):
        shown = next(one.value for one in page.text if one.value.startswith(f"{part}: "))
        addends = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+(?= \+| = )", shown.partition(" B = ")[0])]
        assert f"{sum(addends) / 2**20:.2f}" == figure
        assert f"= {figure} MB as printed" in shown


def test_tables_have_symbols_numbers_and_bytes(page: AppTest) -> None:
    weights = page.dataframe[0].value
    assert list(weights.columns) == ["term", "GiB", "symbols", "numbers", "bytes"]
    assert math.fsum(weights["bytes"]) == pytest.approx(12_422_222_208, abs=1e-3)
    assert "2·4096·32·128·(1 + 8/32)·32/(2·2)·(6 + 12/64)" in set(weights["numbers"])


def test_the_other_branch_stands_beside_it(page: AppTest) -> None:
    assert any("without\\_sp" in one.value and "other branch would have said" in one.value for one in page.markdown)
    assert any("s·b·h·(10 + 24/t)·L" in set(one.value["symbols"]) for one in page.dataframe if "symbols" in one.value)


def test_evidence_opens_on_the_line_that_shows_it(page: AppTest) -> None:
    lines = LOG.read_text().splitlines()
    marker = max(number for number, line in enumerate(lines, 1) if line.startswith("compute_activation_memory"))
    opened = next(one for one in page.expander if one.label.startswith("marker"))
    assert any(f">     {marker:>3}  compute_activation_memory with SP" in one.value for one in opened.code)


def test_the_last_stage_is_judged(page: AppTest) -> None:
    verdict = next(one.value for one in page.markdown if one.value.startswith("**partly**"))
    assert "logits and loss 3\\.06 GiB" in verdict
    assert "output weight" in set(page.dataframe[-1].value["part"])


def test_a_line_of_a_block_is_found_although_others_fall_between(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("first  line\nrank 3: noise\nsecond line\nrank 9: noise\nlast line\nfirst line\n")
    assert located(Source(str(log), 5), "first line") == Source(str(log), 1)
    assert located(Source(str(log), 5), "second line") == Source(str(log), 3)
    assert located(Source(str(log), 5), "no such line") == Source(str(log), 5)
    assert located(Source("gone.log", 5), "first line") == Source("gone.log", 5)
    assert located(Source(str(log), None), "first line") == Source(str(log), None)


def test_bars_hold_the_bytes_they_show() -> None:
    drawn = term_bars([Term("activation", "layers", "s·b", "2·3", 6.0), Term("weight_and_optimizer", "mlp", "h", "7", 7.0)])
    assert [(row["term"], row["bytes"]) for row in drawn.rows] == [("mlp", 7.0), ("layers", 6.0)]
    ranges = last_stage_bars([Part("output_weight", "resident", 1, 2**30), Part("nothing", "peak", 0, 0)], (5, 6))
    seen = [(row["part"], row["low_bytes"], row["high_bytes"]) for row in ranges.rows]
    assert seen == [("output weight", 1, 2**30), ("measured surplus", 5, 6)]
