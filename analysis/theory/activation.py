"""The two activation formulas that Megatron prints, term by term.

Source: `compute_activation_memory` (sequence parallelism with selective recomputation; Table 2 of arXiv 2205.05198) and
`compute_activation_memory_without_sp` (G10 on). They differ in what is divided by TP, in the place of the output term and
in a factor of 1.05, so the same run reads tens of percent apart in the two. The arithmetic keeps Megatron's order of
operations; the terms are what the total is made of once every factor is applied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.theory.formula_arguments import FormulaArguments
from analysis.theory.generations import Generation

OVERHEAD = 1.05


@dataclass(frozen=True, slots=True)
class Activation:
    """Bytes on the first stage: `per_layer` as its line prints it, the schedule's penalty and micro-batches in flight, and the terms."""

    per_layer_bytes: float
    penalty: float | None
    in_flight: int | None
    terms: tuple[tuple[str, float], ...]
    total_bytes: float


def with_sp(generation: Generation, a: FormulaArguments, microbatches: int | None) -> Activation:
    """Sequence parallelism and selective recomputation: everything divided by TP at the end."""
    tp, tokens = a.tensor_model_parallel_size, a.seq_length * a.micro_batch_size
    ratio = 34 if not generation.ffn else 18 + 4 * (a.ffn_hidden_size / a.hidden_size)
    layer = tokens * a.hidden_size * ratio
    embedding = _embedding(a)
    penalty, in_flight, factor = _schedule(a, microbatches)
    total = (layer * a.num_layers + embedding[0] + embedding[1]) * factor
    output = 0.0
    if a.pipeline_model_parallel_size == 1:
        output = tokens * a.hidden_size * 4 * (1 + a.padded_vocab_size / a.hidden_size)
        total += output
    terms = _terms(layer * a.num_layers * factor / tp, [part * factor / tp for part in embedding], output / tp, 0.0)
    return Activation(layer / tp, penalty, in_flight, terms, total / tp)


def without_sp(a: FormulaArguments, microbatches: int | None) -> Activation:
    """No sequence parallelism: 10 of the 34 bytes stay whole, nothing is recomputed, and 5 % are added."""
    tp, tokens = a.tensor_model_parallel_size, a.seq_length * a.micro_batch_size
    layer = tokens * a.hidden_size * (10 + 24 / tp)
    embedding = _embedding(a)
    penalty, in_flight, factor = _schedule(a, microbatches)
    total = (layer * a.num_layers + embedding[0] + embedding[1]) * factor
    output = 0.0
    if a.pipeline_model_parallel_size == 1:
        output = (tokens * a.padded_vocab_size / tp + tokens * a.hidden_size) * 2
        total += output
    terms = _terms(layer * a.num_layers * factor, [part * factor for part in embedding], output, total * (OVERHEAD - 1))
    return Activation(layer, penalty, in_flight, terms, total * OVERHEAD)


def recomputed_layer_bytes(tokens: int, hidden: int) -> int:
    """What full recomputation keeps of one layer and micro-batch: its input in bf16, `tokens` of this rank."""
    return 2 * tokens * hidden


def _embedding(a: FormulaArguments) -> tuple[int, int]:
    """Input ids (8 bytes a token) and the embedding's dropout mask, a pipeline of micro-batches of each."""
    flight = a.seq_length * a.micro_batch_size * a.pipeline_model_parallel_size
    return 8 * flight, flight * a.hidden_size


def _schedule(a: FormulaArguments, microbatches: int | None) -> tuple[float | None, int | None, float]:
    """Penalty of interleaving, the micro-batches in flight as printed, and the factor on the activation of one pipeline of micro-batches."""
    pp, vpp = a.pipeline_model_parallel_size, a.virtual_pipeline_model_parallel_size
    if vpp is not None:
        penalty = 1 + (pp - 1) / (pp * vpp)
        return penalty, math.ceil(penalty * pp), penalty
    if pp == 1:
        return None, None, 1
    if microbatches is None:
        return None, pp, 1
    return None, min(microbatches, pp), min(1, microbatches / pp)


def _terms(layers: float, embedding: list[float], output: float, overhead: float) -> tuple[tuple[str, float], ...]:
    named = {"layers": layers, "input_ids": embedding[0], "embedding_dropout": embedding[1], "output_and_loss": output, "overhead": overhead}
    return tuple((name, value) for name, value in named.items() if value)
