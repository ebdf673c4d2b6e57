"""Killed writers, a full disk, a lake that may not be written: every row exactly once in the end, readable throughout, nothing to repair."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from analysis.database import connect
from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.conftest import ROOT
from tests.ingest.crashing import Logs, kill_writers
from tests.ingest.toy import Toy, toy, visible
from tests.s3_server import BUCKET, environment, serving

__all__ = ["toy"]
LONG = pytest.param(200, 300, id="200 kills", marks=pytest.mark.long)


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


@pytest.mark.parametrize(("kills", "ranks"), [pytest.param(10, 40, id="10 kills"), LONG])
def test_killed_writers_leave_every_row_exactly_once_in_a_folder(kills: int, ranks: int, tmp_path: Path, toy: Toy) -> None:
    told(str(tmp_path / "lake"), tmp_path / "job", kills, ranks, {}, tmp_path)


@pytest.mark.parametrize(("kills", "ranks"), [pytest.param(4, 20, id="4 kills"), LONG])
def test_killed_writers_leave_every_row_exactly_once_in_an_object_store(
    kills: int, ranks: int, tmp_path: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving() as address:
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        told(f"s3://{BUCKET}/lake", tmp_path / "job", kills, ranks, environment(address), tmp_path)


FIRST, SECOND = ROOT / "sample_data" / "oom_run", ROOT / "sample_data" / "moe_16ranks"
WITHOUT_OVERRIDE = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")


def hbmledger(*arguments: str | Path, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    options = ("--workers", "1") if arguments[0] == "ingest" else ()
    command = [*before, sys.executable, "-c", "import cli, sys; sys.exit(cli.main())", *map(str, arguments), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    """The rows of one ingest of both runs."""
    lake = tmp_path_factory.mktemp("whole") / "lake"
    ingest([FIRST, SECOND], lake, workers=1)
    return rows(lake)


def rows(lake: Path) -> list[tuple[object, ...]]:
    connection = connect(Lake(lake))
    query = "SELECT run, path, COUNT(*) FROM rank_memory JOIN artifacts USING (run, artifact) GROUP BY ALL ORDER BY ALL"
    return connection.execute(query).fetchall()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A tmpfs of 3 MB, or a skip that says what lacks."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a small tmpfs: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def refused(answer: subprocess.CompletedProcess[str], reason: str, todo: str) -> None:
    """One sentence: what, where, what to do. A thread of the library below may have told of its own failure before it."""
    assert (answer.returncode, answer.stdout, "Traceback" in answer.stderr) == (2, "", False)
    line = answer.stderr.splitlines()[-1]
    assert re.fullmatch(rf"hbmledger: /\S+: the lake cannot be written: .*{reason}.* — {todo}.*the same command goes on.*", line), line


def test_a_full_disk_is_told_and_the_next_run_completes(tmp_path: Path, whole: list[tuple[object, ...]]) -> None:
    with small_disk(tmp_path / "disk") as disk:
        lake = disk / "lake"
        ingest([FIRST], lake, workers=1)
        before = rows(lake)
        for left in (0, 20_000, 100_000):  # full at once, and somewhere in the middle
            (disk / "ballast").write_bytes(bytes(shutil.disk_usage(disk).free - left))
            refused(hbmledger("ingest", SECOND, "--lake", lake), "No space left on device", "make room")
            assert rows(lake) == before
            os.remove(disk / "ballast")
        assert hbmledger("ingest", FIRST, SECOND, "--lake", lake).returncode == 0
        assert rows(lake) == whole


@pytest.mark.parametrize("limit_kib", [8, *(pytest.param(limit, marks=pytest.mark.long) for limit in (1, 40))])
def test_a_limit_on_the_size_of_files_is_told_and_the_next_run_completes(limit_kib: int, tmp_path: Path, whole: list[tuple[object, ...]]) -> None:
    """Writing fails in the middle of a file, without the right to mount anything."""
    limited = ("bash", "-c", f'ulimit -f {limit_kib} && exec "$@"', "bash")
    ingest([FIRST], tmp_path / "lake", workers=1)
    before = rows(tmp_path / "lake")
    refused(hbmledger("ingest", SECOND, "--lake", tmp_path / "lake", before=limited), "File too large", "check permissions and limits")
    assert rows(tmp_path / "lake") == before
    assert ingest([FIRST, SECOND], tmp_path / "lake", workers=1).exit_code == 0
    assert rows(tmp_path / "lake") == whole


def test_a_lake_that_may_only_be_read_is_read_and_told_and_the_next_run_completes(tmp_path: Path, whole: list[tuple[object, ...]]) -> None:
    before: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("needs setpriv (util-linux) to give up the right to write everywhere, or another user than root")
        before = WITHOUT_OVERRIDE
    lake = tmp_path / "lake"
    ingest([FIRST], lake, workers=1)
    folders = [lake, *(path for path in lake.rglob("*") if path.is_dir())]
    seen = rows(lake)
    try:
        for folder in folders:
            folder.chmod(0o555)
        refused(hbmledger("ingest", SECOND, "--lake", lake, before=before), "Permission denied", "check permissions and limits")
        answer = hbmledger("report", "oom_run", "--lake", lake, before=before)
        assert (answer.returncode, answer.stderr, "ran out of memory" in answer.stdout) == (0, "", True)
        assert rows(lake) == seen
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert ingest([FIRST, SECOND], lake, workers=1).exit_code == 0
    assert rows(lake) == whole
