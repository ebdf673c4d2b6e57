"""`hbmledger export-db FILE.duckdb`: a file with views over the lake that the DuckDB command line, DBeaver or a notebook open."""

from __future__ import annotations

import argparse
from pathlib import Path

from ingest.errors import OK

NAME = "export-db"
HELP = "a DuckDB file with views over the lake, for other programs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("file", metavar="FILE.duckdb", help="the file to write; one that is there is not overwritten")
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: ./lake or HBMLEDGER_LAKE)")


def run(arguments: argparse.Namespace) -> int:
    """Write the file and say what it is."""
    from analysis.query.export_db import export_db
    from cli.opening import lake_of

    lake = lake_of(arguments.lake)
    version = export_db(lake, Path(arguments.file))
    print(f"{arguments.file}: views over the files of {lake.root} as they are now (version {version}). It is a picture: write it anew after an "
          "ingest, and after compact and vacuum, which take files away that it names. Open it read only.")
    return OK
