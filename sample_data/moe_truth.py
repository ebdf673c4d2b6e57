"""What `moe` planted: classes, steps of high load, the hot and so the fullest rank of each step, risers, and who was never seen.

Told from the schedule alone (`HOT`, `PIECES`), not from the bytes written, and by none of the rules that judge them.
"""

from __future__ import annotations

import json
from typing import Any

from sample_data.moe import BUSY, EVALUATED, HOT, LOUD, MODEL, NEVER_SEEN, PIECES, SAVED, SEEN, STEPS, SURGE, hot, level

_CLASSES = {3: "stable", 5: "occasional", 6: "occasional"}
_FREED = "the allocator freed its cache and retried"


def truth() -> dict[str, bytes]:
    """The file of the truth."""
    high = {rank: _steps(rank, lambda load: load != LOUD) for rank in SEEN}
    told = {
        "steps": STEPS, "never_seen": [NEVER_SEEN], "classes": {rank: _CLASSES.get(rank, "clear") for rank in SEEN}, "high_load_steps": high,
        "near_steps": {rank: [step for step in high[rank] if step in _steps(rank, lambda load: load > BUSY)] for rank in _CLASSES},
        "near_outside_high_load": {3: _steps(3, lambda load: load == LOUD)}, "touched_steps": {3: _surges(3)},
        "fullest": {step: hot(step)[0] for step in range(1, STEPS + 1)}, "risers": [riser for rank in SEEN for riser in _risers(rank, high[rank])],
        "phases": {"evaluation": _next(EVALUATED), "checkpoint save": _next(SAVED), "first optimizer step": [1]}}
    return {"moe_16ranks.json": (json.dumps(told, indent=1) + "\n").encode()}


def _steps(rank: int, chosen: Any) -> list[int]:
    """The steps in which the rank's experts are hot, by their load."""
    levels = HOT.get(rank % MODEL.expert_parallel, {})
    return sorted(step for load, steps in levels.items() if chosen(load) for step in steps)


def _next(steps: tuple[int, ...]) -> list[int]:
    """The steps whose readings have what happened after these."""
    return [step + 1 for step in steps if step < STEPS]


def _surges(rank: int) -> list[int]:
    """Steps in which a rank of the first stage has less left than the remainders of split blocks take."""
    return _steps(rank, lambda load: load == SURGE) if rank < MODEL.data else []


def _risers(rank: int, high: list[int]) -> list[dict[str, Any]]:
    found = []
    for step in range(2, STEPS + 1):
        need, piece = level(rank, step) > level(rank, step - 1), step in PIECES.get(rank, {})
        if need or piece:
            happened = (("evaluation", _next(EVALUATED)), ("checkpoint save", _next(SAVED)), ("high load", high), (_FREED, _surges(rank)))
            found.append({"rank": rank, "step": step, "kind": "need" if need else "fragmentation",
                          "coincided": sorted(name for name, steps in happened if step in steps)})
    return found
