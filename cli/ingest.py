"""`hbmledger ingest PATH...`: files, folders and archives into the lake; safe to run again, from cron and from several hosts.

On a terminal it tells what was done in a paragraph; elsewhere, as in cron, in one line. What was not read goes to stderr. Ctrl-C (or a stop from the
system) lets the files under way finish, commits them and ends with 130 (143); a second one ends at once, with nothing half written.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from cli.stopping import Stop

if TYPE_CHECKING:
    from ingest.pipeline import Summary
    from ingest.settings import Settings

_TOLD = 50

HELP = "read logs, memory_stats files, folders or archives into a lake; what is there already is not read again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add_choice(parser)
    parser.add_argument("--rank", type=int, metavar="N", help="rank of records that name none, such as those of an unnamed snapshot")
    parser.add_argument("--format", choices=("text", "line", "json"), help="how to say what was done (default: text on a terminal, else one line)")
    parser.add_argument("--quiet", action="store_true", help="one line, no progress; the same as --format line")


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Arguments that say what is read, where it goes and how it is named; each also a setting of hbmledger.toml."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="file, folder or archive (zip, tar; gz, zst, xz, bz2; default: of the settings)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: HBMLEDGER_CONFIG, else ./hbmledger.toml if there is one)")
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: that of the settings, else HBMLEDGER_LAKE, else ./lake)")
    parser.add_argument("--run", dest="run_name", metavar="NAME", help="run that new files belong to (default: from their paths)")
    parser.add_argument("--cluster", metavar="NAME", help="cluster they ran on, a partition of the lake (default: default)")
    parser.add_argument("--since", metavar="WHEN", help="only files written since: 90m, 36h, 7d, or a date such as 2026-11-01")
    parser.add_argument("--include", action="append", metavar="GLOB", help="only files that fit, such as '*.log' or '/data/*/a/**'; may be repeated")
    parser.add_argument("--exclude", action="append", metavar="GLOB", help="no files that fit, such as 'checkpoints/**'; may be repeated")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that parse (default: one a core, at most 8)")
    parser.add_argument("--snapshot-detail", choices=("full", "summary"),
                        help="summary: of memory snapshots no events, blocks and stacks (default: full)")


def run(arguments: argparse.Namespace) -> int:
    """Ingest, and print a summary on stdout; what was not read goes to stderr."""
    from ingest.errors import LedgerError

    if arguments.rank is not None and not 0 <= arguments.rank < 2**31:
        raise LedgerError("a rank is a number from 0", where=f"--rank {arguments.rank}", todo="give the global rank of the files")
    task = Task(arguments)
    kind = arguments.format or ("text" if sys.stdout.isatty() and not arguments.quiet else "line")
    with Stop() as stop, _Bar(shown=kind == "text") as bar:
        summary = task.ingest(bar.show, stop)
    print(json.dumps(as_dict(summary, task.lake), indent=2, ensure_ascii=False) if kind == "json" else
          text(summary, task.lake) if kind == "text" else line(summary, task.lake))
    if kind != "json":
        tell([*summary.problems, *summary.notes])
    return 128 + stop.number if stop.number else summary.exit_code


class Task:
    """What an ingest is to do, from the arguments and, where they do not say, the settings; checked before anything is read."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from ingest.errors import LedgerError
        from ingest.lake import default_root
        from ingest.settings import read_settings

        self.settings: Settings = read_settings(arguments.config)
        self._arguments = arguments
        self.paths = arguments.paths or list(self.settings.paths)
        if not self.paths:
            raise LedgerError("nothing to read is named", where="ingest", todo="give a PATH, or paths = [...] in hbmledger.toml")
        if arguments.workers is not None and arguments.workers < 1:
            raise LedgerError("at least one process has to parse", where=f"--workers {arguments.workers}", todo="give a number from 1")
        self.lake = arguments.lake or self.settings.lake or default_root()
        self.workers = arguments.workers or self.settings.workers
        self.detail = arguments.snapshot_detail or self.settings.snapshot_detail or "full"
        self._include, self._exclude = _globs("--include", arguments.include), _globs("--exclude", arguments.exclude)
        self.choice()

    def choice(self) -> Any:
        """The choice of files as of now; given arguments stand in place of `include` and `since`, and `exclude` adds up."""
        from ingest.choice import Choice
        from ingest.errors import LedgerError
        from ingest.settings import moment

        since = self._arguments.since or self.settings.since
        try:
            begin = moment(since) if since else None
        except ValueError as error:
            raise LedgerError(f"--since is {since!r}", todo="a date such as 2026-11-01 or an age such as 90m, 36h or 7d would fit") from error
        return Choice(self._include or self.settings.include, (*self.settings.exclude, *self._exclude), begin, self.settings)

    def ingest(self, progress: Any, stop: Stop) -> Summary:
        """One ingest."""
        from ingest.pipeline import ingest

        return ingest(self.paths, self.lake, run=self._arguments.run_name, cluster=self._arguments.cluster, workers=self.workers, progress=progress,
                      cancelled=stop.asked, snapshot_detail=self.detail, choice=self.choice(), rank=getattr(self._arguments, "rank", None))


