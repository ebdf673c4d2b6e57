"""How fast a log is scanned beside other tools: bytes to Arrow tables of memory, iteration, theory and OOM records, one thread each.

Usage: python benchmarks/scan_log.py [--mb 200] [--rounds 3] [--polars PYTHON] [--write]. Two logs are written into a temporary folder: a sparse
one, one record line in 40 among noise of NCCL and launchers, and a dense one of records alone. Every tool reads them in a process of its own,
the tools in turn, the best of the rounds counts (read from the page cache). On a machine that others use, the seconds of processor time are the
steadier figure. Ours is
what a worker of `hbmledger ingest` runs (without the compiled scanner: over a twentieth of the log), all kinds of records, with line numbers,
attempts, prefixes and rejects; `grep -c` of the same four strings is the bound. --polars names a Python that has polars, where this one has not.
--write puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from scanning.peers import MARKS, PEERS, Counts
from scanning.writer import write_log

OURS, OURS_PYTHON, GREP, LOOP = "HBM Ledger", "HBM Ledger, no compiled scanner", "grep -c", "Python, one regex"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
Figures = dict[str, dict[str, float]]


def ours(path: Path) -> Counts:
    """What a worker does with one file: unit after unit until nothing is left; the parent that would commit drops the tables here."""
    from ingest.planning import Job
    from ingest.units import Place, read_unit

    size = path.stat().st_size
    waiting = [Job("benchmark", str(path), str(path), None, "benchmark", size, 0, "", "")]
    counts: dict[str, int] = dict.fromkeys(MARKS, 0)
    while waiting:
        outcome = read_unit(waiting, Place("2026-09"))
        assert not outcome.problems, outcome.problems
        for table, parts in outcome.tables.items():
            counts[table] = counts.get(table, 0) + sum(part.num_rows for part in parts)
        waiting = outcome.remaining
    return counts


def grep(path: Path) -> Counts:
    """Lines with one of the strings: a bound, nothing is extracted."""
    marks = [word for mark in MARKS.values() for word in ("-e", mark)]
    found = subprocess.run(["grep", "-c", "-F", *marks, str(path)], env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=True)
    return {"lines": int(found.stdout)}


def measure(tool: str, path: Path) -> None:
    """The child's part: one pass, told as JSON."""
    if tool in (OURS, OURS_PYTHON):
        import pyarrow

        import ingest.parsers.log.recognizers
        import ingest.planning
        import ingest.units  # noqa: F401 - importing is not scanning

        pyarrow.array([0])  # its first array imports pandas where that is installed
    if tool in ("DuckDB", "Polars"):
        __import__(tool.lower())
    run = {OURS: ours, OURS_PYTHON: ours, GREP: grep, **PEERS}[tool]
    began, processor = time.perf_counter(), sum(os.times()[:4])
    counts = run(path)
    seconds, processor = time.perf_counter() - began, sum(os.times()[:4]) - processor
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "processor": processor, "counts": counts, "rss": rss}))


def in_child(tool: str, path: Path, python: str) -> dict[str, object]:
    """One pass in a fresh process with one thread."""
    environment = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
    if tool == OURS_PYTHON:
        environment["HBMLEDGER_NATIVE"] = "0"
    done = subprocess.run([python, __file__, "--tool", tool, "--log", str(path)], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def compare(log: Path, expected: Counts, tools: dict[str, str], rounds: int) -> Figures:
    """MB/s and peak MB of every tool over one log; all must find the same records."""
    megabytes = log.stat().st_size / 1e6
    with log.open("rb") as file:  # into the page cache, and not into this process, whose peak its children would show as theirs
        while file.read(1 << 20):
            pass
    figures: Figures = {tool: {"speed": 0.0, "processor": 0.0, "rss": 0.0} for tool in tools}
    for _ in range(rounds):
        for tool, python in tools.items():
            answer = in_child(tool, log, python)
            counts = answer["counts"]
            assert isinstance(counts, dict)
            assert tool == GREP or {table: counts.get(table) for table in expected} == expected, (tool, counts, expected)
            assert not {name for name, count in counts.items() if count and name not in (*expected, "lines", "runs")}, (tool, counts)
            one = figures[tool]
            one["speed"] = max(one["speed"], megabytes / float(str(answer["seconds"])))
            one["processor"] = max(one["processor"], megabytes / max(0.01, float(str(answer["processor"]))))
            one["rss"] = max(one["rss"], float(str(answer["rss"])))
    return figures


def tools_here(polars: str | None) -> dict[str, str]:
    """Each tool and the Python that runs it."""
    tools = dict.fromkeys((GREP, OURS, LOOP, "DuckDB"), sys.executable)
    if polars or find_spec("polars"):
        tools["Polars"] = polars or sys.executable
    return tools


def label(tool: str, python: str) -> str:
    """The tool's name with its version."""
    if tool in ("DuckDB", "Polars"):
        asked = f"import {tool.lower()} as m; print(m.__version__)"
        return f"{tool} {subprocess.run([python, '-c', asked], capture_output=True, text=True, check=True).stdout.strip()}"
    try:
        return f"{tool} {version('hbmledger')}" if tool == OURS else tool
    except PackageNotFoundError:
        return tool


def table(results: dict[str, tuple[Figures, Counts]], tools: dict[str, str], megabytes: float, rounds: int) -> str:
    """Markdown."""
    lines = [f"{megabytes:g} MB a log, one thread each, best of {rounds}, {os.cpu_count()} cores shared, {datetime.now(UTC):%Y-%m-%d}."]
    for name, (figures, counts) in results.items():
        records = ", ".join(f"{table} {count:,}" for table, count in counts.items())
        lines += ["", f"**{name}** ({records})", "", "| tool | MB/s | ours is | MB per second of processor time | ours is | peak MB |",
                  "|---|---:|---:|---:|---:|---:|"]
        for tool, one in figures.items():
            wall, processor = ("" if tool == OURS else f"{figures[OURS][key] / one[key]:.2f} x" for key in ("speed", "processor"))
            peak = "" if tool == GREP else f"{one['rss']:.0f}"
            name = label(tool, tools.get(tool, sys.executable))
            lines.append(f"| {name} | {one['speed']:.0f} | {wall} | {one['processor']:.0f} | {processor} | {peak} |")
    if "Polars" not in tools:
        lines += ["", "Polars is not installed here and was left out."]
    return "\n".join(lines)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--polars", help="a Python that has polars")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--tool", help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tool:
        measure(arguments.tool, arguments.log)
        return
    tools = tools_here(arguments.polars)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("sparse", "dense"):
            log = Path(folder, f"{name}.log")
            counts = write_log(log, arguments.mb / 20, sparse=name == "sparse")
            slow = compare(log, counts, {OURS_PYTHON: sys.executable}, 1)
            counts = write_log(log, arguments.mb, sparse=name == "sparse")
            results[name] = compare(log, counts, tools, arguments.rounds) | slow, counts
            log.unlink()
    text = table(results, tools, arguments.mb, arguments.rounds)
    print(text)
    if arguments.write:
        page = PAGE.read_text()
        PAGE.write_text(re.sub(r"(?s)(<!-- scan_log -->\n).*?(<!-- /scan_log -->)", lambda found: f"{found[1]}{text}\n{found[2]}", page))


if __name__ == "__main__":
    main()
