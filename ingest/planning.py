"""What an ingest has to read: every file and archive member looked at, told from what the lake knows, and given its run.

Looking costs one read of a file's first and last kilobytes (of all bytes where it is compressed, because only then its size is known);
parsing starts where the lake's last closed piece ended. Not a list of file names already done: logs grow, rotate, are copied and replaced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from ingest.archives import BROKEN, SOURCES, archive_kind, files_below, members
from ingest.artifacts import open_stream
from ingest.errors import LedgerError
from ingest.lake import Source
from ingest.naming import run_names, same_place, split
from ingest.sources import Found, Known, Window, absolute, examine, source_id, windows_of

WINDOW_BYTES = 256 * 1024 * 1024
"""How much of one file is read between two chances to commit, show progress or cancel."""


@dataclass(frozen=True, slots=True)
class Job:
    """One source to read from `start`; `expected` is where the lake has it closed. With `problem` it is quarantined, not read."""

    source: str
    path: str
    file: str
    member: str | None
    run: str
    size_bytes: int
    prefix_bytes: int
    prefix_hash: str
    last_hash: str
    start: int = 0
    state: str | None = None
    parser: str | None = None
    expected: int | None = None
    window_bytes: int = WINDOW_BYTES
    problem: str | None = None
    given: bool = False
    grown: bool = False
    alias: bool = False
    """A copy of a known source: remembered up to `start` (closed) and `size_bytes`, nothing to read."""
    seam_bytes: int = 0
    seam_hash: str | None = None


@dataclass(slots=True)
class Plan:
    """Jobs, and how the rest of what was seen is accounted for; `copies` are files equal to new ones, to be remembered once those are known."""

    jobs: list[Job] = field(default_factory=list)
    seen: int = 0
    unchanged: int = 0
    copies: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


def files_of(paths: Iterable[str | Path], lake_root: str) -> list[Found]:
    """The files below the given paths, each with the folder it was given by. Raises `LedgerError` for a path that is not there."""
    lake = absolute(lake_root)
    found: dict[str, Found] = {}
    for given in paths:
        path = Path(given)
        if not str(given) or not os.path.lexists(path):
            raise LedgerError("there is no such file or folder", where=str(given), todo="check the path")
        if not path.is_dir():
            found.setdefault(absolute(str(path)), Found(_shown(path), str(path), None))
            continue
        for file, problem in files_below(path):
            if problem:
                found.setdefault(absolute(str(file)), _refused(Found(_shown(file), str(file), str(path)), problem))
            elif not absolute(str(file)).startswith(f"{lake}{os.sep}"):
                found.setdefault(absolute(str(file)), Found(_shown(file), str(file), str(path)))
    return list(found.values())


def _shown(path: Path) -> str:
    """A path as text: names that are not UTF-8 keep their bytes escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def look(files: Sequence[Found], known: Known, workers: int, progress: Callable[[int, str], None], cancelled: Callable[[], bool]) -> list[Found]:
    """Examine every file and archive member."""
    found: list[Found] = []
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        for file, examined in zip(files, pool.map(lambda file: [] if cancelled() else _examined(file, known), files), strict=True):
            progress(sum(one.size_bytes for one in examined), file.path)
            found += examined
    return found


def _examined(file: Found, known: Known) -> list[Found]:
    """A file, or the members of an archive and, where the archive is hostile or damaged, itself with the reason."""
    if not file.readable:
        return [file]
    try:
        status = os.stat(file.file)
        if not stat.S_ISREG(status.st_mode):
            return [_refused(file, "not a regular file (a pipe, socket or device)")]
        if archive_kind(file.file):
            return list(_members(file, known))
        with open_stream(file.file) as stream:
            return [examine(file, stream, _wanted(file.path, known))]
    except LedgerError as error:
        return [_refused(file, f"{error.what}; {error.todo}" if error.todo else error.what)]
    except OSError as error:
        return [_refused(file, f"cannot be read: {error.strerror or error}")]


def _members(file: Found, known: Known) -> Iterator[Found]:
    try:
        for member in members(file.file):
            if member.name.lower().endswith(SOURCES):
                continue
            name = member.name.encode("utf-8", "backslashreplace").decode()
            found = replace(file, path=f"{file.path}!{name}", member=member.name)
            try:
                yield examine(found, member.stream, _wanted(found.path, known)) if member.stream else _refused(found, member.problem or "")
            except BROKEN as error:
                yield _refused(found, f"the archive is damaged here: {error}")
    except LedgerError as error:
        yield _refused(file, f"{error.what}; what came before was read")


def _wanted(path: str, known: Known) -> set[Window]:
    return {window for source in known.at(path) for window in windows_of(source)}


def _refused(found: Found, sentence: str) -> Found:
    return replace(found, problem=sentence, readable=False)


