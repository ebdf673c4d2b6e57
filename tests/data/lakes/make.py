"""Make the lake and the description of this release's schema: `python tests/data/lakes/make.py`, once, when a release is made.

The lake is what this release writes from two small sample runs, as one archive; beside it stand the rows that readers of any later release must find.
An archive of an earlier release is never made again.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from analysis.database import connect
from ingest.lake import Lake
from ingest.pipeline import ingest
from ingest.tables import TABLES

ROOT = Path(__file__).resolve().parents[3]
RUNS = ("oom_run", "oom_case_b1")


def described() -> dict[str, Any]:
    """Every table with the type of each column."""
    return {table.name: {column.name: column.type for column in table.columns} for table in TABLES}


def counted(lake: Lake) -> dict[str, int]:
    """Rows that count, by table."""
    connection = connect(lake)
    return {table.name: connection.execute(f"SELECT COUNT(*) FROM {table.name}").fetchall()[0][0] for table in TABLES}


def made(folder: Path) -> Lake:
    """The lake, of samples copied to a folder of no one's."""
    for run in RUNS:
        shutil.copytree(ROOT / "sample_data" / run, folder / run)
    here = Path.cwd()
    os.chdir(folder)
    try:
        socket.gethostname = lambda: "host"
        ingest(list(RUNS), "lake", workers=1)
    finally:
        os.chdir(here)
    return Lake(folder / "lake")


def archive(lake: Lake, target: Path) -> None:
    """Every file of a lake, without owners and times."""
    with tarfile.open(target, "w:gz") as tar:
        for path in sorted(one for one in Path(lake.root).rglob("*") if one.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(lake.root)))
            entry.size = path.stat().st_size
            tar.addfile(entry, io.BytesIO(path.read_bytes()))


def main() -> None:
    """Write the three files of this release."""
    release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with tempfile.TemporaryDirectory() as folder:
        lake = made(Path(folder))
        archive(lake, Path(__file__).with_name(f"{release}.tar.gz"))
        Path(__file__).with_name(f"{release}.json").write_text(json.dumps(counted(lake), indent=1) + "\n")
    (ROOT / "tests/data/schema" / f"{release}.json").write_text(json.dumps(described(), indent=1) + "\n")


if __name__ == "__main__":
    main()
