"""How long a person waits: from a chosen file, and from the click on "Read it", to the verdict on the page; and from a click to another page.

`python benchmarks/app_upload.py [--mb 50]` writes a log of that size (the dense sample's lines, carried on for as many iterations as it takes, among
noise of launchers and NCCL, one line in two), brings it to an app with an empty lake in a real Chromium and opens the run's overview. Then, on the
sample fleet (`tests/load/walking.py`), each page of the run of 4,096 ranks is gone to by the navigation's own link, twice: the first time the
server has not made it yet. Clock times are those of a busy or quiet machine: load and the server's processor seconds stand beside them.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from scanning.writer import _noise_line

SAMPLE = Path(__file__).resolve().parents[1] / "sample_data" / "dense_7b5_pp2" / "train.log"
_STEP = re.compile(r"(iteration\s+|after )(\d+)(?=/| iterations)")
FIRST, LAST = 21, 30
"""The iterations that are carried on: ten, of which the last logs memory."""


def write_long(path: Path, megabytes: float, seed: int = 50) -> int:
    """The dense sample's run over more iterations; how many."""
    source, text = random.Random(seed), SAMPLE.read_text()
    at = next(found.start() for found in re.finditer(r"^ \[.*iteration\s+21/", text, re.MULTILINE))
    head, block = text[:at], text[at:].splitlines()
    size, turn = len(head), 0
    with path.open("w", encoding="utf-8") as file:
        file.write(head)
        while size < megabytes * 1e6:
            lines, by = [], 10 * turn
            for line in block:
                lines += [_noise_line(source).rstrip("\n"), _STEP.sub(partial(_later, by), line)]
            size += file.write("\n".join(lines) + "\n")
            turn += 1
    return FIRST + 10 * turn - 1


def _later(by: int, found: re.Match[str]) -> str:
    """The iteration further on, as wide as it was."""
    return f"{found[1]}{int(found[2]) + by:>{len(found[2])}}"


def main() -> None:
    """Upload, then walk."""
    from tests.load.server import served
    from tests.load.walking import sample_fleet

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mb", type=float, default=50)
    parser.add_argument("--lake", type=Path, help="the sample fleet, made before")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="hbmledger-upload-page-") as name:
        folder = Path(name)
        log = folder / "train.log"
        steps = write_long(log, given.mb)
        print(f"{log.stat().st_size / 1e6:.0f} MB, {steps:,} iterations")
        (folder / "one").mkdir()
        with served(folder / "own" / "lake", folder / "one") as server:
            _upload(server, log, folder / "one")
        lake = given.lake or sample_fleet(folder / "fleet")
        (folder / "two").mkdir()
        with served(lake, folder / "two") as server:
            _pages(server, folder / "two")


def _upload(server: Any, log: Path, folder: Path) -> None:
    from tests.browser.driving import browsing, clicked, shows, waited

    with browsing(folder) as browser:
        browser.get(server.address)
        shows(browser, "No run in this lake yet", "Read it")
        field = waited(lambda: browser.find_elements("css selector", "input[type=file]"), "the field to upload to")
        chosen, spent = time.monotonic(), server.processor_seconds()
        field[0].send_keys(str(log))
        shows(browser, log.name)
        clicked(browser, "Read it")
        asked = time.monotonic()
        shows(browser, "least headroom", "ranks measured")
        seen, spent = time.monotonic(), server.processor_seconds() - spent
        clicked(browser, "Open train")
        shows(browser, "came closest")
        opened = time.monotonic()
    print(f"load {os.getloadavg()[0]:.1f}; to the verdict on the page: {seen - chosen:.2f} s from the file's choice, {seen - asked:.2f} s from the "
          f"click on Read it; to the overview, clicked at once: {opened - asked:.2f} s; server {spent:.2f} processor seconds", flush=True)


def _pages(server: Any, folder: Path) -> None:
    from tests.browser.driving import browsing
    from tests.browser.visiting import PAGES, Visitor
    from tests.load.walking import LARGEST

    with browsing(folder) as browser:
        visitor = Visitor(browser, server.address)
        visitor.open("overview", run=LARGEST)
        for turn in ("first", "again"):
            for page in (*PAGES[1:], PAGES[0]):
                took, spent = _timed(server, lambda page=page: visitor.turn(page))  # type: ignore[misc]
                print(f"load {os.getloadavg()[0]:5.1f}; {turn} {page:14} {took:6.2f} s, server {spent:.2f} processor seconds", flush=True)


def _timed(server: Any, act: Callable[[], None]) -> tuple[float, float]:
    began, spent = time.monotonic(), server.processor_seconds()
    act()
    return time.monotonic() - began, server.processor_seconds() - spent


if __name__ == "__main__":
    main()
