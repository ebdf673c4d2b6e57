"""`hbmledger ingest PATH...`: files, folders and archives into the lake; safe to run again, from cron and from several hosts."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingest.pipeline import Summary

_TOLD = 50

HELP = "read logs, memory_stats files, folders or archives into a lake; what is there already is not read again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="file, folder or archive (zip, tar; gz, zst, xz, bz2)")
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: HBMLEDGER_LAKE, else ./lake)")
    parser.add_argument("--run", dest="run_name", metavar="NAME", help="run that new files belong to (default: from their paths)")
    parser.add_argument("--cluster", metavar="NAME", help="cluster they ran on, a partition of the lake (default: default)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that parse (default: one a core, at most 8)")
    parser.add_argument("--snapshot-detail", choices=("full", "summary"), default="full",
                        help="summary: of memory snapshots no events, blocks and stacks (default: full)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to say what was done")


def run(arguments: argparse.Namespace) -> int:
    """Ingest, and print a summary on stdout; what was not read goes to stderr."""
    from ingest.errors import LedgerError
    from ingest.lake import default_root
    from ingest.pipeline import ingest

    if arguments.workers is not None and arguments.workers < 1:
        raise LedgerError("at least one process has to parse", where=f"--workers {arguments.workers}", todo="give a number from 1")
    lake = arguments.lake or default_root()
    with _Bar() as bar:
        summary = ingest(arguments.paths, lake, run=arguments.run_name, cluster=arguments.cluster, workers=arguments.workers, progress=bar.show,
                         snapshot_detail=arguments.snapshot_detail)
    print(json.dumps(as_dict(summary, lake), indent=2, ensure_ascii=False) if arguments.format == "json" else text(summary, lake))
    if arguments.format == "text":
        told = (*summary.problems, *summary.notes)
        for path, sentence in told[:_TOLD]:
            print(f"hbmledger: {path}: {sentence}", file=sys.stderr)
        if len(told) > _TOLD:
            print(f"hbmledger: and {len(told) - _TOLD:,} more; --format json lists all", file=sys.stderr)
    return summary.exit_code


def as_dict(summary: Summary, lake: str) -> dict[str, Any]:
    """The summary as JSON values."""
    from dataclasses import asdict

    pairs = {name: [{"path": path, "reason": sentence} for path, sentence in getattr(summary, name)] for name in ("problems", "notes")}
    return {"lake": lake, **asdict(summary), **pairs, "exit_code": summary.exit_code}


def text(summary: Summary, lake: str) -> str:
    """One paragraph for a person."""
    counted = ((summary.files_new, "new"), (summary.files_grown, "grown"), (summary.files_unchanged, "already known"),
               (summary.files_quarantined, "quarantined"), (summary.files_unknown, "of no known kind"))
    files = ", ".join(f"{count:,} {what}" for count, what in counted if count) or "nothing to read"
    rows = sum(summary.rows.values())
    lines = [f"{_plural(summary.files_seen, 'file')} seen: {files}."]
    if summary.read_bytes:
        took = f"{_size(summary.read_bytes)} in {summary.seconds:.1f} s"
        lines.append(f"{_plural(rows, 'record')} kept and {summary.rejects:,} rejected, from {took}, into {lake}.")
    if rows:
        lines.append("Records: " + ", ".join(f"{table} {count:,}" for table, count in summary.rows.items()) + ".")
    if summary.runs:
        names = ", ".join(summary.runs[:5]) + (f" and {len(summary.runs) - 5:,} more" if len(summary.runs) > 5 else "")
        lines.append(f"{'Run' if len(summary.runs) == 1 else 'Runs'}: {names}. Next: hbmledger report {_quoted(summary.runs[0])}")
    if summary.problems:
        lines.append(f"{_plural(len(summary.problems), 'input')} not read, or in part: see below.")
    return "\n".join(lines)


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

    def __init__(self) -> None:
        self._bar: Any = None
        self._stage = ""

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, stage: str, done: int, total: int, path: str) -> None:
        """The pipeline's progress callback."""
        if not sys.stderr.isatty():
            return
        if stage != self._stage:
            from tqdm import tqdm

            self.__exit__()
            self._bar, self._stage = tqdm(total=total or None, unit="B", unit_scale=True, desc=stage, leave=False, file=sys.stderr), stage
        self._bar.set_postfix_str(path[-40:], refresh=False)
        self._bar.update(done - self._bar.n)
