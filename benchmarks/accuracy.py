"""How near the expected ledger and Megatron's printed formula come to measured memory, by family; fits and judges the intervals.

    python benchmarks/accuracy.py [FILE]            the table
    python benchmarks/accuracy.py [FILE] --write    and analysis/expected/residuals.py and docs/accuracy.md with it

FILE is `data/measured/megatron_ci.jsonl.gz` of the shared data (default: there). Judged are rows with arguments, a printed formula and
nothing that keeps it from meaning something; measured is the last value that was logged, of the last rank. Intervals are judged by leaving
out each (arguments, environment variables) in turn, so no run's own residual, nor its twin's, helps to bound it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.expected.calibration import Bounds, bounds, kinds
from analysis.expected.expect import expect, last_rank, read_run

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("HBMLEDGER_SHARED", ROOT.parent / "shared"))
FEW = 30
"""Rows of a kind below which the extremes bound it instead of the quantiles."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One measured row beside its expectation, bytes."""

    family: str
    kind: tuple[str, str]
    twin: str
    steady: int
    measured_steady: float
    peak: int
    measured_peak: float
    formula: float
    stale: bool
    instant: str

    @property
    def steady_ratio(self) -> float:
        """Measured over expected, steady state."""
        return self.measured_steady / self.steady

    @property
    def peak_ratio(self) -> float:
        """Measured over expected, peak."""
        return self.measured_peak / self.peak


def read(path: Path) -> list[Judged]:
    """Every row that can be judged."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [judge(row) for row in rows if row["resolved_args"] and row["megatron_theory"] and not row["no_theory_reason"]]


def judge(row: dict[str, Any]) -> Judged:
    """One row's expectation beside what was measured."""
    args = row["resolved_args"] | row["args"] | {"world_size": row["world_size"]}
    asked: dict[str, Any] = {"microbatches": row["num_microbatches"], "env": row["env"], "container": row["environment"]}
    run = read_run(args, row["num_microbatches"], row["env"], None, row["environment"])
    found = expect(args, ranks=[last_rank(args)], **asked)[0]
    twin = json.dumps([row["args"], row["env"]], sort_keys=True)
    return Judged(
        _family(row["args"], row["resolved_args"]), kinds(run.model, run.options, run.sizes.pp), twin, found.steady_allocated_bytes,
        _last(row["allocated_bytes_by_iteration"]), found.peak_allocated_bytes, _last(row["max_allocated_bytes_by_iteration"]),
        row["megatron_theory"]["total_bytes"], row["golden_last_commit"][1] < row["yaml_last_commit"][1], found.peak_instant)


def _last(series: dict[str, float | None]) -> float:
    return [value for value in series.values() if value][-1]


def _family(args: dict[str, Any], resolved: dict[str, Any]) -> str:
    """What kind of model and run a row is, by its most unusual feature."""
    if args.get("use_megatron_fsdp"):
        return "fully sharded (FSDP)"
    if args.get("fp8_format"):
        return "fp8"
    if args.get("multi_latent_attention"):
        return "latent attention"
    local = ", local layers" if args.get("transformer_impl") == "local" else ""
    if args.get("num_experts"):
        return f"experts{local}"
    if resolved["context_parallel_size"] > 1:
        return "dense, context parallel"
    if resolved["virtual_pipeline_model_parallel_size"]:
        return "dense, virtual stages"
    return f"dense, PP {resolved['pipeline_model_parallel_size']}{local}"


def quantile(values: Iterable[float], share: float) -> float:
    """The order statistic that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def fitted(rows: Sequence[Judged], which: int) -> dict[str, Bounds]:
    """Bounds of every kind: quantiles of its residuals, or their extremes where there are few."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind[which]].append(row.peak_ratio if which else row.steady_ratio)
    return {kind: bounds(sorted(ratios), 0.9 if len(ratios) >= FEW else 1.0) for kind, ratios in sorted(by_kind.items())}


def coverage(rows: Sequence[Judged], which: int) -> float:
    """Share of rows inside bounds that were fitted without them and their twins."""
    twins: dict[str, list[Judged]] = defaultdict(list)
    for row in rows:
        twins[row.twin].append(row)
    inside = 0
    for twin, own in twins.items():
        others = fitted([row for row in rows if row.twin != twin], which)
        for row in own:
            low, high = others.get(row.kind[which], (-math.inf, math.inf))
            ratio = row.peak_ratio if which else row.steady_ratio
            inside += min(low, 0.0) <= ratio - 1 + 1e-9 and ratio - 1 <= max(high, 0.0) + 1e-9
    return inside / len(rows)


def table(rows: Sequence[Judged]) -> list[str]:
    """Errors by family as lines of a Markdown table."""
    families: dict[str, list[Judged]] = defaultdict(list)
    for row in rows:
        families[row.family].append(row)
    lines = ["| family | rows | steady median | steady p90 | peak median | peak p90 | Megatron's total, median | p90 |",
             "|---|---|---|---|---|---|---|---|"]
    for name, own in [*sorted(families.items()), ("all", list(rows))]:
        figures = [_percent(quantile([error(row) for row in own], share)) for error in (_steady, _peak, _formula) for share in (0.5, 0.9)]
        lines.append(f"| {name} | {len(own)} | {' | '.join(figures)} |")
    return lines


def _steady(row: Judged) -> float:
    return abs(row.steady / row.measured_steady - 1)


def _peak(row: Judged) -> float:
    return abs(row.peak / row.measured_peak - 1)


def _formula(row: Judged) -> float:
    return abs(row.formula / row.measured_peak - 1)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def residuals_module(rows: Sequence[Judged]) -> str:
    """The text of analysis/expected/residuals.py."""
    def listed(which: int) -> str:
        return ", ".join(f'"{kind}": ({low:.5f}, {high:.5f})' for kind, (low, high) in fitted(rows, which).items())

    return f'''"""How far measured runs lay from their expectation: 5 % and 95 % quantiles of measured / expected - 1, a kind of run.

Written by `benchmarks/accuracy.py --write` from {len(rows)} runs; kinds are those of `calibration.kinds`. Kinds with fewer than {FEW} runs
have their extremes instead.
"""

STEADY = {{{listed(0)}}}
PEAK = {{{listed(1)}}}
'''


def main() -> None:
    """Print the table; write what is generated from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=SHARED / "data/measured/megatron_ci.jsonl.gz")
    parser.add_argument("--write", action="store_true", help="write residuals.py and docs/accuracy.md")
    options = parser.parse_args()
    rows = read(options.file)
    print("\n".join(table(rows)))
    print(f"90 % interval, cross-validated: steady {coverage(rows, 0):.1%}, peak {coverage(rows, 1):.1%} inside")
    if options.write:
        (ROOT / "analysis/expected/residuals.py").write_text(residuals_module(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
