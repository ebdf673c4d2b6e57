"""Write the sample runs: `python -m sample_data.make [FOLDER]`. The same bytes every time; what is committed is what this writes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from sample_data import dense, moe, moe_truth, oom, oom_cases, snapshots

RUNS = {"dense_7b5_pp2": lambda: dense.files() | snapshots.files(), "moe_16ranks": moe.files, "oom_run": oom.files,
        **{run: partial(oom_cases.files, run) for run in oom_cases.CASES},
        "truth": lambda: snapshots.truths() | dense.truth() | moe_truth.truth() | oom.truth() | oom_cases.truth()}
"""Each run's folder and what makes its files; `truth` tells what only the generators know, for tests."""


def write(folder: Path) -> list[Path]:
    """Write every run under `folder`; the files written."""
    written = []
    for run, files in RUNS.items():
        for name, content in files().items():
            path = folder / run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            written.append(path)
    return written


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for path in write(target):
        print(f"{path} {path.stat().st_size}")
