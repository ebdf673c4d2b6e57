"""Readers who walk through the app: each opens one page of one run after another, leaves, and comes back as somebody new.

What they find is kept (a line a page, without the page itself), so that the readers' own memory tells nothing of the server's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks.fleet import make
from ingest.lake import Lake
from ingest.pipeline import ingest
from sample_data.snapshots import write
from tests.app_page import PAGES
from tests.conftest import ROOT
from tests.load.server import Server
from tests.load.session import Session

SAMPLES = tuple(sorted(path.name for path in (ROOT / "sample_data").iterdir() if any(path.glob("*.log"))))
LARGEST = "pretrain-000-0901"
"""The made fleet's run of 4,096 ranks."""
RUNS = (LARGEST, "moe_16ranks", "midtrain-000-0916", "dense_7b5_pp2", "oom_case_b1", "trial-000-0905", "oom_run", "tune-000-0901")
OF_THE_LAKE = frozenset(("start", "fleet", "compare", "sql", "glossary", "settings"))
"""Pages that ask for no run."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One page as one reader met it."""

    page: str
    run: str
    seconds: float
    sent_bytes: int
    faults: tuple[str, ...]


@dataclass(slots=True)
class Walk:
    """What all readers met, and what the server held meanwhile, as (seconds since the start, resident bytes, threads, open files)."""

    pages: list[Seen] = field(default_factory=list)
    held: list[tuple[float, int, int, int]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    readers: int = 0

    @property
    def faults(self) -> list[str]:
        """Exceptions and errors that pages showed, and readers that broke off. A run that died says so as an error: that one is none."""
        return [f"{one.page} of {one.run}: {told}" for one in self.pages for told in one.faults] + self.failures


def sample_fleet(root: Path, rows: int = 1_000_000, events: int = 20_000) -> Path:
    """A lake of the made fleet in small (a run of 4,096 ranks in it), every sample, and a snapshot; its place."""
    make(root / "lake", rows, days=30, share=0.05, workers=1)
    (root / "a_snapshot").mkdir(parents=True, exist_ok=True)
    write(root / "a_snapshot" / "snapshot_0.pickle", events)
    ingest([*(ROOT / "sample_data" / run for run in SAMPLES), root / "a_snapshot"], Lake(root / "lake"))
    return root / "lake"


def walked(server: Server, readers: int, seconds: float, think: float = 0.0, pages: Sequence[str] = PAGES, runs: Sequence[str] = RUNS,
           every: float = 15.0, visits: int = 1_000_000) -> Walk:
    """Let readers walk for some time, or until each has made its visits; each waits `think` seconds between two pages.

    The server is looked at before, and each `every` seconds.
    """
    walk, end, numbers = Walk(), time.monotonic() + seconds, count()
    began = time.monotonic()
    done = threading.Event()

    def look() -> None:
        while not done.wait(0 if not walk.held else every):
            walk.held.append((time.monotonic() - began, server.resident_bytes(), server.threads(), server.open_files()))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    with ThreadPoolExecutor(readers) as pool:
        asked = [pool.submit(_reader, server.address, number, numbers, end, think, pages, runs, walk, visits) for number in range(readers)]
        for one in asked:
            one.result()
    done.set()
    watcher.join()
    walk.held.append((time.monotonic() - began, server.resident_bytes(), server.threads(), server.open_files()))
    return walk


def visit(number: int, pages: Sequence[str], runs: Sequence[str]) -> Iterable[tuple[str, str]]:
    """The pages of one reader's visit: all of them, of one run, from a place of its own on."""
    first = number % len(pages)
    return [(page, runs[number % len(runs)]) for page in (*pages[first:], *pages[:first])]


def _reader(address: str, number: int, numbers: count[int], end: float, think: float, pages: Sequence[str], runs: Sequence[str], walk: Walk,
            most: int) -> None:
    """One visit after another until the time is up."""
    wait = threading.Event()
    wait.wait(think * number / 20)
    try:
        for _ in range(most):
            with Session(address) as session:
                walk.readers += 1
                for page, run in visit(next(numbers), pages, runs):
                    if time.monotonic() >= end:
                        return
                    _look(session, page, run, walk)
                    wait.wait(think)
    except Exception as error:
        walk.failures.append(f"reader {number}: {type(error).__name__}: {error}")


def _look(session: Session, page: str, run: str, walk: Walk) -> None:
    given = {} if page in OF_THE_LAKE else {"run": run}
    found = session.open("" if page == "start" else page, **given)
    wrong = found.faults + ([] if run.startswith("oom_") else found.errors)
    walk.pages.append(Seen(page, run, found.seconds, found.total_bytes, tuple(wrong)))
