"""`hbmledger probe`: the lines a user pastes into a training loop, so that every rank writes what its allocator counted, step by step.

The lines import PyTorch and the standard library alone: a training environment need not know this project. The peaks
are reset each step, because a peak since process start hides every step but the highest; that also makes the framework's own
`max allocated` a peak of one step, which the snippet says.
"""

from __future__ import annotations

import argparse

from ingest.errors import OK, LedgerError

NAME = "probe"
HELP = "print the lines that record memory_stats per rank and step, to paste into a training loop"

SNIPPET = '''\
# Memory probe: call memory_probe(iteration) once a step, after optimizer.step(). Peaks are reset each call, so the framework's
# own "max allocated" becomes the peak of one step. Writes <directory>/memory_stats_rank<R>.jsonl, and snapshots where asked.
import json
import os
import statistics
import time

import torch

PROBE = dict(directory={directory!r}, every={every}, snapshot_ranks={snapshot_ranks}, snapshot_steps={snapshot_steps},
             snapshot_above={snapshot_above}, most_snapshots={most_snapshots}, peaks=[], snapshots=0, file=None, rank=0)


def memory_probe(iteration):
    if PROBE["file"] is None:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        PROBE["rank"] = torch.distributed.get_rank() if distributed else int(os.environ.get("RANK", 0))
        os.makedirs(PROBE["directory"], exist_ok=True)
        PROBE["file"] = open(os.path.join(PROBE["directory"], f"memory_stats_rank{{PROBE['rank']}}.jsonl"), "a", buffering=1)
        if PROBE["rank"] in PROBE["snapshot_ranks"]:
            torch.cuda.memory._record_memory_history(max_entries=100_000)
    rank, stats, (free, total) = PROBE["rank"], torch.cuda.memory_stats(), torch.cuda.mem_get_info()
    torch.cuda.reset_peak_memory_stats()
    if iteration % PROBE["every"] == 0:
        line = dict(rank=rank, iteration=iteration, time=time.time(), scope="interval", device_total_bytes=total, device_free_bytes=free)
        PROBE["file"].write(json.dumps(dict(line, stats=stats)) + "\\n")
    PROBE["peaks"] = [*PROBE["peaks"][-99:], stats.get("allocated_bytes.all.peak", 0)]
    above = PROBE["snapshot_above"] and len(PROBE["peaks"]) > 5 and PROBE["peaks"][-1] > PROBE["snapshot_above"] * statistics.median(PROBE["peaks"])
    if rank in PROBE["snapshot_ranks"] and (iteration in PROBE["snapshot_steps"] or above) and PROBE["snapshots"] < PROBE["most_snapshots"]:
        PROBE["snapshots"] += 1
        torch.cuda.memory._dump_snapshot(os.path.join(PROBE["directory"], f"snapshot_rank{{rank}}_step{{iteration}}.pickle"))
'''


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options: they are written into the lines."""
    parser.add_argument("--directory", default="memory_stats", metavar="DIR", help="where the training job writes (default: %(default)s)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="write a line each N steps; peaks stay those of one step (default: 1)")
    parser.add_argument("--snapshot-ranks", default="", metavar="R,R", help="global ranks that record history and may write snapshots")
    parser.add_argument("--snapshot-steps", default="", metavar="N,N", help="steps at which they write one")
    parser.add_argument("--snapshot-above", type=float, metavar="RATIO", help="and at steps whose peak is above RATIO x the median of the last 100")
    parser.add_argument("--most-snapshots", type=int, default=3, metavar="N", help="at most so many a rank (default: 3)")


def run(arguments: argparse.Namespace) -> int:
    """Print the lines."""
    print(snippet(arguments), end="")
    return OK


def snippet(arguments: argparse.Namespace) -> str:
    """The lines with their settings filled in; a setting that cannot be meant is a sentence."""
    if arguments.every < 1:
        raise LedgerError(f"--every is {arguments.every}; a whole number of at least 1 would fit")
    if arguments.snapshot_above is not None and not arguments.snapshot_above > 1:
        raise LedgerError(f"--snapshot-above is {arguments.snapshot_above}; a ratio above 1, such as 1.05, would fit")
    ranks, steps = _numbers(arguments.snapshot_ranks, "--snapshot-ranks"), _numbers(arguments.snapshot_steps, "--snapshot-steps")
    if (steps or arguments.snapshot_above) and not ranks:
        raise LedgerError("snapshots are asked for on no rank", todo="name ranks with --snapshot-ranks, such as 0,7")
    return SNIPPET.format(directory=arguments.directory, every=arguments.every, snapshot_ranks=ranks, snapshot_steps=steps,
                          snapshot_above=arguments.snapshot_above, most_snapshots=arguments.most_snapshots)


def _numbers(text: str, name: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if any(not part.isdecimal() for part in parts):
        raise LedgerError(f"{name} is {text!r}; whole numbers with commas between, such as 0,7, would fit")
    return [int(part) for part in parts]
