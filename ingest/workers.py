"""Units of work on worker processes, or in this one where there is little to do.

Few units are under way at once, so that finished ones do not pile up in memory. A worker that the system kills breaks its whole
pool: what was under way is then read again unit by unit, each alone, and halved while it kills its worker; the one file at the end of
that is quarantined.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from types import ModuleType

from ingest.planning import Job
from ingest.units import Outcome, Place, read_unit

Unit = Sequence[Job]

_UNIT_FILES, _UNIT_BYTES = 64, 8 * 1024 * 1024
_INLINE_FILES = 256
_PRELOADED = ["ingest.units", "ingest.parsers.snapshot.lake_tables", "ingest.parsers.snapshot.reading", "pandas"]
"""What a worker finds imported: its own work, and what Arrow imports by itself at the first array where it is there."""

_KILLED = "the process that read it was ended by the system (out of memory?)"


def units_of(jobs: Sequence[Job]) -> list[Unit]:
    """Small files together, big ones alone, the members of one archive together; the biggest first."""
    archives: dict[str, list[Job]] = {}
    units: list[Unit] = []
    small: list[Job] = []
    for job in jobs:
        if job.member is not None:
            archives.setdefault(job.file, []).append(job)
        elif job.size_bytes >= _UNIT_BYTES:
            units.append([job])
        else:
            small.append(job)
            if len(small) >= _UNIT_FILES or _bytes(small) >= _UNIT_BYTES:
                units.append(small)
                small = []
    units += [*archives.values(), *([small] if small else [])]
    return sorted(units, key=_bytes, reverse=True)


def read_units(units: Sequence[Unit], place: Place, workers: int, cancelled: Callable[[], bool]) -> Iterator[Outcome]:
    """The outcome of every unit as it comes; what a unit leaves goes on before others begin. When cancelled, none begins any more, and
    those under way are finished."""
    little = sum(map(_bytes, units)) < _UNIT_BYTES and sum(map(len, units)) < _INLINE_FILES
    waiting = deque(units)
    if workers <= 1 or little:
        while waiting and not cancelled():
            outcome = read_unit(waiting.popleft(), place)
            _put_back(waiting, outcome)
            yield outcome
        return
    suspects: list[Unit] = []
    while waiting and not cancelled():
        yield from _pooled(waiting, place, workers, cancelled, suspects)
        for unit in suspects if not cancelled() else ():
            for outcome in _carefully(unit, place):
                _put_back(waiting, outcome)
                yield outcome
        suspects.clear()


def _pooled(waiting: deque[Unit], place: Place, workers: int, cancelled: Callable[[], bool], suspects: list[Unit]) -> Iterator[Outcome]:
    """Read until nothing waits or the pool breaks; the units under way then are `suspects`."""
    running: dict[Future[Outcome], Unit] = {}
    pool = _pool(workers)
    try:
        while running or (waiting and not cancelled()):
            while waiting and len(running) <= workers and not cancelled():
                running[_submit(pool, waiting[0], place)] = waiting[0]
                waiting.popleft()
            done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                del running[future]
                _put_back(waiting, outcome)
                yield outcome
    except BrokenProcessPool:
        suspects += running.values()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _carefully(unit: Unit, place: Place) -> Iterator[Outcome]:
    """One unit in a process of its own, halved where it kills that too, down to the one job to quarantine."""
    with _pool(1) as pool:
        try:
            yield _submit(pool, unit, place).result()
            return
        except BrokenProcessPool:
            pass
    if len(unit) > 1:
        yield from _carefully(unit[: len(unit) // 2], place)
        yield from _carefully(unit[len(unit) // 2 :], place)
        return
    outcome = read_unit([replace(unit[0], problem=_KILLED)], place)
    outcome.problems.append((unit[0].path, _KILLED))
    yield outcome


def warm() -> None:
    """Start what workers are forked from, where the system has it, so that the first ingest of a long-lived process does not wait for its imports."""
    context = _context()
    if context.get_start_method() == "forkserver":
        from multiprocessing.forkserver import ensure_running

        ensure_running()


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=_context(), initializer=_begin_worker)


def _begin_worker() -> None:
    """A worker leaves Ctrl-C to the process that began it, which lets it finish; and ends when that one is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _context() -> BaseContext:
    """Workers started clean: a fork of a process with threads (a web server, DuckDB) may hang."""
    context = multiprocessing.get_context("forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(_PRELOADED)
    return context


def _submit(pool: ProcessPoolExecutor, unit: Unit, place: Place) -> Future[Outcome]:
    """Submitting starts workers, and a worker first runs the main script again: a user's script without a guard, or a whole web page.

    Ours need nothing of it, so they are shown an empty one.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        return pool.submit(read_unit, unit, place)
    finally:
        sys.modules["__main__"] = main


def _put_back(waiting: deque[Unit], outcome: Outcome) -> None:
    if outcome.remaining:
        waiting.appendleft(outcome.remaining)


def _bytes(jobs: Unit) -> int:
    return sum(job.size_bytes - job.start for job in jobs)
