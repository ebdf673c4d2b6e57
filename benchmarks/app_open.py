"""How long a person waits for a large run: from the click on its link in a running browser to its overview, drawn whole.

`python benchmarks/app_open.py LAKE RUN [RUN ...]` starts the app on a lake that `benchmarks/fleet.py` wrote, opens the start page, and then each
run by a link as the list of runs has it. A page is there once its script has ended, the map of its ranks has all of its marks and the table has its
cells: `first` is a run that nobody opened since the server began, `again` the same one after another. The first run of all also waits for what
the server itself reads once; the load and the server's processor seconds stand beside each figure.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

_DRAWN = """
const map = document.querySelector('.st-key-picture-ranks-by-stage svg.marks');
return map !== null && map.querySelectorAll('.mark-rect path').length > 0 && document.querySelector('[data-testid=stDataFrame] canvas') !== null;
"""
_GO = """
const link = document.createElement('a');
link.href = arguments[0];
history.pushState({}, '', arguments[0]);
window.dispatchEvent(new PopStateEvent('popstate'));
"""


def main() -> None:
    """Open each run twice."""
    from tests.browser.driving import browsing
    from tests.browser.visiting import Visitor
    from tests.load.server import served

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lake", type=Path)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="hbmledger-open-") as name, served(given.lake, Path(name)) as server, browsing(Path(name)) as browser:
        visitor = Visitor(browser, server.address)
        began = time.monotonic()
        visitor.open("start")
        print(f"start {time.monotonic() - began:.2f} s", flush=True)
        for turn in ("first", "again"):
            for run in given.runs:
                took, spent = _opened(server, visitor, run)
                print(f"load {os.getloadavg()[0]:.1f}; {run} {turn} {took:.2f} s, server {spent:.2f} processor seconds", flush=True)


def _opened(server: Any, visitor: Any, run: str) -> tuple[float, float]:
    from tests.browser.driving import waited

    visitor.turn("glossary")
    time.sleep(1)
    began, spent = time.monotonic(), server.processor_seconds()
    visitor._taken(lambda: visitor.browser.execute_script(_GO, f"/overview?run={run}&attempt=0"), run)
    visitor.rest()
    waited(lambda: run in visitor.text() and visitor.browser.execute_script(_DRAWN), f"the overview of {run}")
    return time.monotonic() - began, server.processor_seconds() - spent


if __name__ == "__main__":
    main()
