"""What reading a memory snapshot costs: both readers to columns, plain `pickle.load` to objects, and torch's own statistics.

Usage: python benchmarks/snapshot.py [--events 100000 1000000 5000000] [--rounds 2] [--memory-viz FILE] [--write]. The files are
Megatron-shaped ones of the project's own generator. Each pass runs in a process of its own; processor time without the imports, the least
of the rounds; peak resident memory of the whole process, the interpreter and the pages of the mapped file among it. torch's
statistics are `_memory_viz.py stats` (pickle.load and a summary of the segments), run where torch is installed or a copy of that file
is named. --write puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import mmap
import os
import pickle
import re
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
COMPILED, PYTHON, LOAD, TORCH = "compiled reader", "Python reader", "pickle.load", "torch _memory_viz stats"
MODULES = {COMPILED: "compiled", PYTHON: "pickled"}
Figures = dict[str, dict[str, float]]


def reader(tool: str, path: Path) -> Callable[[], int]:
    """One of our readers, imported: a call gives the number of events."""
    module: Any = importlib.import_module(f"ingest.parsers.snapshot.{MODULES[tool]}")
    limits_for = importlib.import_module("ingest.parsers.snapshot.limits").limits_for
    if tool == PYTHON:
        importlib.import_module("pyarrow").array([0])  # its first array imports pandas where that is installed

    def read() -> int:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return len(module.read(data, limits_for(len(data))).events)

    return read


def load(path: Path) -> Callable[[], int]:
    """`pickle.load` as it stands, the garbage collector on; the file is our own."""

    def read() -> int:
        with path.open("rb") as file:
            return sum(map(len, pickle.load(file)["device_traces"]))  # noqa: S301 - written by this run

    return read


def torch_stats(path: Path, script: str) -> Callable[[], int]:
    """torch's script, which prints."""

    def read() -> int:
        sys.argv = [script, "stats", str(path)]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            runpy.run_path(script, run_name="__main__")
        return -1 if "total_reserved" in said.getvalue() else 0

    return read


def measure(tool: str, path: Path, script: str) -> None:
    """The child's part: one pass, told as JSON."""
    read = reader(tool, path) if tool in MODULES else load(path) if tool == LOAD else torch_stats(path, script)
    began = time.process_time()
    events = read()
    print(json.dumps({"cpu": time.process_time() - began, "events": events, "rss": peak_bytes()}), flush=True)
    os._exit(0)  # millions of objects need not be taken apart


def peak_bytes() -> int:
    """Most resident memory of this process; `ru_maxrss` would count its parent's as well."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) * 1024 if found else 0
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def child(*arguments: str) -> dict[str, Any]:
    """One pass of this script in a fresh process."""
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def make(path: Path, events: int) -> None:
    """The child that writes a file, and tells how many events it holds."""
    from sample_data.snapshots import write

    print(json.dumps({"events": write(path, events, stage=1)["events"]}))


def compare(path: Path, events: int, tools: list[str], rounds: int, script: str) -> Figures:
    """Seconds and bytes of every tool over one file; the readers must find every event."""
    figures: Figures = {tool: {"cpu": float("inf"), "rss": 0.0} for tool in tools}
    for _ in range(rounds):
        for tool in tools:
            answer = child("--tool", tool, "--file", str(path), "--memory-viz", script)
            assert answer["events"] == (-1 if tool == TORCH else events), (tool, answer)
            figures[tool] = {"cpu": min(figures[tool]["cpu"], answer["cpu"]), "rss": max(figures[tool]["rss"], answer["rss"])}
    return figures


def table(results: dict[int, tuple[Figures, int]], rounds: int) -> str:
    """Markdown."""
    machine = f"{os.cpu_count()} cores shared, Python {sys.version.split()[0]}, {datetime.now(UTC):%Y-%m-%d}"
    lines = [f"Processor seconds, least of {rounds}; {machine}.", "",
             "| events | file MB | reader | CPU s | of pickle.load | of the Python reader | peak RSS MB | of the file |",
             "|---:|---:|---|---:|---:|---:|---:|---:|"]
    for events, (figures, size) in results.items():
        for tool, one in figures.items():
            ratios = (f"{one['cpu'] / figures[other]['cpu']:.2f} x" for other in (LOAD, PYTHON))
            lines.append(f"| {events:,} | {size / 1e6:.0f} | {tool} | {one['cpu']:.2f} | {' | '.join(ratios)} | {one['rss'] / 1e6:.0f} | "
                         f"{one['rss'] / size:.1f} x |")
    if not any(TORCH in figures for figures, _ in results.values()):
        lines += ["", "torch is not installed here, its statistics were left out."]
    return "\n".join(lines)


def torch_script() -> str:
    """Where torch's script lies, "" where torch is not installed; torch itself is not imported."""
    found = find_spec("torch")
    script = Path((found.submodule_search_locations or [""])[0], "cuda", "_memory_viz.py") if found else None
    return str(script) if script and script.is_file() else ""


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory-viz", default=torch_script(), help="torch's torch/cuda/_memory_viz.py")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--tool", help=argparse.SUPPRESS)
    parser.add_argument("--make", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tool:
        measure(arguments.tool, arguments.file, arguments.memory_viz)
    if arguments.make:
        make(arguments.file, arguments.make)
        return
    tools = [COMPILED, PYTHON, LOAD, *([TORCH] if arguments.memory_viz else [])]
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for events in arguments.events:
            path = Path(folder, "snapshot.pickle")
            assert child("--make", str(events), "--file", str(path)) == {"events": events}
            results[events] = compare(path, events, tools, arguments.rounds, arguments.memory_viz), path.stat().st_size
            path.unlink()
    text = table(results, arguments.rounds)
    print(text)
    if arguments.write:
        page = PAGE.read_text()
        PAGE.write_text(re.sub(r"(?s)(<!-- snapshot -->\n).*?(<!-- /snapshot -->)", lambda found: f"{found[1]}{text}\n{found[2]}", page))


if __name__ == "__main__":
    main()
