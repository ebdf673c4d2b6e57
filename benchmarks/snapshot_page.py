"""From a snapshot file to its painted page, in a real browser: cold (upload, ingest, analysis, pictures), once ingested, and again.

`python benchmarks/snapshot_page.py [EVENTS]` (default 1,000,000) makes a Megatron-shaped file, uploads it to an app with an empty lake, and prints
wall seconds until the three pictures of the page are drawn, with the machine's load before each. A second server on the same lake then opens
the page without ingest, first from the lake and again from its cache.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PICTURES = 3


def main() -> None:
    """Make, upload, look, look again."""
    from sample_data.snapshots import write
    from tests.browser.driving import browsing, serving

    events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "up" / "snapshot_0.pickle"
        file.parent.mkdir()
        write(file, events)
        print(f"{events:,} events, {file.stat().st_size / 2**20:.0f} MiB")
        for which in ("one", "two"):
            (folder / which).mkdir()
        with serving(folder / "lake", folder / "one") as address, browsing(folder / "one") as browser:
            _from_upload(browser, address, file)
        with serving(folder / "lake", folder / "two") as address, browsing(folder / "two") as browser:
            _from_lake(browser, address)


def _from_upload(browser: Any, address: str, file: Path) -> None:
    from tests.browser.driving import clicked, drawn, shows, uploaded

    browser.get(address)
    shows(browser, "No run in this lake yet")
    started = _start("cold: upload, ingest, page")
    uploaded(browser, address, [file], publish=True)
    shows(browser, "1 file: 1 new")
    clicked(browser, "Snapshots of")
    drawn(browser, PICTURES)
    _told(started)


def _from_lake(browser: Any, address: str) -> None:
    from tests.browser.driving import clicked, drawn

    browser.get(address)
    _start_page(browser)
    for what in ("once ingested, first look", "again", "again"):
        time.sleep(1)
        started = _start(what)
        clicked(browser, "Snapshot")
        drawn(browser, PICTURES)
        _told(started)
        clicked(browser, "Start")
        _start_page(browser)


def _start_page(browser: Any) -> None:
    """Wait until the first page is painted, its table of runs as well."""
    from tests.browser.driving import shows, waited

    shows(browser, "Bring a run")
    waited(lambda: browser.find_elements("css selector", "[data-testid=stDataFrame] canvas"), "the table of runs")


def _start(what: str) -> float:
    print(f"load {os.getloadavg()[0]:.1f}; {what}: ", end="", flush=True)
    return time.monotonic()


def _told(started: float) -> None:
    print(f"{time.monotonic() - started:.2f} s", flush=True)


if __name__ == "__main__":
    main()
