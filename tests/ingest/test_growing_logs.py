"""Real parsers under the lake: a log that arrives in pieces, wrapped or plain, shows the rows of the whole."""

import random
import shutil
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
