"""Does the head explain what the last stage holds above its neighbour: output weight with its optimizer state, logits, loss.

surplus = measured(last) - [measured(neighbour) - expected(neighbour) + expected(last without head)]: only differences between the two stages are
expected here (layers, micro-batches in flight, MTP, the first stage's embedding), so whatever both hold alike cancels. Each
difference is a range; the verdict is about intervals. Where the log prints parameters by stage, weights come from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.theory.arguments import Args, native_args, whole
from analysis.theory.formula_arguments import FormulaArguments, formula_arguments
from analysis.theory.generations import NEWEST
from analysis.theory.logits import Head, Part, Verdict, compare, head
from analysis.theory.parameters import layer_kinds, layer_shard
from analysis.theory.resident import resident_bytes
from analysis.theory.saved import layer_saved, stage_saved, tokens
from analysis.theory.stages import StageLayout, stage_layout
from ingest.errors import LedgerError

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Measured:
    """One stage as measured: peaks of its ranks from the emptiest to the fullest, what stays allocated after a step, parameters as printed."""

    stage: int
    peak_low_bytes: int
    peak_high_bytes: int
    allocated_bytes: int | None = None
    parameters: int | None = None


@dataclass(frozen=True, slots=True)
class LastStage:
    """The verdict, what was predicted (range with parts) and what was measured; null where it is not known. `surplus` is the head's share of
    the measured difference: over the neighbour's ledger. `steady` compares what stays allocated after a step with the weights alone."""

    verdict: Verdict
    reason: str
    stage: int | None = None
    neighbour_stage: int | None = None
    implementations: tuple[str, ...] = ()
    te_version: str | None = None
    predicted_saved_low_bytes: int | None = None
    predicted_saved_high_bytes: int | None = None
    predicted_peak_low_bytes: int | None = None
    predicted_peak_high_bytes: int | None = None
    predicted_with_weight_low_bytes: int | None = None
    predicted_with_weight_high_bytes: int | None = None
    measured_last_bytes: int | None = None
    measured_neighbour_bytes: int | None = None
    difference_bytes: int | None = None
    surplus_low_bytes: int | None = None
    surplus_high_bytes: int | None = None
    steady_difference_bytes: int | None = None
    steady_low_bytes: int | None = None
    steady_high_bytes: int | None = None
    parts: tuple[Part, ...] = ()
    assumptions: tuple[str, ...] = ()


def last_stage(args: Args, stages: Sequence[Measured], *, microbatches: int | None = None, te_version: str | None = None) -> LastStage:
    """Predict the head of the last stage and judge its measured surplus over the nearest stage before it that was measured."""
    args = native_args(args)
    try:
        a, _ = formula_arguments(args)
        layout = stage_layout({**args, "num_layers": a.num_layers})
        predicted = head({**args, "padded_vocab_size": a.padded_vocab_size}, te_version=te_version, microbatches=microbatches)
    except LedgerError as error:
        return _unsized(args, stages, f"the head's size is not in the artifacts: {error.what}")
    answer = LastStage("not_measurable", "", layout.pp - 1, None, predicted.implementations, te_version, predicted.saved_low_bytes,
                       predicted.saved_high_bytes, predicted.peak_low_bytes, predicted.peak_high_bytes, parts=predicted.parts,
                       assumptions=predicted.assumptions)
    last = next((one for one in stages if one.stage == layout.pp - 1), None)
    before = [one for one in stages if one.stage < layout.pp - 1]
    neighbour = max(before, key=lambda one: one.stage) if before else None
    if layout.pp == 1 or last is None or neighbour is None:
        return replace(answer, reason=_missing(layout.pp, last, neighbour))
    try:
        return _judged(answer, predicted, args, a, layout, last, neighbour, microbatches)
    except LedgerError as error:
        return replace(answer, neighbour_stage=neighbour.stage, reason=error.what)


def _unsized(args: Args, stages: Sequence[Measured], reason: str) -> LastStage:
    """No prediction; the measured difference still, where the number of stages is known."""
    try:
        pp = whole(args, "pipeline_model_parallel_size")
    except LedgerError:
        return LastStage("not_measurable", reason)
    known = {one.stage: one for one in stages}
    last, neighbour = known.get(pp - 1), known.get(pp - 2)
    if last is None or neighbour is None:
        return LastStage("not_measurable", reason, pp - 1)
    difference = last.peak_high_bytes - neighbour.peak_high_bytes
    return LastStage("not_measurable", f"{reason}; the last stage's peak is {difference / GIB:+.2f} GiB over stage {pp - 2}'s", pp - 1, pp - 2,
                     measured_last_bytes=last.peak_high_bytes, measured_neighbour_bytes=neighbour.peak_high_bytes, difference_bytes=difference)


