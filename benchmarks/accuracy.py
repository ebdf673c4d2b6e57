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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.expected.calibration import Bounds, bounds, kinds
from analysis.expected.expect import expect, last_rank, read_run
from cli.arguments_of_log import surroundings_of_log

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("HBMLEDGER_SHARED", ROOT.parent / "shared"))
LEAST_RANKS = 16
SHARE = 0.91
"""Share of residuals that bounds are fitted to hold: runs of one configuration share theirs, so a new configuration falls outside more often
than one run in ten of these."""
OTHER_KERNEL = 1.12
FAR = 0.05
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
    container: str
    tiny: bool

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
        row["megatron_theory"]["total_bytes"], row["golden_last_commit"][1] < row["yaml_last_commit"][1], found.peak_instant,
        row["environment"], (run.model.hidden, run.model.layers) == (512, 12))


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
    return {kind: bounds(sorted(ratios), SHARE if len(ratios) >= FEW else 1.0) for kind, ratios in sorted(by_kind.items())}


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
        return "".join(f'    "{kind}": ({low:.5f}, {high:.5f}),\n' for kind, (low, high) in fitted(rows, which).items())

    return f'''"""How far measured runs lay from their expectation: bounds of measured / expected - 1, a kind of run.

Written by `benchmarks/accuracy.py --write` from {len(rows)} runs; kinds are those of `calibration.kinds`. Kinds with fewer than {FEW} runs
have their extremes instead.
"""

STEADY = {{
{listed(0)}}}
PEAK = {{
{listed(1)}}}
'''


def logs(shared: Path) -> list[str]:
    """Worst errors on every rank of the real multi-stage logs, as lines of a Markdown table."""
    folder = shared / "data/logs/real"
    spec = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    lines = ["| log | ranks | parameters off | steady, worst rank | peak, worst rank | first and last stage over the middle, off by |",
             "|---|---|---|---|---|---|"]
    for name, one in spec.items():
        if len(one["rank_memory"]) >= LEAST_RANKS:
            lines.append(_log_line(str(folder / name), one))
    return lines


def _log_line(path: str, spec: dict[str, Any]) -> str:
    said = surroundings_of_log(path)
    rows = expect(said.args, microbatches=said.microbatches or 1, env=said.environment, gpu=said.gpu, steps=said.steps)
    have = {one["rank"]: one for one in spec["rank_memory"]}
    steady = max(abs(row.steady_allocated_bytes / have[row.rank or 0]["allocated_bytes"] - 1) for row in rows)
    peak = max(abs(row.peak_allocated_bytes / have[row.rank or 0]["max_allocated_bytes"] - 1) for row in rows)
    stages = {row.pp: row.parameters for row in rows}
    wrong = sum(stages[pp] != count for _, pp, count in spec["parameter_counts"])
    middle = len(rows) // 2
    surplus = max(abs((rows[edge].steady_allocated_bytes - rows[middle].steady_allocated_bytes)
                      / (have[edge]["allocated_bytes"] - have[middle]["allocated_bytes"]) - 1) for edge in (0, len(rows) - 1))
    sizes = f"TP {said.args['tensor_model_parallel_size']}, PP {said.args['pipeline_model_parallel_size']}, {said.microbatches} micro-batches"
    counted = len(spec["parameter_counts"])
    return f"| {sizes} | {len(rows)} | {wrong} of {counted} shards | {_percent(steady)} | {_percent(peak)} | {_percent(surplus)} |"


