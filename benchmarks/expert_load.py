"""How fast a fleet's tokens per expert are ingested and reduced to the load of each rank and step, and with how much memory.

4,096 ranks x 1,000 steps x 16 MoE layers x 2 local experts, one micro-batch: 131 million counts in 4,096 files. `RANKS` and `STEPS` make it
smaller. Files are written first (not timed). Peak memory is the sum over this process and its workers, sampled each half second.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from analysis.database import connect
from ingest.lake import Lake
from ingest.pipeline import ingest

RANKS, STEPS, LAYERS, EXPERTS = int(os.environ.get("RANKS", "4096")), int(os.environ.get("STEPS", "1000")), 16, 2
_LOAD = """
SELECT run, run_index, rank, iteration, SUM(tokens) AS tokens, MAX(pass_tokens) AS largest_layer_tokens
FROM expert_load
GROUP BY run, run_index, rank, iteration
"""


def write(folder: Path) -> int:
    """The files of every rank; how many bytes they hold."""
    total = 0
    for rank in range(RANKS):
        lines = (f'{{"iter": {step}, "block": "decoder", "layer": {layer}, "tpe": [[{(rank * 7919 + step * 104729 + layer * 31) % 4096}, '
                 f'{(rank * 31 + step * 7919 + layer * 104729) % 4096}]]}}\n' for step in range(1, STEPS + 1) for layer in range(LAYERS))
        total += (folder / f"rank{rank}.jsonl").write_text("".join(lines))
    return total


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def look(pids: list[int], used: dict[int, float]) -> int:
    """Resident bytes of the processes, shared pages counted once; notes the processor time of each."""
    total = 0
    for pid in pids:
        try:
            times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used[pid] = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        except (OSError, IndexError):
            continue
    return total


def main() -> int:
    """Write, ingest, reduce; 1 where the counts are not all there."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as temporary:
        folder = Path(temporary) / "job" / "tokens_per_expert"
        folder.mkdir(parents=True)
        written = write(folder)
        peak, done, used = [0], threading.Event(), dict[int, float]()
        look([os.getpid()], used)
        before = used[os.getpid()]

        def watch() -> None:
            while not done.wait(0.5):
                peak[0] = max(peak[0], look(tree(os.getpid()), used))

        watcher = threading.Thread(target=watch)
        watcher.start()
        began = time.monotonic()
        summary = ingest([Path(temporary) / "job"], Lake(Path(temporary) / "lake"), workers=2)
        read = time.monotonic()
        connection = connect(Lake(Path(temporary) / "lake"))
        connection.execute("SET memory_limit = '2GB'; SET threads = 2")
        loads = connection.execute(f"SELECT COUNT(*), SUM(tokens) FROM ({_LOAD})").fetchall()[0]
        reduced = time.monotonic()
        done.set()
        watcher.join()
    rows = summary.rows.get("expert_load", 0)
    print(f"{RANKS} ranks x {STEPS} steps: {rows:,} counts of {written / 1e9:.2f} GB; ingest {read - began:.1f} s, "
          f"load of {loads[0]:,} ranks and steps {reduced - read:.1f} s, together {reduced - began:.1f} s "
          f"({sum(used.values()) - before:.0f} s of processor time, load average {os.getloadavg()[0]:.1f}); peak memory {peak[0] / 2**30:.2f} GiB")
    return int(rows != RANKS * STEPS * LAYERS * EXPERTS or loads[0] != RANKS * STEPS)


if __name__ == "__main__":
    sys.exit(main())
