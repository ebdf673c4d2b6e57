"""What an ingest has to read: every file and archive member looked at, told from what the lake knows, and given its run.

Looking costs one read of a file's first and last kilobytes (of all bytes where it is compressed, because only then its size is known);
parsing starts where the lake's last closed piece ended. Not a list of file names already done: logs grow, rotate, are copied and replaced.
What happened to a file that does not simply grow is told once, in a sentence.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from ingest.archives import BROKEN, SOURCES, archive_kind, files_below, members
from ingest.artifacts import HEAD_BYTES, open_stream
from ingest.choice import Choice
from ingest.errors import LedgerError
from ingest.lake import Source
from ingest.naming import run_names, same_place, split
from ingest.settings import Settings
from ingest.sources import Found, Known, Window, absolute, examine, hash_of_all, hashed_whole, source_id, windows_of

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
    cluster: str = "default"
    heads: dict[int, str] = field(default_factory=dict)
    """Hashed heads, where the lake does not know them as long as they are now."""
    modified_ns: int | None = None


@dataclass(slots=True)
class Plan:
    """Jobs, and how the rest of what was seen is accounted for; `copies` are files equal to new ones, to be remembered once those are known."""

    jobs: list[Job] = field(default_factory=list)
    seen: int = 0
    unchanged: int = 0
    copies: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Names:
    """What new files are named after, in this order: run and cluster as given, patterns of the settings; and `beside`, files that lie there too
    and are not read now: the run that a path names must not depend on which of its neighbours are old."""

    run: str | None = None
    cluster: str | None = None
    settings: Settings = field(default_factory=Settings)
    beside: tuple[Found, ...] = ()

    def cluster_of(self, path: str) -> str:
        """The cluster of a new file."""
        return self.cluster or self.settings.named(path)[1] or self.settings.cluster or "default"


def chosen(files: Iterable[Found], choice: Choice) -> tuple[list[Found], tuple[Found, ...], int]:
    """The files to read, those that are only too old, and how many were left out in all."""
    named, count = [], 0
    for file in files:
        count += 1
        if choice.takes(absolute(file.path)):
            named.append(file)
    fresh = [file for file in named if choice.recent(file.file)]
    kept = {id(file) for file in fresh}
    return fresh, tuple(file for file in named if id(file) not in kept), count - len(fresh)


def files_of(paths: Iterable[str | Path], lake_root: str, enters: Callable[[str], bool] | None = None) -> list[Found]:
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
        for file, problem in files_below(path, enters and (lambda folder: enters(absolute(folder)))):
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
        file = replace(file, modified_ns=status.st_mtime_ns)
        if archive_kind(file.file):
            return list(_members(file, known))
        with open_stream(file.file) as stream:
            return [examine(file, stream, _wanted(file.path, known), hashed_whole(file, known.at(file.path)))]
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
                if member.stream is None:
                    yield _refused(found, member.problem or "")
                else:
                    yield examine(found, member.stream, _wanted(found.path, known), hashed_whole(found, known.at(found.path)))
            except BROKEN as error:
                yield _refused(found, f"the archive is damaged here: {error}")
    except LedgerError as error:
        yield _refused(file, f"{error.what}; what came before was read")


def _wanted(path: str, known: Known) -> set[Window]:
    return {window for source in known.at(path) for window in windows_of(source)}


def _refused(found: Found, sentence: str) -> Found:
    return replace(found, problem=sentence, readable=False)


def plan(found: Sequence[Found], known: Known, naming: Names) -> Plan:
    """One job for each source that is new or grown; copies and what is known whole are counted only."""
    planned = Plan(seen=len(found))
    planned.problems = [(one.path, one.problem) for one in found if one.problem]
    identified = [(one, known.identify(one)) for one in sorted(found, key=lambda one: one.path)]
    names = _runs(identified, known, naming, planned.notes)
    jobs = [(one, who, _job(one, who, names[one.path], naming)) for one, who in identified]
    taken: dict[str, Job] = {}
    alike: dict[tuple[int, str, str], list[Job]] = {}
    for one, who, job in sorted(jobs, key=lambda each: not (each[2] and each[2].grown)):
        if job is None:
            planned.unchanged += 1
            planned.jobs += _alias(one, who, known) if isinstance(who, Source) else []
            if isinstance(who, Source) and 0 < one.size_bytes < who.size_bytes:
                planned.notes.append((one.path, _shorter(one, who)))
        elif not _first_of_its_kind(job, alike):
            planned.unchanged += 1
            planned.copies.append(one.file)
        elif job.source not in taken:
            taken[job.source] = job
        else:
            planned.unchanged += 1
            taken[job.source] = max(taken[job.source], job, key=lambda each: each.size_bytes)
    planned.jobs += taken.values()
    planned.moved = sum(isinstance(who, Source) and _moved(one, who, known) for one, who in identified)
    return planned


def _moved(found: Found, who: Source, known: Known) -> bool:
    """Whether a known file was last seen at another path, and is gone from there or has begun anew there."""
    return found.readable and absolute(found.path) != absolute(who.path) and not known.stands(who)


def _shorter(found: Found, who: Source) -> str:
    return (f"is shorter ({found.size_bytes:,} bytes) than what was read of it before ({who.size_bytes:,}) and so far the same: cut off, or being "
            "written anew; nothing was read, what was read stays")


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
        cluster=original.cluster, heads=found.heads, modified_ns=found.modified_ns,
    )]


def _job(found: Found, who: Source | str, run: str, naming: Names) -> Job | None:
    """What is left to read of a source; None where nothing is."""
    known = who if isinstance(who, Source) else None
    if known and found.readable and (0 < found.size_bytes <= known.size_bytes or (not found.size_bytes and not known.quarantined)):
        return None
    return Job(
        source=known.source if known else str(who), path=found.path, file=found.file, member=found.member, run=run,
        size_bytes=found.size_bytes, prefix_bytes=found.prefix_bytes, prefix_hash=found.prefix_hash, last_hash=found.last_hash,
        start=(known.closed_bytes or 0) if known else 0, state=known.parser_state if known else None, parser=known.parser if known else None,
        expected=known.closed_bytes if known else None, problem=None if found.readable else found.problem, given=found.root is None,
        grown=known is not None and known.size_bytes > 0, cluster=known.cluster if known else naming.cluster_of(absolute(found.path)),
        heads=found.heads if not known or known.prefix_bytes < found.prefix_bytes else {}, modified_ns=found.modified_ns,
    )


def _first_of_its_kind(job: Job, alike: dict[tuple[int, str, str], list[Job]]) -> bool:
    """Whether no earlier file of this plan has the same content under a name that may be the same rank's; a grown one comes first and counts."""
    if job.problem or not job.size_bytes:
        return True
    others = alike.setdefault((job.size_bytes, job.prefix_hash, job.last_hash), [])
    if not job.grown and any(same_place(job.path, other.path) and _same_bytes(job, other) for other in others):
        return False
    others.append(job)
    return True


