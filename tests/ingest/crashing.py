"""Writers killed in the middle of their commits, over and over, and a reader that watches the lake throughout.

A writer tells when a commit begins (the progress callback of `ingest`); it is killed (SIGKILL) after a random part of the time a commit takes, so
that kills fall before, between and after the commits of its tables. A new writer takes its place at once. Logs grow meanwhile, so that there is
always something to commit, and the lake is compacted now and then, as by a timer. Nothing is repaired: what a kill left is for the next to live with.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from analysis.database import connect
from ingest import pipeline, units, workers
from ingest.lake import Lake
from ingest.upkeep.compact import compact
from tests.ingest.toy import Toy, log

WRITERS = 4
_FILES_A_COMMIT = 16
_KILLS_A_COMPACTION = 10
_CONTEXT = multiprocessing.get_context("forkserver")
_WRONG = """
SELECT rank, COUNT(*), COUNT(DISTINCT iteration), MAX(iteration), SUM(CAST(allocated_bytes <> iteration * 1000 + rank AS INTEGER))
FROM rank_memory GROUP BY rank
HAVING COUNT(*) <> MAX(iteration) + 1 OR COUNT(DISTINCT iteration) <> COUNT(*) OR SUM(CAST(allocated_bytes <> iteration * 1000 + rank AS INTEGER)) > 0
"""
"""Ranks of which not the first rows, each once, are visible."""


@dataclass(slots=True)
class Watched:
    """What a reader saw: how often it looked, the most rows, and what was wrong."""

    looks: int = 0
    rows: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Killed:
    """Kills in all, those after which the writer was still inside its commit, and what the reader saw."""

    kills: int = 0
    inside: int = 0
    watched: Watched = field(default_factory=Watched)


class Logs:
    """Logs of a job, one a rank, that can grow."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.folder, self._steps = folder, dict.fromkeys(range(ranks), 0)
        folder.mkdir()
        for rank in range(ranks):
            self.grow(rank, 6)

    def grow(self, rank: int, steps: int) -> None:
        """Append some steps, whole lines at once."""
        first = self._steps[rank]
        self._steps[rank] = first + steps
        with (self.folder / f"rank_{rank}.log").open("ab") as file:
            file.write(log(rank, first, first + steps))

    def grow_some(self, chance: random.Random) -> None:
        """Two commits' worth of logs grow a little."""
        for rank in chance.sample(sorted(self._steps), min(2 * _FILES_A_COMMIT, len(self._steps))):
            self.grow(rank, 2)


def kill_writers(root: str, logs: Logs, kills: int, seed: int, settings: dict[str, str]) -> Killed:
    """Have four writers ingest the logs into a lake and kill them one by one; `settings` is their environment."""
    chance, told = random.Random(seed), Killed()
    watcher, watching = _start(_watch, root, settings)
    writers = [_start(_write, root, settings, str(logs.folder)) for _ in range(WRITERS)]
    try:
        span = 0.3
        while told.kills < kills:
            at = chance.randrange(WRITERS)
            writer, events = writers[at]
            _await_commit(events, logs, chance)
            time.sleep(chance.uniform(0, span))
            writer.kill()
            writer.join()
            assert writer.exitcode == -signal.SIGKILL, f"a writer ended by itself: exit code {writer.exitcode}"
            inside = not _events(events)
            told.kills, told.inside, span = told.kills + 1, told.inside + inside, span * (1.15 if inside else 0.8)
            if told.kills % _KILLS_A_COMPACTION == 0:
                compact(Lake(root))
                print(f"{told.kills} kills, {told.inside} inside a commit", flush=True)
            logs.grow_some(chance)
            writers[at] = _start(_write, root, settings, str(logs.folder))
        watching.send("stop")
        told.watched = watching.recv()
    finally:
        for process in (watcher, *(writer for writer, _ in writers)):
            process.kill()
            process.join()
    return told


def _start(target: Any, *arguments: Any) -> tuple[Any, Connection]:
    _CONTEXT.set_forkserver_preload(["tests.ingest.crashing"])
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _await_commit(events: Connection, logs: Logs, chance: random.Random) -> None:
    """Until the writer begins a commit from now on; while it has nothing to commit, logs grow."""
    _events(events)
    while events.poll(120):
        event = events.recv()
        if event == "pass":
            logs.grow_some(chance)
        elif not events.poll():
            return
    raise AssertionError("a writer said nothing for two minutes")


def _events(events: Connection) -> list[str]:
    """What a writer said since; the end of one that is gone counts for nothing."""
    found: list[str] = []
    try:
        while events.poll():
            found.append(events.recv())
    except (EOFError, OSError):
        pass
    return found


def _write(events: Connection, root: str, settings: dict[str, str], folder: str) -> None:
    """Ingest for ever, a commit every few files; tells when a commit begins and when something else does."""
    os.environ.update(settings)
    units.PARSERS = (Toy(),)  # type: ignore[assignment]
    workers._UNIT_FILES, pipeline.BATCH_BYTES = _FILES_A_COMMIT, 1

    def progress(stage: str, *_: Any) -> None:
        if stage == "commit":
            events.send("commit")

    while True:
        pipeline.ingest([folder], root, workers=1, progress=progress)
        events.send("pass")


def _watch(stop: Connection, root: str, settings: dict[str, str]) -> None:
    """Open the lake as any reader does, again and again: it must be readable, whole, and never show less than before."""
    os.environ.update(settings)
    seen = Watched()
    while not stop.poll():
        try:
            if not Lake(root).exists():
                continue
            connection = connect(Lake(root))
            ((rows,),) = connection.execute("SELECT COUNT(*) FROM rank_memory").fetchall()
            wrong = connection.execute(_WRONG).fetchall()
            connection.close()
        except Exception as error:  # whatever a reader would have been told
            seen.wrong.append(f"not readable: {error!r}")
            continue
        seen.looks += 1
        seen.wrong += [f"rank, rows, distinct, last, false: {row}" for row in wrong]
        if rows < seen.rows:
            seen.wrong.append(f"{rows} rows after {seen.rows}")
        seen.rows = max(seen.rows, rows)
    stop.send(seen)