def _missing(pp: int, last: Measured | None, neighbour: Measured | None) -> str:
    if pp == 1:
        return "PP is 1: the last stage has no neighbour, and the printed formula counts the output layer"
    gone = [f"the {name}'s peak" for name, one in ((f"last stage ({pp - 1})", last), ("neighbouring stage", neighbour)) if one is None]
    return f"{' and '.join(gone)} not in the artifacts"


def _judged(answer: LastStage, predicted: Head, args: Args, a: FormulaArguments, layout: StageLayout, last: Measured, neighbour: Measured,
            microbatches: int | None) -> LastStage:
    own, between = _weights(args, a, layout, last, neighbour)
    between = [*between, *_activations(args, a, layout, neighbour.stage, microbatches or layout.pp)]
    low, high = (predicted.peak_low_bytes + sum(part.low_bytes for part in own), predicted.peak_high_bytes + sum(part.high_bytes for part in own))
    stage_low, stage_high = sum(part.low_bytes for part in between), sum(part.high_bytes for part in between)
    surplus_low = last.peak_low_bytes - neighbour.peak_high_bytes - stage_high
    surplus_high = last.peak_high_bytes - neighbour.peak_low_bytes - stage_low
    middle, around = (surplus_low + surplus_high) // 2, -((surplus_low - surplus_high) // 2)
    surplus = compare(replace(predicted, peak_low_bytes=low, peak_high_bytes=high), measured_last_bytes=middle, measured_neighbour_bytes=0,
                      expected_last_without_head_bytes=0, expected_neighbour_bytes=0, stages=layout.pp, uncertainty_bytes=around)
    without = sum(part.low_bytes for part in own), sum(part.high_bytes for part in own)
    if around > high > 0:
        surplus = replace(surplus, verdict="not_measurable")
    told = (*answer.assumptions, *_told(args, a, layout, last, neighbour, microbatches))
    steady = _steady(args, last, neighbour, (*own, *between), predicted)
    return replace(
        answer, verdict=surplus.verdict, reason=_reason(surplus.verdict, (surplus_low, surplus_high), without, predicted, neighbour.stage),
        neighbour_stage=neighbour.stage, predicted_with_weight_low_bytes=low, predicted_with_weight_high_bytes=high,
        measured_last_bytes=last.peak_high_bytes, measured_neighbour_bytes=neighbour.peak_high_bytes,
        difference_bytes=last.peak_high_bytes - neighbour.peak_high_bytes, surplus_low_bytes=surplus_low, surplus_high_bytes=surplus_high,
        parts=(*own, *predicted.parts, *between), assumptions=told,
        steady_difference_bytes=steady[0], steady_low_bytes=steady[1], steady_high_bytes=steady[2])


def _weights(args: Args, a: FormulaArguments, layout: StageLayout, last: Measured, neighbour: Measured) -> tuple[list[Part], list[Part]]:
    """The head's own weights, and the other weights by which the stages differ."""
    one = a.hidden_size * a.padded_vocab_size // a.tensor_model_parallel_size
    cells = layout.of_stage(layout.pp - 1)
    own = [_resident("output_weight", one, args, "head")]
    own += [_resident("embedding_copy", one, args, "head")] if any(cell.embedding_copy for cell in cells) else []
    dense: float
    if last.parameters is not None and neighbour.parameters is not None:
        dense, expert = last.parameters - neighbour.parameters - one * len(own), 0.0
    else:
        dense, expert = _other_parameters(args, a, layout, neighbour.stage, one)
    return own, [part for part in (_resident("other_weights", dense, args, "stage"), _resident("other_experts", expert, args, "stage"))
                 if part.low_bytes or part.high_bytes]


def _resident(name: str, parameters: float, args: Args, of: Any) -> Part:
    ends = sorted(round(parameters * each) for each in resident_bytes(args, expert=name == "other_experts"))
    return Part(name, "resident", ends[0], ends[1], of)