def _same_bytes(job: Job, other: Job) -> bool:
    """Whether two files of one size with equal begin and end are equal between; members of archives are taken to be."""
    if job.size_bytes <= HEAD_BYTES or job.member is not None or other.member is not None:
        return True
    try:
        hashes = []
        for file in (job.file, other.file):
            with open_stream(file) as stream:
                hashes.append(hash_of_all(stream))
    except (LedgerError, OSError):
        return False
    return hashes[0] == hashes[1]


def _runs(
    identified: Sequence[tuple[Found, Source | str]], known: Known, naming: Names, notes: list[tuple[str, str]],
) -> dict[str, str]:
    """The run of each path: of a known source its own, else the given one, that of the settings, that of its group, else from the paths."""
    run, seen = naming.run, [*(one for one, _ in identified), *naming.beside]
    names = run_names([(absolute(one.path), absolute(one.root) if one.root else None) for one in seen])
    standing = {who.source: who.run for _, who in identified if isinstance(who, Source)}
    groups = {} if run else {split(absolute(source.path)).group: source.run for source in known.by_id.values()}
    result = {}
    for one, who in identified:
        path = absolute(one.path)
        if isinstance(who, Source):
            result[one.path] = who.run
        else:
            generation = _replaced(one.path, known, standing)
            name = run or naming.settings.named(path)[0] or groups.get(split(path).group) or names[path]
            result[one.path] = f"{name}@{generation + 1}" if generation and not run else name
            notes += _replacement(one, known, result[one.path], standing) if one.readable else []
    return result


def _replacement(found: Found, known: Known, run: str, standing: dict[str, str]) -> list[tuple[str, str]]:
    """The sentence for a new file where another stood; none where that one rotated away and lives on."""
    before = [source for source in known.at(found.path) if source.size_bytes and not source.quarantined]
    if not before or found.size_bytes == 0 or before[-1].source in standing:
        return []
    if before[-1].parser == "snapshot":
        return [(found.path, f"was written anew since it was read; read as another file of run {run}")]
    if run == before[-1].run:
        return [(found.path, f"begins anew where a file was read before; read as a further one of run {run}")]
    return [(found.path, f"holds something else than what was read there before: replaced, taken for another job, run {run} (--run names it)")]


def _replaced(path: str, known: Known, standing: dict[str, str]) -> int:
    """How many files stood at this path before and were overwritten: each began another job, but for snapshots, which one job overwrites.

    A rotated one lives on elsewhere: the same job.
    """
    before = [source for source in known.at(path) if source.size_bytes]
    if all(source.parser == "snapshot" or source.quarantined for source in before):
        return 0
    return 0 if before and before[-1].source in standing else len(before)
