"""How long the logs of ten thousand ranks take to ingest: first, grown by five minutes (what cron meets), and unchanged.

One file a rank. Five minutes are 30 steps of 10 s, each a memory line, an iteration line on the last rank, and three lines that no parser
wants. Each ingest is a command of its own (`hbmledger ingest`, as cron starts it), so that its seconds, processor seconds and peak memory
are those of a whole process and its workers.

Usage: python benchmarks/ingest_ranks.py [--ranks 10000] [--steps 30] [--rounds 2] [--workers 2] [--write]. `--write` puts the figures into
docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEP_SECONDS = 10
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Figure:
    """What one ingest took; the peak is that of the command, the sum that of it and its workers together."""

    name: str
    read_mb: float
    rows: int
    seconds: float
    cpu_seconds: float
    peak_mb: float
    sum_mb: float


def append(folder: Path, ranks: int, first: int, steps: int) -> int:
    """Write the lines of `steps` steps to the file of each rank; returns the bytes."""
    total = 0
    for rank in range(ranks):
        text = "".join(_lines(rank, ranks, step) for step in range(first, first + steps))
        if first == 1:
            text = _head(rank, ranks) + text
        with (folder / f"rank_{rank}.log").open("a") as file:
            total += file.write(text)
    return total


def _head(rank: int, ranks: int) -> str:
    if rank:
        return ""
    return f"using world size: {ranks}, data-parallel size: {ranks // 8}, tensor-model-parallel size: 8, pipeline-model-parallel size: 1\n"


def _lines(rank: int, ranks: int, step: int) -> str:
    figures = f"allocated: {20000.5 + rank % 97:.2f} | max allocated: {30000.25 + step:.2f} | reserved: 33000.00 | max reserved: 33000.00"
    lines = [f"[Rank {rank}] (after {step} iterations) memory (MB) | {figures}"]
    if rank == ranks - 1:
        lines.append(f" [2026-07-01 10:{step // 6 % 60:02}:{step % 6 * 10:02}] iteration {step:8}/  100000 | consumed samples: {step * 1024:12} | "
                     f"elapsed time per iteration (ms): {STEP_SECONDS * 1000:.1f} | learning rate: 3.0E-04 | lm loss: 2.1E+00 |")
    lines += [f"INFO dataloader worker {worker}: batch {step * 3 + worker} ready, queue 8 of 8, waited 0.0 ms" for worker in range(3)]
    return "\n".join(lines) + "\n"


def measured(name: str, folder: Path, lake: Path, workers: int) -> Figure:
    """Run one ingest as a command of its own and watch it."""
    command = [sys.executable, "-c", "import sys; from cli import main; sys.exit(main())", "ingest", str(folder), "--lake", str(lake), "--workers",
               str(workers), "--format", "json"]
    began = time.monotonic()
    with tempfile.TemporaryFile() as said, subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.PIPE) as process:
        peak_mb, sum_mb, cpu = 0.0, 0.0, {}
        while process.poll() is None:
            seen = {pid: found for pid in (process.pid, *_descendants(process.pid)) if (found := _figures(pid))}
            cpu |= {pid: seconds for pid, (seconds, _) in seen.items()}
            peak_mb = max(peak_mb, seen.get(process.pid, (0.0, 0.0))[1])
            sum_mb = max(sum_mb, sum(resident for _, resident in seen.values()))
            time.sleep(_POLL_SECONDS)
        seconds = time.monotonic() - began
        if process.returncode:
            raise SystemExit(f"ingest ended with {process.returncode}: {process.stderr.read().decode() if process.stderr else ''}")
        said.seek(0)
        text = said.read().decode()
    summary = json.loads(text)
    return Figure(name, summary["read_bytes"] / 1e6, summary["rows"].get("rank_memory", 0), seconds, sum(cpu.values()), peak_mb, sum_mb)


def _descendants(pid: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from _descendants(child)


def _figures(pid: int) -> tuple[float, float] | None:
    """Processor seconds so far and resident MB; None where the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"), int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def table(figures: list[Figure], arguments: argparse.Namespace) -> str:
    """The figures as Markdown."""
    load = os.getloadavg()[0]
    lines = [f"{arguments.ranks:,} files, {arguments.steps} steps each a round, {arguments.workers} workers, {os.cpu_count()} cores shared (load "
             f"{load:.1f} at the end), {datetime.now(UTC):%Y-%m-%d}.", "",
             "| ingest | MB read | rank_memory rows | s | CPU s | peak MB | peak MB with workers |", "|---|---:|---:|---:|---:|---:|---:|"]
    lines += [f"| {one.name} | {one.read_mb:.1f} | {one.rows:,} | {one.seconds:.1f} | {one.cpu_seconds:.1f} | {one.peak_mb:.0f} | {one.sum_mb:.0f} |"
              for one in figures]
    return "\n".join(lines)


def write(text: str) -> None:
    """Put the table between its marks in docs/performance.md."""
    page = ROOT / "docs/performance.md"
    old = page.read_text(encoding="utf-8")
    new, count = re.subn(r"(<!-- ingest_ranks -->\n).*?(<!-- /ingest_ranks -->)", lambda marks: f"{marks[1]}{text}\n{marks[2]}", old, flags=re.DOTALL)
    if count != 1:
        raise SystemExit("docs/performance.md has no marks for ingest_ranks")
    page.write_text(new, encoding="utf-8")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=2, help="how often the files grow")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as temporary:
        folder, lake = Path(temporary, "run"), Path(temporary, "lake")
        folder.mkdir()
        for number in range(arguments.rounds + 1):
            append(folder, arguments.ranks, 1 + number * arguments.steps, arguments.steps)
            figures.append(measured(f"grown, round {number}" if number else "first", folder, lake, arguments.workers))
            print(figures[-1], flush=True)
        figures.append(measured("unchanged", folder, lake, arguments.workers))
    text = table(figures, arguments)
    print(text)
    if arguments.write:
        write(text)


if __name__ == "__main__":
    main()
