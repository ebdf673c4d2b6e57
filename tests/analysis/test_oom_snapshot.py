"""An error and the snapshot written when it happened: how they are joined, and when they are not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from analysis.database import connect, from_rows
from analysis.oom.case import Cached, judge
from analysis.overview import overview
from analysis.report.keys import as_json
from analysis.report.text import as_text
from ingest.lake import Lake
from ingest.pipeline import ingest

GIB = 2**30
SAMPLE = Path(__file__).parents[2] / "sample_data" / "oom_case_b1"
SNAPSHOT, LOG = "snapshot_oom_rank_0.pickle.gz", "train.log"
FULL = {"requested_bytes": 2 * GIB, "free_bytes": 0, "capacity_bytes": 80 * GIB, "allocated_bytes": 70 * GIB, "reserved_unallocated_bytes": 8 * GIB}


def report(folder: Path, **options):
    lake = Lake(folder / "lake")
    ingest([folder], lake, run="run", **options)
    return overview(connect(lake), "run")


@pytest.fixture
def folder(tmp_path):
    for name in (SNAPSHOT, LOG):
        shutil.copy(SAMPLE / name, tmp_path / name)
    return tmp_path


def test_the_letter_comes_from_the_rank_s_snapshot(folder):
    found = report(folder)
    (one,) = found.ooms
    assert (one.case, one.missing) == ("B1", ())
    assert one.snapshot.joined == "rank 0 and the size of the request"
    assert one.snapshot.source.artifact.endswith(SNAPSHOT)
    assert one.figures["split_bytes"] > one.numbers["requested_bytes"]
    text = as_text(found)
    assert "joined by rank 0 and the size of the request" in text
    assert "rank 0, out of memory" in text
    (named,) = as_json(found)["snapshots"]
    assert (named["rank"], named["trigger"]) == (0, "oom")


def test_without_it_the_letter_is_missing(folder):
    (folder / SNAPSHOT).unlink()
    found = report(folder)
    assert [(one.case, one.missing, one.snapshot) for one in found.ooms] == [("B", ("snapshot",), None)]
    assert "a memory snapshot of that rank tells" in as_text(found)
    assert as_json(found)["snapshots"] == []


def test_another_rank_s_snapshot_is_not_joined(folder):
    (folder / SNAPSHOT).rename(folder / "snapshot_oom_rank_1.pickle.gz")
    assert [(one.case, one.snapshot) for one in report(folder).ooms] == [("B", None)]


def test_an_error_without_a_rank_is_joined_by_the_size_that_only_one_file_holds(folder):
    text = (folder / LOG).read_text()
    (folder / LOG).write_text(re.sub(r"\[rank0\]: (?=.*OutOfMemoryError)", "", text))
    (one,) = report(folder).ooms
    assert (one.rank, one.case) == (None, "B1")
    assert one.snapshot.joined.startswith("the size of the request")
    shutil.copy(folder / SNAPSHOT, folder / "snapshot_oom_rank_3.pickle.gz")
    (folder / "lake2").mkdir()
    lake = Lake(folder / "lake2")
    ingest([folder / LOG, folder / SNAPSHOT, folder / "snapshot_oom_rank_3.pickle.gz"], lake, run="run")
    (one,) = overview(connect(lake), "run").ooms
    assert (one.rank, one.case, one.snapshot) == (None, "B", None)


def test_a_summary_alone_cannot_tell(folder):
    (one,) = report(folder, snapshot_detail="summary").ooms
    assert (one.case, one.missing) == ("B", ("snapshot",))
    assert "only the summary" in one.snapshot.said


@pytest.mark.parametrize(("cached", "case"), [(Cached(6 * GIB, 0, 0), "B1"), (Cached(GIB, 7 * GIB, 0), "B2"), (Cached(GIB, 0, 7 * GIB), "B3"),
                                              (Cached(GIB, GIB, GIB), "B")])
def test_the_part_that_would_have_sufficed_gives_the_letter(cached, case):
    assert judge("cuda", FULL, cached=cached).case == case


def test_free_blocks_of_private_pools_stand_in_the_message_itself():
    """PyTorch counts them among allocated and names them: "with 6 GiB allocated in private pools" are blocks that a graph's pool has free."""
    full = {**FULL, "allocated_bytes": 78 * GIB, "reserved_unallocated_bytes": GIB // 8}
    assert judge("cuda", full).case == "A"
    assert judge("cuda", {**full, "private_pool_bytes": 6 * GIB}).case == "B3"
    assert judge("cuda", {**full, "private_pool_bytes": GIB}).case == "A"


def test_rows_without_a_lake_have_no_snapshots():
    assert overview(from_rows({"oom_events": [{"rank": 0, "kind": "cuda", **FULL}]}, run="made"), "made").ooms[0].case == "B"
