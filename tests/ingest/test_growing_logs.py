"""Real parsers under the lake: a log that arrives in pieces, wrapped or plain, rotated and compressed meanwhile, shows the rows of the whole."""

import gzip
import os
import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.database import connect
from ingest.lake import Lake
from ingest.pipeline import ingest
from ingest.tables import TABLES
from tests.conftest import ROOT

SAMPLES = sorted(path for path in (ROOT / "sample_data").rglob("*.log") if path.stat().st_size < 200_000)
UNLIKE = {"artifact", "month"}


def visible(lake: Lake) -> dict[str, list[str]]:
    """Every visible row of every table but `artifacts`, without what names the piece; of rows that pieces add to days, the sums."""
    connection = connect(lake)
    try:
        rows = {}
        for table in TABLES:
            if table.name not in ("artifacts", "rank_day"):
                columns = ", ".join(f'"{name}"' for name in table.names if name not in UNLIKE)
                rows[table.name] = sorted(map(repr, connection.execute(f"SELECT {columns} FROM {table.name}").fetchall()))
        rows["rank_days"] = sorted(map(repr, connection.execute("SELECT * FROM rank_days").fetchall()))
        return rows
    finally:
        connection.close()


def check_in_pieces(log: Path, tmp_path: Path, seed: int, pieces: int) -> None:
    data, draw = log.read_bytes(), random.Random(seed)
    file = tmp_path / "job" / log.name
    file.parent.mkdir(exist_ok=True)
    shutil.copy(log, file)
    ingest([file], tmp_path / "whole", run="r", workers=1)
    for cut in [*sorted(draw.randrange(len(data)) for _ in range(pieces)), len(data)]:
        file.write_bytes(data[:cut])
        ingest([file], tmp_path / "pieces", run="r", workers=1)
    assert visible(Lake(tmp_path / "pieces")) == visible(Lake(tmp_path / "whole"))


@pytest.mark.parametrize("log", SAMPLES[:3], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_sample_log_in_pieces(log: Path, tmp_path: Path) -> None:
    check_in_pieces(log, tmp_path, 1, 4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_every_known_log_in_pieces(shared: Path, tmp_path: Path, seed: int) -> None:
    for number, log in enumerate(sorted((shared / "data/logs/files").iterdir())):
        if log.suffix != ".json":
            (tmp_path / str(number)).mkdir()
            check_in_pieces(log, tmp_path / str(number), seed, 6)


class Rotating:
    """A log written in pieces beside its whole: by and by it is rotated (`train.log.1`, then `.2`), and what is rotated is compressed later."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "train.log"
        folder.mkdir()

    def append(self, data: bytes) -> None:
        with self._log.open("ab") as file:
            file.write(data)

    def rotate(self) -> None:
        """As logrotate does with `delaycompress`: the second newest is compressed, names move up by one."""
        folder = self._log.parent
        for number in range(len(list(folder.iterdir())), 0, -1):
            for old in (folder / f"train.log.{number}", folder / f"train.log.{number}.gz"):
                if old.exists():
                    new = folder / f"train.log.{number + 1}{'.gz' if old.suffix == '.gz' else ''}"
                    os.rename(old, new)
        newest = folder / "train.log.2"
        if newest.exists():
            with gzip.open(f"{newest}.gz", "wb") as file:
                file.write(newest.read_bytes())
            newest.unlink()
        os.rename(self._log, folder / "train.log.1")


def cuts(data: bytes, draw: random.Random, pieces: int) -> list[int]:
    """Places to cut at: half anywhere in a line, half at its end, so that both torn and whole lines wait."""
    ends = [number for number, byte in enumerate(data) if byte == 10] or [0]
    anywhere = [draw.randrange(len(data)) if draw.random() < 0.5 else draw.choice(ends) + 1 for _ in range(pieces - 1)]
    return [*sorted(anywhere), len(data)]


def check_appended(log: Path, tmp_path: Path, seed: int, pieces: int, watched: str) -> None:
    """Appended in pieces with an ingest after each; `gz`: the file is compressed anew each time, as an archive that grows is."""
    data, draw = log.read_bytes(), random.Random(seed)
    name = "train.log.gz" if watched == "gz" else "train.log"
    file = tmp_path / "job" / name
    file.parent.mkdir()
    file.write_bytes(gzip.compress(data, 1) if watched == "gz" else data)
    ingest([file], tmp_path / "whole", run="r", workers=1)
    file.unlink()
    begin = 0
    for cut in cuts(data, draw, pieces):
        if watched == "gz":
            file.write_bytes(gzip.compress(data[:cut], 1))
        else:
            with file.open("ab") as grown:
                grown.write(data[begin:cut])
        begin = cut
        ingest([file], tmp_path / "pieces", run="r", workers=1)
    assert visible(Lake(tmp_path / "pieces")) == visible(Lake(tmp_path / "whole"))


def parts_of(data: bytes, draw: random.Random, count: int) -> list[bytes]:
    """The log cut at ends of lines: what stands in each file once it has been rotated `count` times."""
    ends = [number + 1 for number, byte in enumerate(data) if byte == 10]
    places = [0, *sorted(draw.sample(ends[len(ends) // 10 : -len(ends) // 10], count)), len(data)]
    return [data[begin:end] for begin, end in pairwise(places)]


def check_rotated(log: Path, tmp_path: Path, seed: int, pieces: int, rotations: int) -> None:
    """Pieces with an ingest after each, and the file rotated between: the rows of the files as they lie there at the end, ingested once."""
    draw = random.Random(seed)
    rotating = Rotating(tmp_path / "job")
    parts = parts_of(log.read_bytes(), draw, rotations)
    for number, part in enumerate(parts):
        if number:
            rotating.rotate()
            if draw.random() < 0.5:
                ingest([tmp_path / "job"], tmp_path / "pieces", run="r", workers=1)
        begin = 0
        for cut in cuts(part, draw, max(pieces // len(parts), 2)):
            rotating.append(part[begin:cut])
            begin = cut
            ingest([tmp_path / "job"], tmp_path / "pieces", run="r", workers=1)
    ingest([tmp_path / "job"], tmp_path / "whole", run="r", workers=1)
    assert len(list((tmp_path / "job").iterdir())) == rotations + 1
    assert visible(Lake(tmp_path / "pieces")) == visible(Lake(tmp_path / "whole"))


LONGEST = max(SAMPLES, key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("watched", ["plain", "gz"])
def test_a_log_appended_in_pieces(tmp_path: Path, watched: str) -> None:
    check_appended(LONGEST, tmp_path, 1, 5, watched)


def test_a_log_rotated_and_compressed_between_pieces(tmp_path: Path) -> None:
    check_rotated(LONGEST, tmp_path, 2, 6, 2)


@pytest.mark.long
@pytest.mark.parametrize("watched", ["plain", "gz"])
def test_a_log_appended_in_five_hundred_pieces(tmp_path: Path, watched: str) -> None:
    check_appended(LONGEST, tmp_path, 3, 500, watched)


@pytest.mark.long
def test_a_log_rotated_six_times_over_five_hundred_pieces(tmp_path: Path) -> None:
    check_rotated(LONGEST, tmp_path, 4, 500, 6)
