"""What docs/operations.md tells people to put into timers and settings: the settings are valid, each unit has its keys."""

import configparser
import re

import pytest

from ingest.settings import settings_of
from tests.conftest import ROOT

PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_has_each_kind() -> None:
    kinds = [kind for kind, _ in BLOCKS]
    assert {"crontab", "ini", "bash", "toml"} <= set(kinds)


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "crontab"])
def test_lines_of_a_crontab_have_five_fields_and_a_command(text: str) -> None:
    for line in text.splitlines():
        assert re.match(r"(?:[\d*/,-]+\s+){5}hbmledger ", line), line


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "ini"])
def test_units_are_units(text: str) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    assert "ExecStart" in unit["Service"] if unit.has_section("Service") else "OnCalendar" in unit["Timer"]


def test_the_settings_are_valid_and_complete() -> None:
    (text,) = [text for kind, text in BLOCKS if kind == "toml" and "[[names]]" in text]
    settings = settings_of(text.encode(), "/etc/hbmledger.toml")
    assert settings.named("/data/runs/east/ann/night/rank_0.log") == ("ann/night", "east")
    assert settings.named("/data/runs/old/night.log") == ("night", "cluster-old")
    assert (settings.lake, settings.every_seconds, settings.workers) == ("/data/ledger", 60, 2)
    told = {line.split("=")[0].strip() for line in text.split("[[names]]")[0].splitlines() if "=" in line}
    assert told == {"lake", "paths", "cluster", "include", "exclude", "since", "every", "workers", "snapshot_detail"}
