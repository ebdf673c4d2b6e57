"""The printed formula stage by stage: its own bytes a parameter and a layer, on the layers that each stage really holds.

Megatron prints one shard, L/p layers with one embedding, which is no real stage when p > 1. Here the newest formula's count goes to the stage
that holds the layer, the embedding, the MTP block and the output weight, and its layer's activation is multiplied by what is in flight there.
Nothing the formula leaves out is added: this is still the printed theory, placed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analysis.theory.activation import OVERHEAD
from analysis.theory.arguments import Args, native_args, whole
from analysis.theory.formula_arguments import FormulaArguments, formula_arguments
from analysis.theory.generations import NEWEST, Generation
from analysis.theory.inflight import heaviest_mix, schedule
from analysis.theory.megatron import report
from analysis.theory.parameters import bytes_per_parameter, layer_kinds, layer_shard
from analysis.theory.stages import StageLayout, stage_layout


@dataclass(frozen=True, slots=True)
class StageTheory:
    """One stage: what it holds, parameters of a rank, layers of activation alive at its peak; bytes by the formula's own factors."""

    stage: int
    layers: int
    moe_layers: int
    mtp_layers: int
    embedding: bool
    head: bool
    alive_layers: float
    parameters: int
    weight_and_optimizer_bytes: int
    activation_bytes: int
    total_bytes: int


def stage_theory(args: Args, *, microbatches: int | None = None, generation: Generation = NEWEST) -> list[StageTheory]:
    """Every stage in order; experts are always on their own shards. Raises LedgerError where the arguments do not lay the stages out."""
    native = native_args(args)
    a, _ = formula_arguments(native)
    layout = stage_layout({**native, "num_layers": a.num_layers})
    return [_stage(native, a, layout, stage, microbatches or layout.pp, generation) for stage in range(layout.pp)]


def _stage(args: Args, a: FormulaArguments, layout: StageLayout, stage: int, microbatches: int, generation: Generation) -> StageTheory:
    cells = layout.of_stage(stage)
    pattern = layer_kinds(a)
    kinds = [kind for cell in cells for kind in pattern[cell.first_layer:cell.first_layer + cell.layers]]
    mtp = sum(cell.mtp for cell in cells)
    shards = [layer_shard(NEWEST, a, moe=bool(kind)) for kind in (*kinds, *[pattern[-1]] * mtp)]
    vocabulary = a.hidden_size * a.padded_vocab_size / a.tensor_model_parallel_size
    copies = sum(cell.embedding + cell.embedding_copy + cell.output_weight for cell in cells)
    norm = a.hidden_size * (1 if a.normalization == "RMSNorm" else 2) if any(cell.final_norm for cell in cells) else 0
    dense, expert = sum(one for one, _ in shards) + copies * vocabulary + norm, sum(one for _, one in shards)
    expert_dp = max(a.world_size // (a.expert_tensor_parallel_size * a.expert_model_parallel_size * a.pipeline_model_parallel_size), 1)
    weights = dense * bytes_per_parameter(a, a.data_parallel_size) + expert * bytes_per_parameter(a, expert_dp)
    alive = _alive(args, layout, stage, microbatches)
    activation = alive * _layer_bytes(a, generation)
    return StageTheory(stage, len(kinds), sum(kinds), mtp, any(cell.embedding for cell in cells), any(cell.loss for cell in cells), alive,
                       round(dense + expert), round(weights), round(activation), round(weights) + round(activation))


def _alive(args: Args, layout: StageLayout, stage: int, microbatches: int) -> float:
    """Layers of activation alive at the stage's peak: chunks of the schedule by their layers."""
    group = whole(args, "microbatch_group_size_per_vp_stage", layout.pp)
    plan = schedule(layout.pp, layout.chunks, min(microbatches, 4 * max(group, layout.pp)), group)
    return heaviest_mix(plan, stage, [float(cell.layers) for cell in layout.of_stage(stage)])[0]


def _layer_bytes(a: FormulaArguments, generation: Generation) -> float:
    """The formula's activation of one layer and micro-batch, its 5 % included; what the branch without activation would say with SP."""
    said = report(generation, a, None, verbose=False)
    if said.activation is None:
        said = report(generation, replace(a, sequence_parallel=True, recompute_granularity="selective"), None, verbose=False)
    each = said.activation.per_layer_bytes if said.activation else 0.0
    return each * OVERHEAD if said.branch == "without_sp" else each
