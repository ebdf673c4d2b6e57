"""Every command of the project that README or a page shows is one: its verb is there, its arguments parse. `tests/test_readme.py` runs sessions."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli import VERBS, build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CHAINED = re.compile(r"\s(?:\|\||&&|\|)\s|;")
_AFTER = re.compile(r"\s(?:>>|>|<|2>|#)(?:\s|$)")


def shown(text: str) -> list[str]:
    """Commands in blocks of a shell or of none, and in code within a sentence; the latter only where options or operands follow the verb."""
    lines: list[str] = re.findall(r"`(hbmledger [a-z][^`\n]*)`", _BLOCK.sub("", text))
    for kind, block in _BLOCK.findall(text):
        if kind in ("", "bash", "console", "crontab", "ini"):
            lines += block.replace("\\\n", " ").splitlines()
    parts = [part for line in lines for part in _CHAINED.split(line) if re.search(r"(?:^|[ /])hbmledger [a-z]", part)]
    return [_AFTER.split(part[part.index("hbmledger ") :])[0].replace("...", "").strip() for part in parts]


COMMANDS = sorted({(page, command) for page in PAGES if page.name != "CHANGELOG.md" for command in shown(page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_parses(page: Path) -> None:
    for where, command in COMMANDS:
        if where == page:
            words = ["1" if word == "N" else word for word in shlex.split(re.sub(r"[\[\]]", " ", command))]
            assert words[1] in VERBS, command
            if len(words) == 2:
                continue
            try:
                build_parser(words[1]).parse_args(words[1:])
            except SystemExit:
                pytest.fail(f"{page.name} shows what is no command: {command}")


def test_there_are_many() -> None:
    assert len(COMMANDS) > 60
    assert {words.split()[1] for _, words in COMMANDS} == set(VERBS)