def plan(found: Sequence[Found], known: Known, run: str | None) -> Plan:
    """One job for each source that is new or grown; copies and what is known whole are counted only."""
    planned = Plan(seen=len(found))
    planned.problems = [(one.path, one.problem) for one in found if one.problem]
    identified = [(one, known.identify(one)) for one in sorted(found, key=lambda one: one.path)]
    names = _runs(identified, known, run)
    jobs = [(one, who, _job(one, who, names[one.path])) for one, who in identified]
    taken: dict[str, Job] = {}
    alike: dict[tuple[int, str, str], list[Job]] = {}
    for one, who, job in sorted(jobs, key=lambda each: not (each[2] and each[2].grown)):
        if job is None:
            planned.unchanged += 1
            planned.jobs += _alias(one, who, known) if isinstance(who, Source) else []
            if isinstance(who, Source) and one.size_bytes < min(who.size_bytes, who.closed_bytes or 0):
                planned.notes.append((one.path, "is shorter than what was read of it before; nothing was read"))
        elif not _first_of_its_kind(job, alike):
            planned.unchanged += 1
            planned.copies.append(one.file)
        elif job.source not in taken:
            taken[job.source] = job
        else:
            planned.unchanged += 1
            taken[job.source] = max(taken[job.source], job, key=lambda each: each.size_bytes)
    planned.jobs += taken.values()
    return planned


def _alias(found: Found, original: Source, known: Known) -> list[Job]:
    """The job that remembers a copy; none where the path is the source's own, or where the source moved and its open end may still grow."""
    here = known.at(found.path)
    if found.size_bytes != original.size_bytes or original in here or absolute(original.path) == absolute(found.path):
        return []
    if original.closed_bytes != original.size_bytes and not known.stands(original):
        return []
    return [Job(
        source=source_id(found.path, len(here)), path=found.path, file=found.file, member=None, run=original.run, size_bytes=found.size_bytes,
        prefix_bytes=found.prefix_bytes, prefix_hash=found.prefix_hash, last_hash=found.last_hash, start=original.closed_bytes or 0,
        state=original.parser_state, parser=original.parser, alias=True, seam_bytes=original.seam_bytes, seam_hash=original.seam_hash,
    )]


def _job(found: Found, who: Source | str, run: str) -> Job | None:
    """What is left to read of a source; None where nothing is."""
    known = who if isinstance(who, Source) else None
    if known and found.readable and (0 < found.size_bytes <= known.size_bytes or (not found.size_bytes and not known.quarantined)):
        return None
    return Job(
        source=known.source if known else str(who), path=found.path, file=found.file, member=found.member, run=run,
        size_bytes=found.size_bytes, prefix_bytes=found.prefix_bytes, prefix_hash=found.prefix_hash, last_hash=found.last_hash,
        start=(known.closed_bytes or 0) if known else 0, state=known.parser_state if known else None, parser=known.parser if known else None,
        expected=known.closed_bytes if known else None, problem=None if found.readable else found.problem, given=found.root is None,
        grown=known is not None and known.size_bytes > 0,
    )


def _first_of_its_kind(job: Job, alike: dict[tuple[int, str, str], list[Job]]) -> bool:
    """Whether no earlier file of this plan has the same content under a name that may be the same rank's; a grown one comes first and counts."""
    if job.problem or not job.size_bytes:
        return True
    others = alike.setdefault((job.size_bytes, job.prefix_hash, job.last_hash), [])
    if not job.grown and any(same_place(job.path, other.path) for other in others):
        return False
    others.append(job)
    return True


def _runs(identified: Sequence[tuple[Found, Source | str]], known: Known, run: str | None) -> dict[str, str]:
    """The run of each path: of a known source its own, else the given one, else that of its group, else from the paths."""
    names = run_names([(absolute(one.path), absolute(one.root) if one.root else None) for one, _ in identified])
    standing = {who.source: who.run for _, who in identified if isinstance(who, Source)}
    groups = {} if run else {split(absolute(source.path)).group: source.run for source in known.by_id.values()}
    result = {}
    for one, who in identified:
        path = absolute(one.path)
        if isinstance(who, Source):
            result[one.path] = who.run
        else:
            generation = _replaced(one.path, known, standing)
            name = run or groups.get(split(path).group) or names[path]
            result[one.path] = f"{name}@{generation + 1}" if generation and not run else name
    return result


def _replaced(path: str, known: Known, standing: dict[str, str]) -> int:
    """How many files stood at this path before and were overwritten: each began another job, but for snapshots, which one job overwrites.

    A rotated one lives on elsewhere: the same job.
    """
    before = [source for source in known.at(path) if source.size_bytes]
    if all(source.parser == "snapshot" or source.quarantined for source in before):
        return 0
    return 0 if before and before[-1].source in standing else len(before)