def _globs(option: str, given: list[str] | None) -> tuple[Any, ...]:
    from ingest.errors import LedgerError
    from ingest.globs import pattern

    try:
        return tuple(pattern(one) for one in given or ())
    except ValueError as error:
        raise LedgerError(f"the pattern {error}", where=option, todo="a pattern is such as '*.log' or 'checkpoints/**'") from error


def tell(pairs: list[tuple[str, str]]) -> None:
    """Sentences about files on stderr, the first of many."""
    for path, sentence in pairs[:_TOLD]:
        print(f"hbmledger: {path}: {sentence}", file=sys.stderr)
    if len(pairs) > _TOLD:
        print(f"hbmledger: and {len(pairs) - _TOLD:,} more; --format json lists all", file=sys.stderr)


def as_dict(summary: Summary, lake: str) -> dict[str, Any]:
    """The summary as JSON values."""
    from dataclasses import asdict

    pairs = {name: [{"path": path, "reason": sentence} for path, sentence in getattr(summary, name)] for name in ("problems", "notes")}
    return {"lake": lake, **asdict(summary), **pairs, "exit_code": summary.exit_code}


def line(summary: Summary, lake: str) -> str:
    """One line, for cron and its like."""
    parts = [f"{_plural(summary.files_seen, 'file')}: {_files(summary)}"]
    if summary.read_bytes:
        rows = sum(summary.rows.values())
        took = f"{_size(summary.read_bytes)} in {summary.seconds:.1f} s"
        parts.append(f"{_plural(rows, 'record')} kept, {summary.rejects:,} rejected, from {took}, into {lake}")
    if summary.runs:
        parts.append(f"{'run' if len(summary.runs) == 1 else 'runs'} {_runs(summary)}")
    if summary.cancelled:
        parts.append(_stopped(summary))
    return "; ".join(parts)


def text(summary: Summary, lake: str) -> str:
    """One paragraph for a person."""
    rows = sum(summary.rows.values())
    lines = [f"{_plural(summary.files_seen, 'file')} seen: {_files(summary)}."]
    if summary.read_bytes:
        took = f"{_size(summary.read_bytes)} in {summary.seconds:.1f} s"
        lines.append(f"{_plural(rows, 'record')} kept and {summary.rejects:,} rejected, from {took}, into {lake}.")
    if rows:
        lines.append("Records: " + ", ".join(f"{table} {count:,}" for table, count in summary.rows.items()) + ".")
    if summary.runs:
        lines.append(f"{'Run' if len(summary.runs) == 1 else 'Runs'}: {_runs(summary)}. Next: hbmledger report {_quoted(summary.runs[0])}")
    if summary.problems:
        lines.append(f"{_plural(len(summary.problems), 'input')} not read, or in part: see below.")
    if summary.cancelled:
        lines.append(f"{_stopped(summary).capitalize()}.")
    return "\n".join(lines)


def _files(summary: Summary) -> str:
    counted = ((summary.files_new, "new"), (summary.files_grown, "grown"), (summary.files_unchanged, "already known"),
               (summary.files_quarantined, "quarantined"), (summary.files_unknown, "of no known kind"))
    files = ", ".join(f"{count:,} {what}" for count, what in counted if count) or "nothing to read"
    beside = ((summary.files_moved, "moved or rotated"), (summary.files_left_out, "left out by choice"))
    return files + "".join(f", {count:,} {what}" for count, what in beside if count)


def _runs(summary: Summary) -> str:
    return ", ".join(summary.runs[:5]) + (f" and {len(summary.runs) - 5:,} more" if len(summary.runs) > 5 else "")


def _stopped(summary: Summary) -> str:
    left = f"{_plural(summary.files_waiting, 'file')} left for the next time" if summary.files_waiting else "nothing was left to read"
    return f"stopped: what was read is in the lake, {left}"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)


def _size(count: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return _plural(count, "byte")


class _Bar:
    """Progress on stderr where that is a terminal."""

    def __init__(self, shown: bool) -> None:
        self._bar: Any = None
        self._stage = ""
        self._shown = shown and sys.stderr.isatty()

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, stage: str, done: int, total: int, path: str) -> None:
        """The pipeline's progress callback."""
        if not self._shown:
            return
        if stage != self._stage:
            from tqdm import tqdm

            self.__exit__()
            self._bar, self._stage = tqdm(total=total or None, unit="B", unit_scale=True, desc=stage, leave=False, file=sys.stderr), stage
        self._bar.set_postfix_str(path[-40:], refresh=False)
        self._bar.update(done - self._bar.n)
