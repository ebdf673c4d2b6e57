"""Megatron-LM's printed memory formula, every generation: values, text, silence and errors, to the printed digit.

`report` answers what `report_theoretical_memory(args, num_microbatches, verbose)` of one generation would print for these
arguments. The generations are declared in `generations.py`; what they share stands once, here and in `parameters.py` and
`activation.py`. This is what the framework SAID, so that it can be proven which program spoke; what a run really
uses is another ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from analysis.theory.activation import Activation, with_sp, without_sp
from analysis.theory.arguments import Args
from analysis.theory.formula_arguments import FormulaArguments, formula_arguments
from analysis.theory.generations import BY_NAME, GENERATIONS, NEWEST, Generation
from analysis.theory.parameters import Crash, Parameters, count_parameters, weight_and_optimizer_bytes
from ingest.errors import LedgerError

Branch = Literal["silent", "weights_only", "sp_selective", "without_sp", "hybrid_unsupported", "raises"]
MIB = 2**20
HYBRID = "Theoretical memory footprints not yet supported for hybrid Mamba-Transformer models."
MARKERS: dict[str, Branch] = {"compute_activation_memory with SP": "sp_selective", "compute_activation_memory_without_sp": "without_sp"}


@dataclass(frozen=True, slots=True)
class Report:
    """What one generation prints for one set of arguments; a value is None where it prints none."""

    generation: str
    branch: Branch
    raises: str | None
    weight_and_optimizer_bytes: float | None
    activation_bytes: float | None
    total_bytes: float | None
    printed_text: str | None
    parameters: Parameters | None = None
    activation: Activation | None = None


def report(generation: Generation, a: FormulaArguments, microbatches: int | None, *, verbose: bool = True) -> Report:
    """Evaluate one generation. `microbatches` None is what the stand-alone tool passes: a full pipeline in flight."""
    if microbatches is not None and microbatches < 1:
        raise LedgerError(f"num_microbatches is {microbatches}; global_batch_size / (micro_batch_size x data_parallel_size), at least 1, would fit")
    branch = branch_of(generation, a)
    if branch == "silent":
        return _nothing(generation, branch, None, None)
    if branch == "raises":
        return _nothing(generation, branch, f"ValueError: {HYBRID}", None)
    if branch == "hybrid_unsupported":
        return _nothing(generation, branch, None, HYBRID + "\n")
    lines: list[str] = []
    try:
        counted = count_parameters(generation, a)
        lines += _parameter_lines(generation, a, counted) if verbose else []
        weights = weight_and_optimizer_bytes(generation, a, counted)
    except Crash as crash:
        return _nothing(generation, "raises", str(crash), _text(lines))
    if branch == "weights_only":
        lines.append(f"Theoretical memory footprints: weight and optimizer={weights / MIB:.2f} MB")
        return Report(generation.name, branch, None, weights, None, None, _text(lines), counted)
    activation = with_sp(generation, a, microbatches) if branch == "sp_selective" else without_sp(a, microbatches)
    lines += _activation_lines(generation, branch, activation, verbose)
    total = weights / MIB + activation.total_bytes / MIB
    lines += [f"Theoretical memory footprints: weight and optimizer={weights / MIB:.2f} MB, "
              f"activation={activation.total_bytes / MIB:.2f} MB, total={total:.2f} MB", ""]
    return Report(generation.name, branch, None, weights, activation.total_bytes, total * MIB, _text(lines), counted, activation)


def report_args(args: Args, microbatches: int | None, *, generation: str = NEWEST.name, verbose: bool = True) -> list[tuple[Report, dict[str, Any]]]:
    """Reports with the defaults that were filled in, for one generation by name or for `all`."""
    if generation != "all" and generation not in BY_NAME:
        raise LedgerError(f"generation is {generation!r}; all or one of {', '.join(BY_NAME)} would fit")
    known, filled = formula_arguments(args)
    chosen = GENERATIONS if generation == "all" else (BY_NAME[generation],)
    return [(report(one, known, microbatches, verbose=verbose), filled) for one in chosen]


def branch_of(generation: Generation, a: FormulaArguments) -> Branch:
    """The way a generation takes for these arguments."""
    if generation.hybrid != "ignored" and _is_hybrid(generation, a):
        return "raises" if generation.hybrid == "raises" else "hybrid_unsupported"
    return "sp_selective" if a.sequence_parallel and a.recompute_granularity == "selective" else generation.outside


def _is_hybrid(generation: Generation, a: FormulaArguments) -> bool:
    return a.hybrid_layer_pattern is not None if generation.hybrid_argument == "hybrid_layer_pattern" else a.is_hybrid_model


def _nothing(generation: Generation, branch: Branch, raises: str | None, text: str | None) -> Report:
    return Report(generation.name, branch, raises, None, None, None, text)


def _text(lines: list[str]) -> str | None:
    return "".join(f"{line}\n" for line in lines) or None


def _parameter_lines(generation: Generation, a: FormulaArguments, counted: Parameters) -> list[str]:
    lines = _count_lines(generation, a, counted)
    lines.append(f"Number of parameters in most loaded shard in billions: {counted.shard / 10**9:.4f}")
    if a.pipeline_model_parallel_size > 1:
        lines.append(f"Number of parameters in other shards in billions: {counted.others / 10**9:.4f}")
    return lines


def _count_lines(generation: Generation, a: FormulaArguments, counted: Parameters) -> list[str]:
    if not generation.split_counts:
        return [f"Number of parameters in billions: {counted.total / 10**9:.2f}"]
    what = "transformer block" if generation.by_block else "transformer layers"
    lines = [f"Number of parameters in {what} in billions: {counted.block / 10**9: .2f}"]
    if generation.active_counts:
        lines.append(f"Number of active parameters in {what} in billions: {counted.active_block / 10**9: .2f}")
    if generation.by_block and a.mtp_num_layers is not None:
        lines.append(f"Number of parameters in mtp block in billions: {counted.mtp / 10**9: .2f}")
    lines += [f"Number of parameters in embedding layers in billions: {counted.embedding / 10**9:.2f}",
              f"Total number of parameters in billions: {counted.total / 10**9:.2f}"]
    if generation.active_counts:
        lines.append(f"Total number of active parameters in billions: {counted.active_total / 10**9:.2f}")
    return lines


def _activation_lines(generation: Generation, branch: Branch, activation: Activation, verbose: bool) -> list[str]:
    """The marker stands in quiet mode too (G10 on); the rest only in verbose mode."""
    marker = [text for text, marked in MARKERS.items() if marked == branch and generation.outside == "without_sp"]
    if not verbose:
        return marker
    kind = "" if branch == "sp_selective" else " (precise, without SP)"
    lines = [*marker, f"Activation memory footprint per transformer layer{kind}: {activation.per_layer_bytes / MIB:.1f} MB"]
    if activation.penalty is not None:
        lines.append(f"Memory penalty from interleaved schedule: {activation.penalty:.2f}")
    if activation.in_flight is not None:
        lines.append(f"Number of in-flight microbatches: {activation.in_flight}")
    return lines
