"""`hbmledger check`: its exit codes, what it writes, and what it says of nothing."""

from __future__ import annotations

import json
from datetime import datetime
from xml.etree import ElementTree

import pytest

from analysis.checking import moment
from cli import main
from ingest.errors import LedgerError
from ingest.pipeline import ingest

CLEAR = "".join(f"[Rank 0] (after {step} iterations) memory (MB) | allocated: 10000.00 | max allocated: 20000.00 | reserved: 30000.00 | "
                "max reserved: 30000.00 | total device memory used: 33000.00\n" for step in range(1, 9))
DIED = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. "
        "Including non-PyTorch memory, this process has 78.00 GiB memory in use. Of the allocated memory 75.00 GiB is allocated by PyTorch, and "
        "10.00 MiB is reserved by PyTorch but unallocated.\n")


@pytest.fixture
def logs(tmp_path):
    for name, text in (("clear", CLEAR), ("died", CLEAR + "[rank0]: " + DIED), ("silent", "nothing to see\n" * 3)):
        (tmp_path / f"{name}.log").write_text(text)
    return tmp_path


@pytest.mark.parametrize(("name", "options", "code"), [
    ("clear", ["--capacity", "79.2GiB"], 0), ("clear", [], 2), ("died", [], 1), ("died", ["--fail-on", "note"], 1), ("silent", [], 2),
    ("clear", ["--capacity", "24GiB"], 1),
])
def test_exit_codes(logs, capsys, name, options, code):
    options = [*options, "--fail-on", "warning"] if options == ["--capacity", "24GiB"] else options
    assert main(["check", str(logs / f"{name}.log"), *options]) == code
    assert capsys.readouterr().out


def test_a_rank_near_its_limit_in_too_few_steps_to_class_it_is_not_clear(tmp_path, capsys):
    """A maximum that is never reset convicts one step; that another rank is clear clears the run no more than that step."""
    line = ("[Rank {rank}] (after {step} iterations) memory (MB) | allocated: 10000.00 | max allocated: {peak:.2f} | reserved: {peak:.2f} | "
            "max reserved: {peak:.2f} | total device memory used: {used:.2f}\n")
    rising = "".join(line.format(rank=rank, step=step, peak=peak, used=peak + 2000)
                     for step in range(1, 7) for rank, peak in ((0, 20000), (1, 78500 if step > 1 else 69500)))
    (tmp_path / "near.log").write_text(rising)
    code = main(["check", str(tmp_path / "near.log"), "--capacity", "79.2GiB"])
    said = capsys.readouterr().out
    assert "near the limit in at least 1 of 6 steps" in said
    assert (code, said.startswith("not judged")) == (2, True)
    assert main(["check", str(tmp_path / "near.log"), "--capacity", "70GiB"]) == 2
    assert "more was live than this capacity holds" in capsys.readouterr().out


def test_the_worst_run_decides(logs, capsys):
    assert main(["check", str(logs / "clear.log"), str(logs / "died.log"), "--capacity", "79.2GiB"]) == 1
    assert main(["check", str(logs / "clear.log"), str(logs / "silent.log"), "--capacity", "79.2GiB"]) == 2
    capsys.readouterr()


def test_json_names_the_line(logs, capsys):
    main(["check", str(logs / "died.log"), "--format", "json"])
    (one,) = json.loads(capsys.readouterr().out)
    assert one["result"] == "fails"
    assert one["findings"][0]["id"] == "oom_a"
    assert one["findings"][0]["evidence"][0]["line"] == 9


def test_junit_and_prometheus_are_well_formed(logs, capsys):
    lake = logs / "lake"
    ingest([logs / "died.log"], lake, run='a"<b>&\\c')
    ingest([logs / "clear.log"], lake)
    assert main(["check", "--lake", str(lake), "--format", "junit", "--capacity", "79.2GiB"]) == 1
    suite = ElementTree.fromstring(capsys.readouterr().out)
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    target = logs / "hbm.prom"
    assert main(["check", "--lake", str(lake), "--format", "prometheus", "--output", str(target), "--since", "1d"]) == 1
    lines = target.read_text().splitlines()
    assert 'hbmledger_check_result{run="a\\"<b>&\\\\c",run_index="0"} 1' in lines
    assert all(line.startswith("#") or line.rpartition(" ")[2].lstrip("-").isdigit() for line in lines)


def test_a_lake_without_recent_runs_is_not_a_pass(logs, capsys):
    ingest([logs / "clear.log"], logs / "lake")
    assert main(["check", "--lake", str(logs / "lake"), "--since", "2999-01-01"]) == 2
    assert "no run to check" in capsys.readouterr().err


def test_moments():
    now = datetime(2026, 11, 29, 12)
    assert moment("36h", now) == datetime(2026, 11, 28)
    assert moment("2w", now) == datetime(2026, 11, 15, 12)
    assert moment("2026-11-01") == datetime(2026, 11, 1)
    assert moment("2026-11-01T12:00+02:00") == datetime(2026, 11, 1, 10)
    with pytest.raises(LedgerError, match="36h or 7d"):
        moment("yesterday")
