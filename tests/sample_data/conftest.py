"""One lake of every sample run, and what `report --format json` says of each: read once for all tests of the planted truth."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from functools import cache

import pytest

from cli import main
from sample_data import make
from tests.sample_data.test_make import SAMPLES


@pytest.fixture(scope="session")
def report_of(tmp_path_factory):
    """The report of a sample run by its name."""
    lake = str(tmp_path_factory.mktemp("samples") / "lake")
    with redirect_stdout(io.StringIO()):
        assert main(["ingest", *(str(SAMPLES / run) for run in make.RUNS if run != "truth"), "--lake", lake]) == 0

    @cache
    def report(run):
        with redirect_stdout(io.StringIO()) as said:
            assert main(["report", run, "--lake", lake, "--format", "json"]) == 0
        return json.loads(said.getvalue())

    return report


@pytest.fixture(scope="session")
def truth_of():
    """The planted truth of a run."""
    return cache(lambda run: json.loads((SAMPLES / "truth" / f"{run}.json").read_text()))
