"""Killed writers, a full disk, a lake that may not be written: every row exactly once in the end, readable throughout, nothing to repair."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.conftest import ROOT
from tests.ingest.crashing import Logs, kill_writers
from tests.ingest.toy import Toy, log, toy, visible
from tests.s3_server import BUCKET, environment, serving

__all__ = ["toy"]
KILLS = [pytest.param(10, 40, id="10 kills"), pytest.param(200, 300, id="200 kills", marks=pytest.mark.long)]


def told(root: str, folder: Path, kills: int, ranks: int, settings: dict[str, str], tmp_path: Path) -> None:
    """Kill writers; then one ingest more must show what one ingest of the whole shows."""
    logs = Logs(folder, ranks)
    killed = kill_writers(root, logs, kills, seed=kills, settings=settings)
    print(f"{killed.kills} kills, {killed.inside} inside a commit; {killed.watched.looks} looks, {killed.watched.rows} rows at the last")
    assert killed.watched.wrong == []
    assert killed.watched.looks > 0
    assert killed.inside >= kills // 4, "too few kills fell into a commit to tell anything"
    ingest([folder], root, workers=1)
    ingest([folder], tmp_path / "whole", workers=1)
    assert visible(root) == visible(tmp_path / "whole")


@pytest.mark.parametrize(("kills", "ranks"), KILLS)
def test_killed_writers_leave_every_row_exactly_once_in_a_folder(kills: int, ranks: int, tmp_path: Path, toy: Toy) -> None:
    told(str(tmp_path / "lake"), tmp_path / "job", kills, ranks, {}, tmp_path)


@pytest.mark.parametrize(("kills", "ranks"), KILLS)
def test_killed_writers_leave_every_row_exactly_once_in_an_object_store(
    kills: int, ranks: int, tmp_path: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving() as address:
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        told(f"s3://{BUCKET}/lake", tmp_path / "job", kills, ranks, environment(address), tmp_path)
