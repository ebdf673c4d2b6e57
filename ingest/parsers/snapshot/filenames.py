"""Rank, iteration and trigger that a snapshot's path tells: the file itself holds none of them.

* Megatron-LM: `{base}_{rank}{ext}` at each log interval, `{base}_oom_rank_{rank}{ext}` (before, `oom_rank-{rank}_{base}{ext}`) out of
  memory. Before 2026-08, and Megatron-Bridge: `{base}{ext}` of one rank, which the name does not tell.
* torchtitan: `iteration_{n}/rank{rank}_memory_snapshot.pickle`; `iteration_{n}_exit/` where it ran out of memory.
* Others: `rank{n}` anywhere in the name, `step_{n}` or `iter_{n}`.

A trailing number is a rank here, and only here, because Megatron names its snapshots so; behind words that count something else, or too
large for a rank (a date), it is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from ingest.parsers.names import local_rank_of, rank_of

_ENDINGS = re.compile(r"(?:\.(?:gz|zst|xz|bz2|pickle|pkl|pt|bin|dump))+$", re.IGNORECASE)
_TRAILING = re.compile(r"([A-Za-z]*)_(\d{1,5})$")
_DATE = re.compile(r"\d{4}_\d{1,2}_\d{1,2}$")
_COUNTED = frozenset((
    "step", "steps", "iter", "iters", "iteration", "iterations", "itr", "epoch", "batch", "bs", "mbs", "gbs", "seq", "seqlen", "len", "layer",
    "layers", "hidden", "pp", "tp", "dp", "cp", "ep", "vpp", "node", "host", "device", "gpu", "cuda", "run", "trial", "version", "v", "part",
    "test", "local", "context", "ctx", "size", "day", "job", "jobid", "pid"))
_ITERATION = re.compile(r"(?<![A-Za-z])(?:step|iter|iteration|itr)s?[_-]?0*(\d{1,12})(?!\d)", re.IGNORECASE)
_OOM = re.compile(r"(?<![A-Za-z])oom(?![A-Za-z])|out[_-]of[_-]memory", re.IGNORECASE)
_EXIT = re.compile(r"iteration_\d+_exit", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Told:
    """What a path tells; null where it does not. `trigger` is `oom` or `step`."""

    rank: int | None
    rank_label: str | None
    iteration: int | None
    trigger: str | None


def told(path: str) -> Told:
    """Read a path, of a file or of an archive's member."""
    parts = PurePosixPath(path.replace("\\", "/").replace("!", "/")).parts
    name = _ENDINGS.sub("", parts[-1]) if parts else ""
    numbered = _numbered_rank(name)
    rank = rank_of(path)
    local = local_rank_of(path)
    iteration = next((int(match[1]) for part in (name, *reversed(parts[:-1])) if (match := _ITERATION.search(part))), None)
    out_of_memory = bool(_OOM.search(name)) or any(_EXIT.fullmatch(part) for part in parts[:-1])
    trigger = "oom" if out_of_memory else "step" if iteration is not None or (rank is None and numbered is not None) else None
    return Told(numbered if rank is None else rank, f"local {local}" if local is not None else None, iteration, trigger)


def _numbered_rank(name: str) -> int | None:
    match = _TRAILING.search(name)
    return int(match[2]) if match and match[1].lower() not in _COUNTED and not _DATE.search(name) else None
