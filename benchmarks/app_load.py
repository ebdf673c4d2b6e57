"""Twenty readers at once on a real server of the app, over the sample fleet: seconds a page, errors, memory of the server over the minutes.

`python benchmarks/app_load.py [--readers 20] [--minutes 15] [--think 5] [--lake DIR]` makes the fleet in small (near a million records, a run of
4,096 ranks, 180 attempts, every sample, a snapshot), starts `hbmledger app` on it and lets the readers walk through every page of eight runs
over Streamlit's own websocket, without browsers. A reader looks at a page for `think` seconds; each has left and come back many times at the end.
Clock times depend on what else the machine does: the processor seconds of the server and the load stand beside them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> None:
    """Make the lake, walk, tell."""
    from tests.load.server import served
    from tests.load.walking import sample_fleet, walked

    given = _given()
    with TemporaryDirectory(prefix="hbmledger-load-") as name:
        folder = Path(name)
        lake = given.lake or sample_fleet(folder)
        with served(lake, folder) as server:
            before = server.processor_seconds()
            walk = walked(server, given.readers, given.minutes * 60, given.think)
            spent = server.processor_seconds() - before
    seconds = sorted(one.seconds for one in walk.pages)
    print(f"{given.readers} readers, {given.think:g} s at each page, {walk.readers} visits, {len(walk.pages):,} pages in {given.minutes:g} min; "
          f"load {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores")
    print(f"a page: median {statistics.median(seconds):.2f} s, 95 % within {seconds[int(len(seconds) * 0.95)]:.2f} s, most {seconds[-1]:.2f} s; "
          f"{spent / len(seconds):.3f} processor seconds")
    print(f"errors: {len(walk.faults)}")
    for said in walk.faults[:10]:
        print(f"  {said}")
    for page in sorted({one.page for one in walk.pages}):
        own = [one for one in walk.pages if one.page == page]
        print(f"  {page:14} {len(own):5} pages, median {statistics.median(one.seconds for one in own):6.2f} s, "
              f"largest {max(one.sent_bytes for one in own) / 1024:7,.0f} KiB")
    for at, held, threads, files in walk.held:
        print(f"  after {at:5.0f} s: {held / 2**20:6,.0f} MiB, {threads} threads, {files} open files")


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--think", type=float, default=5.0, help="seconds a reader looks at a page")
    parser.add_argument("--lake", type=Path, help="a lake made before (the runs of tests/load/walking.py are in it)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
