"""Branch, terms and the last stage's head in every face of the report, on a run made of known text and stages."""

from __future__ import annotations

import json
from html import unescape

import pytest

from analysis.database import from_rows
from analysis.overview import overview
from analysis.report.html import as_html
from analysis.report.keys import as_json, as_markdown
from analysis.report.text import as_text
from tests.analysis.query.test_theory_views import rows


@pytest.fixture(scope="module")
def found():
    return overview(from_rows(rows()), "slurm")


def test_json_has_terms_and_the_last_stage(found):
    said = json.loads(json.dumps(as_json(found)))
    assert said["branch"]["generations"] == ["G11", "G12"]
    assert sum(term["bytes"] for term in said["branch"]["terms"] if term["part"] == "activation") == pytest.approx(
        said["branch"]["activation_bytes"], rel=1e-12)
    assert (said["logits"]["stage"], said["logits"]["neighbour_stage"]) == (7, 6)
    assert {"name", "when", "low_bytes", "high_bytes", "of"} == set(said["logits"]["parts"][0])
    assert "logits" not in said["not_measurable"]


def test_json_says_why_the_last_stage_cannot_be_judged():
    said = as_json(overview(from_rows(rows()), "restart"))
    assert said["logits"]["verdict"] == "not_measurable"
    assert said["not_measurable"]["logits"].startswith("PP is 1")


@pytest.mark.parametrize("face", [as_text, as_markdown, as_html])
def test_every_face_shows_the_numbers_in_the_formula(found, face):
    said = unescape(face(found))
    assert "4096·1·8192·(10 + 24/4)·80" in said
    assert "Last stage: output weight, logits and loss" in said
    assert found.logits.reason[:40] in said.replace("\n", " ").replace("    ", "").replace("\\", "")


def test_text_tells_what_the_other_branch_would_have_said(found):
    assert "the other branch (sp_selective) would have said activation" in as_text(found)


def test_lines_fit_a_terminal(found):
    said = as_text(found)
    for head in ("\nFormula branch", "\nLast stage:"):
        section = said[said.index(head) + 1:].partition("\n\n")[0]
        assert max(map(len, section.splitlines())) <= 100
