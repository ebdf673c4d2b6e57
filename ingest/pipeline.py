"""Ingest paths into a lake: plan, parse in worker processes, commit in batches, and say what happened.

Everything that fits is one batch, so that ten thousand small files cost one commit a table; big inputs are committed whenever enough
rows wait, so that memory stays bounded. An ingest that is asked to stop finishes the units under way and commits what it has read. A source that
another host took further meanwhile is planned again. Nothing here needs a lock: the lake's transactions decide.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ingest.choice import Choice
from ingest.errors import OK, QUARANTINED, LedgerError
from ingest.lake import Batch, Lake
from ingest.planning import Job, Names, Plan, chosen, files_of, look, plan
from ingest.settings import CLUSTER, RUN
from ingest.sources import Found, Known
from ingest.units import Outcome, Place
from ingest.workers import read_units, units_of

Progress = Callable[[str, int, int, str], None]
"""stage (`look`, `read`, `commit`), bytes done, bytes in all (0: not known yet), path."""

BATCH_BYTES = 96 * 1024 * 1024
"""A batch is committed when this much of Arrow memory waits."""

_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """What an ingest did. `problems` are inputs quarantined or read in part, `notes` need no action; both as (path, sentence).

    `files_moved` were rotated or moved, `files_left_out` by the choice of files, `files_waiting` were not read because it was stopped.
    """

    files_seen: int
    files_new: int
    files_grown: int
    files_unchanged: int
    files_quarantined: int
    files_unknown: int
    rows: dict[str, int]
    rejects: int
    runs: tuple[str, ...]
    read_bytes: int
    seconds: float
    problems: tuple[tuple[str, str], ...]
    notes: tuple[tuple[str, str], ...]
    cancelled: bool
    files_moved: int = 0
    files_left_out: int = 0
    files_waiting: int = 0

    @property
    def exit_code(self) -> int:
        """0, or 3 where some inputs were quarantined."""
        return QUARANTINED if self.problems else OK


def ingest(
    paths: Iterable[str | Path], lake: Lake | str | Path, run: str | None = None, cluster: str | None = None, workers: int | None = None,
    progress: Progress | None = None, cancelled: Callable[[], bool] | None = None, snapshot_detail: str = "full", choice: Choice | None = None,
    rank: int | None = None, committed: Callable[[Collection[str]], None] | None = None, commit_seconds: float = math.inf,
) -> Summary:
    """Read files, folders and archives into the lake; what is known already is not read again.

    `run` names the run of all new files (default: from their paths, `ingest.naming`), `cluster` the partition (default `default`), `rank` the
    rank of records that name none; `choice` says which files are read and how they are named by settings;
    `snapshot_detail` is `full`, or `summary` to leave out the events, blocks and stacks of memory snapshots. `cancelled` is asked between
    units: what is read then is committed and the rest left. `committed` is told the runs of each commit, which from then on can be opened, and
    `commit_seconds` after how long what is read is committed though the batch has room: for a person who waits.
    Raises `LedgerError` for a path that is not there, a bad name or a lake that cannot be written; bad inputs are in the summary instead.
    """
    _check_names(run, cluster)
    lake = lake if isinstance(lake, Lake) else Lake(lake)
    choice = choice or Choice()
    files, beside, left_out = chosen(files_of(paths, lake.root, choice.enters if choice.exclude else None), choice)
    lake.create()
    place = Place(datetime.now(UTC).strftime("%Y-%m"), snapshot_detail=snapshot_detail, rank=rank)
    naming = Names(run, cluster, choice.naming, beside)
    under_way = _Ingest(lake, naming, place, workers or min(os.cpu_count() or 1, 8), progress or _silent, cancelled or _never)
    under_way.committed, under_way.commit_seconds = committed or _untold, commit_seconds
    return replace(under_way.run(files), files_left_out=left_out)


def _check_names(run: str | None, cluster: str | None) -> None:
    if run is not None and not (RUN.fullmatch(run) and run.isprintable()):
        raise LedgerError("a run's name has 1 to 200 printable characters", where=ascii(run), todo="give another --run")
    if cluster is not None and not CLUSTER.fullmatch(cluster):
        raise LedgerError("a cluster's name has letters, digits, `.`, `_`, `-` and `@` only", where=repr(cluster), todo="give another --cluster")


def _silent(stage: str, done: int, total: int, path: str) -> None:
    pass


def _never() -> bool:
    return False


def _untold(runs: Collection[str]) -> None:
    pass


class _Ingest:
    """One ingest under way."""

    def __init__(self, lake: Lake, naming: Names, place: Place, workers: int, progress: Progress, cancelled: Callable[[], bool]) -> None:
        self._lake, self._naming, self._place, self._workers = lake, naming, place, workers
        self._progress, self._cancelled = progress, cancelled
        self.committed: Callable[[Collection[str]], None] = _untold
        self.commit_seconds = math.inf
        self._began = self._wrote = time.monotonic()
        self._batch = Batch()
        self._rows: Counter[str] = Counter()
        self._states: dict[str, str] = {}
        self._runs: set[str] = set()
        self._problems: dict[str, str] = {}
        self._unknown: set[str] = set()
        self._read_bytes = 0
        self._waiting: dict[str, str] = {}

    def run(self, files: Sequence[Found]) -> Summary:
        """Plan, read and commit; again for copies, to be remembered, and for sources that another writer took further meanwhile."""
        first: Plan | None = None
        for _ in range(_ROUNDS):
            planned = self._plan(files)
            first = first or planned
            left_out = self._read(planned.jobs)
            again = {job.file for job in planned.jobs if job.source in left_out} | set(planned.copies)
            files = [file for file in files if file.file in again]
            if not files or self._cancelled():
                break
        return self._summary(first or Plan())

    def _plan(self, files: Sequence[Found]) -> Plan:
        known = Known(self._lake.sources())
        looked = 0

        def progress(count: int, path: str) -> None:
            nonlocal looked
            looked += count
            self._progress("look", looked, 0, path)

        planned = plan(look(files, known, self._workers, progress, self._cancelled), known, self._naming)
        self._problems.update(planned.problems)
        return planned

    def _read(self, jobs: Sequence[Job]) -> set[str]:
        """Read the jobs and commit what they give; sources left out by the lake are returned."""
        by_source = {job.source: job for job in jobs}
        total = sum(job.size_bytes - job.start for job in jobs)
        left_out: set[str] = set()
        self._waiting = {job.source: job.path for job in jobs if not job.alias}
        done = 0
        for outcome in read_units(units_of(jobs), self._place, self._workers, self._cancelled):
            done += outcome.read_bytes
            self._take(outcome)
            self._progress("read", min(done, total), total, outcome.artifacts[-1]["path"] if outcome.artifacts else "")
            if self._batch.nbytes >= BATCH_BYTES or time.monotonic() - self._wrote >= self.commit_seconds:
                left_out |= self._commit(by_source)
        return left_out | self._commit(by_source)

    def _take(self, outcome: Outcome) -> None:
        self._batch.artifacts += outcome.artifacts
        for table, parts in outcome.tables.items():
            self._batch.tables.setdefault(table, []).extend(parts)
        for source in {piece["source"] for piece in outcome.artifacts} - {job.source for job in outcome.remaining}:
            self._waiting.pop(source, None)
        for source, expected in outcome.expected.items():
            self._batch.expected.setdefault(source, expected)
        self._problems.update(outcome.problems)
        self._unknown.update(outcome.unknown)
        self._read_bytes += outcome.read_bytes

    def _commit(self, jobs: dict[str, Job]) -> set[str]:
        batch, self._batch = self._batch, Batch()
        if not batch.artifacts:
            return set()
        self._progress("commit", 0, batch.nbytes, "")
        left_out = self._lake.commit(batch)
        for piece in batch.artifacts:
            if piece["source"] not in left_out and not jobs[piece["source"]].alias:
                grown = "grown" if jobs[piece["source"]].grown else "new"
                self._states[piece["source"]] = "quarantined" if piece["status"] == "quarantined" else grown
                if piece["rows"]:
                    self._runs.add(piece["run"])
        self._wrote = time.monotonic()
        self.committed({piece["run"] for piece in batch.artifacts if piece["source"] not in left_out and piece["rows"]})
        ours = {piece["artifact"] for piece in batch.artifacts if piece["source"] not in left_out}
        for table, parts in batch.tables.items():
            self._rows[table] += sum(_count(part["artifact"].value_counts().to_pylist(), ours) for part in parts)
        return left_out

    def _summary(self, planned: Plan) -> Summary:
        states = Counter(self._states.values())
        rows = {table: count for table, count in sorted(self._rows.items()) if count and table != "rejects"}
        return Summary(
            files_seen=planned.seen, files_new=states["new"], files_grown=states["grown"], files_unchanged=planned.unchanged,
            files_quarantined=states["quarantined"], files_unknown=len(self._unknown), rows=rows, rejects=self._rows["rejects"],
            runs=tuple(sorted(self._runs)), read_bytes=self._read_bytes, seconds=time.monotonic() - self._began,
            problems=tuple(sorted(self._problems.items())), notes=tuple(planned.notes), cancelled=self._cancelled(),
            files_moved=planned.moved, files_waiting=len(set(self._waiting.values()) - self._unknown) if self._cancelled() else 0,
        )


def _count(counts: list[dict[str, str | int]], ours: set[str]) -> int:
    return sum(int(entry["counts"]) for entry in counts if entry["values"] in ours)