_DOCUMENT = """# How near the expected ledger comes

Generated by `python benchmarks/accuracy.py --write` from {runs} measured public runs and {logs} real logs; do not edit. The method is in
[methods/expected.md](methods/expected.md). Error = |expected / measured - 1|. Measured is what the last rank logged last: allocated after
the optimizer step (steady), and the largest allocated since the start (peak). Megatron's total is its printed formula's, against the peak.

## By family

{table}

Where the peak was expected: {instants}.

## Intervals

The 90 % interval holds {steady_inside:.1%} of steady states and {peak_inside:.1%} of peaks, each judged by bounds fitted without its own
(arguments, environment variables). Measured may lie below and above the expected value by:

| of | kind of run | low | high |
|---|---|---|---|
{bounds}

Kinds with fewer than {few} runs have their extremes. An option without a price doubles the bounds, an unknown GPU adds 64 MiB
either way, and a peak elsewhere than at the loss has at least 5 % either way.

## Every rank of real logs

{real}

## Where it misses, and why

* **Another attention kernel.** {other_kernel} runs peaked more than 12 % above the expectation where the kernel was left to Transformer
  Engine: older releases had no deterministic fused kernel with dropout and kept the scores. Nothing in their arguments or their
  environment's name tells them from runs with the newer release.
* **Routing.** Expert runs are expected balanced; in their first steps they are not. Measured twice with the same arguments in the same
  environment, expert runs' peaks differed by up to {expert_spread} (dense runs', with the kernel asked for, by {dense_spread}).
* **Arguments that may postdate the measurement.** {stale} runs were measured before their arguments last changed (steady median
  {stale_steady}, peak {stale_peak}), {fresh} after (steady {fresh_steady}, peak {fresh_peak}).
* **Switches that the recorded arguments leave out.** Two runs of latent attention peaked at half of the expectation: their test of Megatron-LM
  sets `fine_grained_activation_offloading` with seven modules, and the arguments recorded here do not have it. With it they lie 15 to 17 %
  above.
* **CUDA graphs.** Captured modules keep their tensors in a pool of their own, which has no term here: the fp8 family's steady state is
  too low by it.
* **Leftovers.** In some pipeline runs labels, loss mask and attention mask of every micro-batch of the step are still alive when memory is
  logged (the surplus is a whole multiple of them, by the number of micro-batches); nothing in the arguments tells which. Blocks whose rest
  was too small to be split are booked whole. In models of 500 MiB this is the whole error of the steady state.

{far} of {runs} runs are off by more than 5 % at the peak.

## What these data cannot judge

* {tiny} of the measured models are tiny (hidden size 512, 12 layers); workspaces and rounding weigh a hundred times more than in a large model.
* They show the last rank only, whose peak is the loss: first-stage activations and in-flight counts are judged by the real logs alone.
* None uses full recomputation, and all are on one node; full recomputation is judged by the real logs, which are of old releases in fp16.
* No run offloads activations or the optimizer, uses the precision-aware optimizer, torch FSDP2 or Mamba layers: there only the terms
  derived from the sources stand.
* One constant was fitted on logs: the second set of gradients that data-parallel wrappers without contiguous buffers hold in backward.
"""


def document(rows: Sequence[Judged], real: Sequence[str]) -> str:
    """The text of docs/accuracy.md."""
    stale, fresh = [row for row in rows if row.stale], [row for row in rows if not row.stale]
    limits = [f"| {name} | {kind} | {100 * low:+.2f} % | {100 * high:+.2f} % |" for name, which in (("steady", 0), ("peak", 1))
              for kind, (low, high) in fitted(rows, which).items()]
    return _DOCUMENT.format(
        runs=len(rows), logs=len(real) - 2, table="\n".join(table(rows)), real="\n".join(real), few=FEW, bounds="\n".join(limits),
        instants=", ".join(f"{name} {count}" for name, count in Counter(row.instant for row in rows).most_common()),
        steady_inside=coverage(rows, 0), peak_inside=coverage(rows, 1), far=sum(_peak(row) > FAR for row in rows),
        other_kernel=sum(row.kind[1] in ("kernel_chosen", "experts") and row.peak_ratio > OTHER_KERNEL for row in rows),
        expert_spread=_percent(spread(rows, "experts")), dense_spread=_percent(spread(rows, "kernel_asked")), tiny=sum(row.tiny for row in rows),
        stale=len(stale), fresh=len(fresh), stale_steady=_median(_steady, stale), stale_peak=_median(_peak, stale),
        fresh_steady=_median(_steady, fresh), fresh_peak=_median(_peak, fresh))


def spread(rows: Iterable[Judged], kind: str) -> float:
    """The largest relative difference of peaks of the same arguments, variables and environment."""
    same: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.kind[1] == kind:
            same[row.twin, row.container].append(row.measured_peak)
    return max(max(peaks) / min(peaks) - 1 for peaks in same.values())


def _median(error: Callable[[Judged], float], rows: Sequence[Judged]) -> str:
    return _percent(quantile(map(error, rows), 0.5))


def main() -> None:
    """Print the table; write what is generated from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=SHARED / "data/measured/megatron_ci.jsonl.gz")
    parser.add_argument("--write", action="store_true", help="write residuals.py and docs/accuracy.md")
    options = parser.parse_args()
    rows = read(options.file)
    print("\n".join(table(rows)))
    print(f"90 % interval, cross-validated: steady {coverage(rows, 0):.1%}, peak {coverage(rows, 1):.1%} inside")
    real = logs(SHARED)
    print("\n".join(real))
    if options.write:
        (ROOT / "docs/accuracy.md").write_text(document(rows, real), encoding="utf-8")
        (ROOT / "analysis/expected/residuals.py").write_text(residuals_module(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
