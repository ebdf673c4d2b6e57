"""The sessions in README.md and docs are run, and print what the page shows: `pytest tests/test_readme.py --regenerate` writes them anew.

A `console` block is a session: lines that begin with `$ ` are commands, the others their output. Sessions of one page share a copy of the
samples and run in order, so that a later one may ask the lake that an earlier one filled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/quick-start.md")
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARYING = ((re.compile(r"\b\d+(?:\.\d+)? ?s\b"), "N s"), (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: UTC)?\b"), "DATE"),
            (re.compile(r"\b\d+(?:\.\d+)? (?:[KMG]i?B|bytes)/s"), "RATE"))
"""What differs from run to run: durations, dates of ingest, rates."""


def commands(block):
    """Commands with the output shown under each."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append([line[2:], []])
        elif found[-1][0].endswith("\\"):
            found[-1][0] += "\n" + line
        else:
            found[-1][1].append(line)
    return found


def steady(text):
    for pattern, shown in _VARYING:
        text = pattern.sub(shown, text)
    return text.rstrip()


def printed(command, folder):
    """What a shell prints for the command; the project's own command comes first on PATH."""
    environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "100", "LANG": "C.UTF-8",
                   "TZ": "UTC", "NO_COLOR": "1"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_the_sessions_print_what_the_page_shows(page, tmp_path, pytestconfig):
    path = ROOT / page
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    text = path.read_text(encoding="utf-8")
    assert _BLOCK.search(text), "the page has no session"
    differences = []

    def run(block):
        shown = []
        for command, expected in commands(block.group(1)):
            output = printed(command, tmp_path).rstrip()
            if steady(output) != steady("\n".join(expected)):
                differences.append((command, output, "\n".join(expected)))
                expected = output.splitlines()
            shown += [f"$ {command}", *expected]
        return "```console\n" + "\n".join(shown) + "\n```"

    regenerated = _BLOCK.sub(run, text)
    if pytestconfig.getoption("--regenerate"):
        path.write_text(regenerated, encoding="utf-8")
    else:
        assert differences == [], "run `make docs`"
