"""Random histories of a log folder (growth, rotation, compression, copies, moves): every line counted once at each look."""

import gzip
import random
import shutil
from pathlib import Path

import pytest

from ingest.lake import Lake
from ingest.pipeline import ingest
from tests.ingest.toy import toy, visible

__all__ = ["toy"]


class History:
    """A folder that people and logrotate work on; `written` is every line of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.written, self.rotations = folder, random.Random(seed), 0, 0
        folder.mkdir()
        self.live = [folder / "train.log", folder / "eval.log"]

    def grow(self) -> None:
        file = self.random.choice(self.live)
        count = self.random.choice([20, 60, 4000])
        with file.open("ab") as stream:
            for number in range(self.written, self.written + count):
                stream.write(b"mem 0 %d %d\n" % (number, number * 7919))
        self.written += count

    def rotate(self) -> None:
        file = self.random.choice(self.live)
        if file.exists():
            self.rotations += 1
            file.rename(f"{file}.{self.rotations}")

    def compress(self) -> None:
        if old := sorted(self.folder.glob("*.log.[0-9]*[0-9]")):
            file = self.random.choice(old)
            Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()

    def copy(self) -> None:
        if files := sorted(self.folder.glob("*.log*")):
            (self.folder / "kept").mkdir(exist_ok=True)
            file = self.random.choice(files)
            shutil.copy(file, self.folder / "kept" / f"of_{file.name}_{self.written}")

    def work(self) -> None:
        """Some steps; a copy comes last, so that it is seen before its original grows."""
        for _ in range(self.random.randint(1, 3)):
            self.random.choice([self.grow, self.grow, self.rotate, self.compress])()
        if self.random.random() < 0.3:
            self.copy()


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("seed", [*range(1), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 60))])
def test_every_line_is_counted_once(tmp_path: Path, seed: int) -> None:
    history, lake = History(tmp_path / "job", seed), Lake(tmp_path / "lake")
    for _ in range(12):
        history.work()
        ingest([history.folder], lake, workers=1)
        seen = sorted(row[3] for row in visible(lake))
        assert seen == list(range(history.written))