def _other_parameters(args: Args, a: FormulaArguments, layout: StageLayout, neighbour: int, embedding: int) -> tuple[float, float]:
    """Parameters, experts apart, of the last stage less the neighbour's, the head's own left out; by the newest formula's count."""
    counted = []
    for stage in (layout.pp - 1, neighbour):
        pattern = [kind for cell in layout.of_stage(stage) for kind in layer_kinds(a)[cell.first_layer:cell.first_layer + cell.layers]]
        kinds = [*pattern, *[layer_kinds(a)[-1]] * sum(cell.mtp for cell in layout.of_stage(stage))]
        shards = [layer_shard(NEWEST, a, moe=bool(kind)) for kind in kinds]
        first = any(cell.embedding for cell in layout.of_stage(stage))
        positions = a.hidden_size * whole(args, "max_position_embeddings", 0, least=0) if _learned(args) else 0
        counted.append((sum(dense for dense, _ in shards) + (embedding + positions if first else 0), sum(expert for _, expert in shards)))
    return counted[0][0] - counted[1][0], counted[0][1] - counted[1][1]


def _learned(args: Args) -> bool:
    return args.get("position_embedding_type") in (None, "learned_absolute") and not args.get("use_rotary_position_embeddings")


def _activations(args: Args, a: FormulaArguments, layout: StageLayout, neighbour: int, microbatches: int) -> list[Part]:
    """Saved activations of the last stage less the neighbour's, MTP apart; the same layers are cheap or dear on both stages at once."""
    last, before = (stage_saved(args, a, layout, stage, microbatches) for stage in (layout.pp - 1, neighbour))
    ends = sorted(round(last[end] - before[end]) for end in (0, 1))
    parts = [Part("in_flight_activations", "saved", ends[0], ends[1], "stage")]
    if depth := sum(cell.mtp for cell in layout.of_stage(layout.pp - 1)):
        low, high = layer_saved(args, a, moe=bool(layer_kinds(a)[-1]))
        norms = 14 * a.hidden_size * tokens(a).norm
        alive = layout.pp if layout.chunks > 1 else 1
        parts.append(Part("mtp_activations", "saved", round(depth * (low + norms)), round(alive * depth * (high + norms)), "stage"))
    return parts


def _told(args: Args, a: FormulaArguments, layout: StageLayout, last: Measured, neighbour: Measured, microbatches: int | None) -> list[str]:
    said = [] if microbatches else ["micro-batches a step not known: a full pipeline in flight"]
    said += [f"stage {layout.pp - 2} was not measured; stage {neighbour.stage} stands for it"] if neighbour.stage != layout.pp - 2 else []
    counted = last.parameters is not None and neighbour.parameters is not None
    said.append("parameters of both stages as the log prints them" if counted else "parameters of both stages as the formula counts them")
    if a.num_experts:
        said.append("MoE layers with balanced routing")
    low, high = resident_bytes(args)
    said.append(f"{low:g} bytes a parameter resident" if low == high else
                f"{low:g} bytes a parameter resident, {high:g} while an fp32 copy of the gradients is kept")
    return said


def _steady(args: Args, last: Measured, neighbour: Measured, parts: Sequence[Part],
            predicted: Head) -> tuple[int, int, int] | tuple[None, None, None]:
    """What stays allocated after a step, measured and as a range: weights at the logged moment, and what persists."""
    if last.allocated_bytes is None or neighbour.allocated_bytes is None:
        return None, None, None
    persistent = [part for part in predicted.parts if part.when == "persistent"]
    ends = sorted(sum(part.high_bytes if part.high_bytes > 0 else part.low_bytes for part in parts if part.when == "resident")
                  + sum(getattr(part, end) for part in persistent) for end in ("low_bytes", "high_bytes"))
    return last.allocated_bytes - neighbour.allocated_bytes, ends[0], ends[1]


def _reason(verdict: Verdict, surplus: tuple[int, int], weight: tuple[int, int], predicted: Head, neighbour: int) -> str:
    logits = predicted.peak_low_bytes, predicted.peak_high_bytes
    head_of = (f"{_gib(*surplus)} over stage {neighbour}'s ledger; the output weight with its optimizer state is {_gib(*weight)}, "
               f"logits and loss {_gib(*logits)}")
    low, high = weight[0] + logits[0], weight[1] + logits[1]
    if verdict == "not_measurable":
        return f"{head_of}: what the two stages hold without the head is not known that closely"
    if verdict == "explained":
        wide = surplus[0] <= weight[1] and surplus[1] >= weight[0]
        return head_of + ("; the ranges overlap, but they would without logits too" if wide else ": the ranges overlap")
    gap = low - surplus[1] if surplus[1] < low else surplus[0] - high
    side = "short of" if surplus[1] < low else "above"
    return f"{head_of}: {gap / GIB:.2f} GiB {side} the predicted range"


def _gib(low: int, high: int) -> str:
    first, second = f"{low / GIB:.2f}", f"{high / GIB:.2f}"
    return f"{first} GiB" if first == second else f"{first} to {second} GiB"
