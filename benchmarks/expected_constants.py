"""The few constants of the expected ledger that measurements decided, each beside its neighbours.

    python benchmarks/expected_constants.py

For every constant the measured rows that it touches are judged again with smaller and larger values: the median relative error of the steady
state or the peak is printed for each, and the declared value should have the smallest. Real logs decide the constant of the backward pass.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from analysis.expected import boundary, transients, workspaces
from analysis.expected.expect import expect
from benchmarks.accuracy import LEAST_RANKS, SHARED, Judged, judge
from cli.arguments_of_log import surroundings_of_log

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Constant:
    """A module's integer, the values to try, the rows it touches, and what it is judged by."""

    module: ModuleType
    name: str
    values: Sequence[int]
    touches: Callable[[Row], bool]
    error: Callable[[Judged], float]


def _pipeline(row: Row) -> bool:
    return bool(row["resolved_args"]["pipeline_model_parallel_size"] > 1)


def _steady(row: Judged) -> float:
    return abs(row.steady / row.measured_steady - 1)


def _peak(row: Judged) -> float:
    return abs(row.peak / row.measured_peak - 1)


CONSTANTS = (
    Constant(workspaces, "_THREADS", (1, 2, 3), lambda row: True, _steady),
    Constant(workspaces, "_GROUPED_STREAMS", (0, 2, 4, 8), lambda row: bool(row["args"].get("moe_grouped_gemm")), _steady),
    Constant(boundary, "_HELD", (0, 1, 2, 3), _pipeline, _steady),
    Constant(boundary, "_IN_TRANSIT", (0, 1, 2, 3, 4, 5), _pipeline, _peak),
)


def rows() -> list[Row]:
    """Measured rows that can be judged, as they are."""
    with gzip.open(SHARED / "data/measured/megatron_ci.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [row for row in found if row["resolved_args"] and row["megatron_theory"] and not row["no_theory_reason"]]


def errors(constant: Constant, measured: Sequence[Row]) -> dict[int, float]:
    """Median error at every value; the declared value is put back."""
    touched = [row for row in measured if constant.touches(row)]
    return dict(_tried(constant, lambda: [constant.error(judge(row)) for row in touched]))


def backward_errors() -> dict[int, float]:
    """Worst peak of the real logs for each number of residual gradients."""
    constant = Constant(transients, "_RESIDUAL_GRADIENTS", (0, 2, 3, 4, 5, 6), lambda row: True, _peak)
    return dict(_tried(constant, _logs))


def _tried(constant: Constant, judged: Callable[[], list[float]]) -> Iterator[tuple[int, float]]:
    declared = getattr(constant.module, constant.name)
    try:
        for value in constant.values:
            setattr(constant.module, constant.name, value)
            ordered = sorted(judged())
            yield value, ordered[len(ordered) // 2]
    finally:
        setattr(constant.module, constant.name, declared)


def _logs() -> list[float]:
    folder = SHARED / "data/logs/real"
    found: list[float] = []
    for name, spec in json.loads((folder / "expected.json").read_text(encoding="utf-8")).items():
        if len(spec["rank_memory"]) >= LEAST_RANKS:
            said = surroundings_of_log(str(folder / name))
            have = {one["rank"]: one["max_allocated_bytes"] for one in spec["rank_memory"]}
            found += [abs(row.peak_allocated_bytes / have[row.rank or 0] - 1) for row in expect(said.args, microbatches=said.microbatches or 1)]
    return found


def main() -> None:
    """Print the median error at every value of every constant."""
    measured = rows()
    for constant in CONSTANTS:
        _show(constant.name, getattr(constant.module, constant.name), errors(constant, measured))
    _show("_RESIDUAL_GRADIENTS", transients._RESIDUAL_GRADIENTS, backward_errors())


def _show(name: str, declared: int, found: dict[int, float]) -> None:
    best = min(found, key=lambda value: found[value])
    print(f"{name:<20} declared {declared}, best {best}: " + ", ".join(f"{value} -> {error:.3%}" for value, error in found.items()))


if __name__ == "__main__":
    main()
