"""Twenty readers at once on the sample fleet, over a real server: no page fails, and what the server holds does not grow with what was read.

Each reader first goes once through every page, which warms the caches up; then all walk on for `HBMLEDGER_LOAD_MINUTES` (default 15). What a page
took is printed, not asserted: `benchmarks/app_load.py` is for speed.
"""

from __future__ import annotations

import os
import statistics
import threading
from pathlib import Path
from time import monotonic

import pyarrow as pa
import pytest

from app_pages._garbage import EVERY_SECONDS
from app_pages._table import ROWS
from ingest.pipeline import ingest
from tests.app_page import PAGES
from tests.load.server import Server, served
from tests.load.session import Session
from tests.load.walking import LARGEST, OF_THE_LAKE, RUNS, Walk, sample_fleet, walked

READERS = 20
THINK_SECONDS = 2.0
MINUTES = float(os.environ.get("HBMLEDGER_LOAD_MINUTES", "15"))
COMMITS = 40
SENT_BYTES = 2 * 2**20
GIVEN_UP_SECONDS = 120 + 2 * EVERY_SECONDS
GROWTH_BYTES = 200 * 2**20
"""What memory may rise above the most of the warm-up: the caches are bounded by number, and larger things may take the place of small ones."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample fleet."""
    return sample_fleet(tmp_path_factory.mktemp("load"))


def told(walk: Walk) -> str:
    """What the readers met, in a line for the log."""
    held = ", ".join(f"{at:.0f} s {size / 2**20:.0f} MiB" for at, size, _, _ in walk.held[::8])
    return (f"{len(walk.pages):,} pages of {walk.readers} visits, median {statistics.median(one.seconds for one in walk.pages):.2f} s at load "
            f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {held}")


def test_twenty_readers_meet_no_error_and_leave_no_memory_behind(lake: Path, tmp_path: Path) -> None:
    with served(lake, tmp_path) as server:
        warm = walked(server, READERS, 1_800, visits=1)
        after = walked(server, READERS, MINUTES * 60, THINK_SECONDS)
        print(told(warm), told(after), sep="\n")
        assert warm.faults + after.faults == []
        assert {one.run for one in warm.pages} == set(RUNS)
        most = max(size for _, size, _, _ in warm.held)
        assert max(size for _, size, _, _ in after.held) <= most + GROWTH_BYTES
        half = [size for at, size, _, _ in after.held if at > MINUTES * 30]
        assert statistics.median(half) <= most + GROWTH_BYTES / 2
        bound = max(files for *_, files in warm.held[:2]) + 3 * READERS
        assert _ends(server, bound) <= bound


def _ends(server: Server, bound: int) -> int:
    """Open files once all readers have gone and the server has given them up: for two minutes it keeps who leaves, in case they come back, with
    three files each, and finds what is left of them when a page is made."""
    limit = monotonic() + GIVEN_UP_SECONDS
    while server.open_files() > bound and monotonic() < limit:
        threading.Event().wait(10)
        with Session(server.address) as session:
            session.open("glossary")
    return server.open_files()


def test_no_page_of_the_largest_run_floods_the_browser(lake: Path, tmp_path: Path) -> None:
    """What each page sends of a run of 4,096 ranks, in bytes, and the rows of its tables."""
    with served(lake, tmp_path) as server, Session(server.address) as session:
        for page in PAGES:
            found = session.open("" if page == "start" else page, **({} if page in OF_THE_LAKE else {"run": LARGEST}))
            assert found.faults == []
            print(page, found.total_bytes, *found.kinds.most_common(2))
            assert found.total_bytes <= SENT_BYTES, page
            for table in found.of("dataframe"):
                assert pa.ipc.open_stream(table.arrow_data.data).read_all().num_rows <= ROWS, page


def test_readers_that_break_off_leave_the_server_whole(lake: Path, tmp_path: Path) -> None:
    """A reader that goes while its page is being made, twenty times at once; then one who stays gets a whole page."""
    with served(lake, tmp_path) as server:
        def broken_off() -> None:
            with Session(server.address) as session:
                session.begin("overview", run=LARGEST)

        leaving = [threading.Thread(target=broken_off) for _ in range(READERS)]
        for one in leaving:
            one.start()
        for one in leaving:
            one.join()
        with Session(server.address) as session:
            found = session.open("overview", run=LARGEST)
            assert found.faults == []
            assert "4096 of 4096" in found.text


def test_a_commit_to_the_lake_keeps_one_database_open(lake: Path, tmp_path: Path) -> None:
    """Every commit is another version of the lake: what was opened for the one before is let go. A database kept has a thread of its own at
    least. Threads come and go by themselves, so that the least of the last ten is compared with the most of the first ten."""
    held: list[tuple[int, int]] = []
    with served(lake, tmp_path) as server, Session(server.address) as session:
        for number in range(COMMITS):
            (tmp_path / f"grown{number}").mkdir()
            (tmp_path / f"grown{number}" / "memory_stats_rank0.jsonl").write_text('{"rank": 0, "stats": {"allocated_bytes.all.peak": 1048576}}\n')
            ingest([tmp_path / f"grown{number}"], lake)
            assert session.open().faults == []
            held.append((server.threads(), server.open_files()))
    for first, last in zip(map(max, zip(*held[:10], strict=True)), map(min, zip(*held[-10:], strict=True)), strict=True):
        assert last <= first + 4
