"""`hbmledger vacuum`: remove files that compaction replaced or a killed ingest left, when no reader can need them any more."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import datetime

from ingest.errors import OK

NAME = "vacuum"
HELP = "remove files of a lake that no reader needs any more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--older-than", default="7d", metavar="AGE", help="keep files replaced or written since, 1h to 7d (default 7d)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed, remove nothing")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Remove, or say what would be."""
    from cli.opening import lake_of
    from ingest.upkeep.ages import age
    from ingest.upkeep.vacuum import vacuum

    done = vacuum(lake_of(arguments.lake), age(arguments.older_than, "--older-than"), dry_run=arguments.dry_run)
    if arguments.format == "json":
        print(json.dumps([asdict(one) for one in done], indent=1, default=datetime.isoformat))
        return OK
    verb = "would be removed" if arguments.dry_run else "removed"
    for one in (one for one in done if one.files):
        print(f"{one.table}: {one.files:,} files of {one.size_bytes / 2**20:,.1f} MiB {verb}" + (
            f", the oldest of {one.oldest:%Y-%m-%d %H:%M}" if one.oldest else ""))
    if not any(one.files for one in done):
        print(f"No file was replaced or left behind more than {arguments.older_than} ago.")
    return OK
