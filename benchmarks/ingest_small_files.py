"""How long ten thousand small files of one run take to ingest, to be found unchanged again, and how much memory that needs.

Usage: python benchmarks/ingest_small_files.py [--files 10000] [--workers N]. Writes logs of rank memory and iteration lines into a
temporary folder, ingests them twice and prints seconds, rows and peak memory of the parent.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from ingest.pipeline import Summary, ingest

GIB = 2**30


def write_files(folder: Path, count: int) -> int:
    """One log and every tenth time a memory_stats file a rank; returns the bytes written."""
    total = 0
    for rank in range(count):
        lines = [f"using world size: {count}, data-parallel size: {count // 8}, tensor-model-parallel size: 8, pipeline-model-parallel size: 1"]
        for step in range(1, 11):
            figures = f"allocated: {20000.5 + rank % 97:.2f} | max allocated: {30000.25 + step:.2f} | reserved: 33000.00 | max reserved: 33000.00"
            lines.append(f"[Rank {rank}] (after {step} iterations) memory (MB) | {figures}")
            lines.append("some other line that a training script prints, of no interest")
        data = "\n".join(lines) + "\n"
        if rank % 10 == 9:
            stats = {"allocated_bytes.all.peak": 30 * GIB + rank, "reserved_bytes.all.peak": 33 * GIB}
            data = "".join(json.dumps({"rank": rank, "iteration": step, "stats": stats}) + "\n" for step in range(1, 11))
        total += (folder / (f"memory_stats_{rank}.jsonl" if rank % 10 == 9 else f"rank_{rank}.log")).write_text(data)
    return total


def report(name: str, summary: Summary, began: float) -> None:
    """One line of figures."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = f"{sum(summary.rows.values()):,} rows, {summary.rejects:,} rejects, {summary.files_quarantined} quarantined"
    print(f"{name}: {time.monotonic() - began:.1f} s, {summary.files_new} new, {summary.files_unchanged} unchanged, {rows}, peak {peak:.0f} MiB")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--workers", type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "run")
        folder.mkdir()
        print(f"{arguments.files} files, {write_files(folder, arguments.files) / 1e6:.1f} MB")
        for name in ("first", "again"):
            began = time.monotonic()
            report(name, ingest([folder], Path(temporary, "lake"), workers=arguments.workers), began)


if __name__ == "__main__":
    main()
