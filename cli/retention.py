"""`hbmledger retention`: drop or thin old records that are summed up elsewhere; says first what it would remove.

Ages come from the options, else from `[retention]` of `hbmledger.toml` (`events = "30d"`, `raw`, `thin`), so that cron needs no options.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ingest.errors import OK, LedgerError

if TYPE_CHECKING:
    from ingest.upkeep.retention import Keep, Removed

NAME = "retention"
_RULES = ("events", "raw", "thin")
HELP = "drop or thin old records of a lake, keep the days and peaks they add up to"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: ./lake or HBMLEDGER_LAKE)")
    parser.add_argument("--events", metavar="AGE", help="drop events of memory snapshots ingested longer ago, as 30d; peaks and blocks stay")
    parser.add_argument("--raw", metavar="AGE", help="drop single records of ranks ingested longer ago, as 90d; days stay")
    parser.add_argument("--thin", metavar="AGE", help="of whole months of ingest longer ago keep each rank's first, last and highest record of a day")
    parser.add_argument("--config", metavar="FILE", help="settings (default: HBMLEDGER_CONFIG, else ./hbmledger.toml if it is there)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed, remove nothing")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Remove, or say what would be. Raises LedgerError where no age is given."""
    from cli.opening import lake_of
    from ingest.settings import read_settings
    from ingest.upkeep.retention import retention

    settings = read_settings(arguments.config)
    keep = _keep(arguments, settings.retention, arguments.config or "hbmledger.toml")
    done = retention(lake_of(arguments.lake or settings.lake), keep, dry_run=arguments.dry_run)
    if arguments.format == "json":
        print(json.dumps([asdict(one) for one in done], indent=1))
    else:
        print("\n".join(map(_sentence, done)) + (
            "\nNothing was removed: --dry-run." if arguments.dry_run else "\nThe files stay for readers at work until `hbmledger vacuum`."))
    return OK


def _keep(arguments: argparse.Namespace, settings: Mapping[str, Any], path: str) -> Keep:
    from ingest.upkeep.ages import age
    from ingest.upkeep.retention import Keep

    if unknown := set(settings) - set(_RULES):
        raise LedgerError(f"retention.{min(unknown)} is no setting", where=path, todo=f"known keys are {', '.join(_RULES)}")
    given = {name: age(text, f"--{name}") for name in _RULES if (text := getattr(arguments, name)) is not None}
    given = given or {name: age(str(text), f"{path}: retention.{name}") for name, text in settings.items()}
    if not given:
        raise LedgerError("nothing to remove was named", where="retention",
                          todo="give --events 30d, --raw 90d or --thin 30d, or the table [retention] in hbmledger.toml")
    return Keep(**given)


def _sentence(one: Removed) -> str:
    waiting = f"; {one.rows_not_summed:,} old rows stay, for no day holds them yet" if one.rows_not_summed else ""
    return f"{one.table} ({one.rule}): {one.rows:,} rows of {one.files:,} files{waiting}"
