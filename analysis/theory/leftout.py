"""What the printed formula left out, or counted wrongly, for this very run: one entry each, in bytes, ranked.

`bytes` is real minus printed on the stage it speaks of: positive where the run needs more than the formula says, negative
where the formula says too much. The byte factors are those of Megatron-Core and Transformer Engine as of 2026-08-22; in-flight factors are
the formula's own, so that an entry can be set beside the printed number. An entry is an estimate of one effect alone: entries
overlap and are not meant to be added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from analysis.theory.activation import recomputed_layer_bytes, with_sp
from analysis.theory.arguments import Args, fraction, native_args, whole
from analysis.theory.formula_arguments import FormulaArguments
from analysis.theory.generations import NEWEST, Generation
from analysis.theory.inflight import heaviest_mix, schedule
from analysis.theory.logits import head
from analysis.theory.megatron import Report
from analysis.theory.parameters import bytes_per_parameter, count_parameters, moe_pattern, weight_and_optimizer_bytes
from analysis.theory.resident import half_gradients, optimizer_width
from analysis.theory.stages import StageLayout, stage_layout
from ingest.errors import LedgerError


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One effect: its name, real minus printed bytes, the stage it is on, and one sentence."""

    name: str
    bytes: int
    stage: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Said:
    """A printed report with what it was printed for; `args` has every argument given, native."""

    generation: Generation
    report: Report
    a: FormulaArguments
    args: Args
    microbatches: int | None

    @property
    def factor(self) -> float:
        """The formula's factor on all layers' activation: micro-batches in flight over stages."""
        if self.a.virtual_pipeline_model_parallel_size is not None:
            return self.report.activation.penalty or 1.0 if self.report.activation else 1.0
        return 1.0 if self.microbatches is None else min(1.0, self.microbatches / self.a.pipeline_model_parallel_size)

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch, undivided."""
        return self.a.seq_length * self.a.micro_batch_size

    @property
    def shard(self) -> float:
        """Parameters of the most loaded shard."""
        return self.report.parameters.shard if self.report.parameters else 0.0

    @property
    def dense_optimizer(self) -> float:
        """Parameters, experts aside, whose optimizer state is on this rank."""
        counted = self.report.parameters
        return (counted.tensor + counted.replicated) / (self.a.data_parallel_size if self.a.use_distributed_optimizer else 1) if counted else 0.0

    @property
    def optimizer(self) -> float:
        """All parameters whose optimizer state is on this rank; experts have a data-parallel size of their own."""
        a, experts = self.a, self.report.parameters.expert if self.report.parameters else 0.0
        expert_dp = a.world_size // (a.expert_tensor_parallel_size * a.expert_model_parallel_size * a.pipeline_model_parallel_size)
        return self.dense_optimizer + experts / (max(expert_dp, 1) if a.use_distributed_optimizer else 1)

    @property
    def moe_layers(self) -> int:
        """MoE layers of the model."""
        return sum(moe_pattern(self.a))


def left_out(said: Said) -> list[LeftOut]:
    """Every effect that is not zero, the largest first. A report that printed no number leaves everything out and ranks nothing."""
    if said.report.weight_and_optimizer_bytes is None:
        return []
    found: list[LeftOut] = []
    for effect in EFFECTS:
        try:
            found += [entry for entry in effect(said) if entry.bytes]
        except LedgerError:
            continue  # arguments that contradict each other are reported as contradictions; the other effects still count
    return sorted(found, key=lambda entry: -abs(entry.bytes))


def _activation(said: Said) -> Iterator[LeftOut]:
    if said.report.branch == "weights_only":
        missing = with_sp(said.generation, said.a, said.microbatches).total_bytes
        yield LeftOut("activation", round(missing), "first", "the short line has no activation at all; the formula with SP would have added this")


def _logits(said: Said) -> Iterator[LeftOut]:
    if said.a.pipeline_model_parallel_size > 1:
        predicted = head({**said.args, "padded_vocab_size": said.a.padded_vocab_size}, microbatches=said.microbatches)
        yield LeftOut("logits_and_loss", predicted.peak_high_bytes, "last",
                      f"logits and loss are counted only when PP is 1; they peak at up to this ({' or '.join(predicted.implementations)})")
    elif said.report.branch == "without_sp":
        fp32 = 2 * said.tokens * said.a.padded_vocab_size // said.a.tensor_model_parallel_size
        yield LeftOut("fp32_logits", fp32, "last", "logits are counted at 2 bytes; the loss keeps them in fp32")


def _moe(said: Said) -> Iterator[LeftOut]:
    a = said.a
    if not said.report.activation or not said.moe_layers or a.recompute_granularity == "full":
        return
    gates = 2 if a.swiglu else 1
    local = said.tokens // (a.tensor_model_parallel_size if a.sequence_parallel else 1)
    routed = a.moe_router_topk * local * a.expert_tensor_parallel_size
    width = a.moe_latent_size or a.hidden_size
    experts = routed * (2 * width + (2 * gates + 2) * a.moe_ffn_hidden_size // a.expert_tensor_parallel_size)
    shared = (2 * gates + 2) * a.moe_shared_expert_intermediate_size * said.tokens // a.tensor_model_parallel_size
    kept = 0 if "moe" in str(said.args.get("recompute_modules")).replace("'", " ").split() else experts + shared
    more = kept - _counted_mlp(said)
    yield LeftOut("moe_activation", round(more * said.moe_layers * said.factor), "first",
                  f"{said.moe_layers} MoE layers are counted as dense ones; balanced routing to {a.moe_router_topk} experts keeps this more")


def _context_parallel(said: Said) -> Iterator[LeftOut]:
    c = said.a.context_parallel_size
    if c == 1:
        return
    if said.report.activation_bytes:
        yield LeftOut("context_parallel_activation", -round(said.report.activation_bytes * (1 - 1 / c)), "first",
                      f"the sequence is never divided by context parallelism, {c} here")
    if said.a.use_distributed_optimizer:
        saved = said.dense_optimizer * 12 * (1 - 1 / c)
        yield LeftOut("context_parallel_optimizer", -round(saved), "first", f"the optimizer is sharded over DP x CP, {c} times finer than counted")


def _optimizer_instances(said: Said) -> Iterator[LeftOut]:
    instances = whole(said.args, "num_distributed_optimizer_instances", 1)
    if instances > 1 and said.a.use_distributed_optimizer:
        more = said.optimizer * 12 * (instances - 1)
        yield LeftOut("optimizer_instances", round(more), "first", f"{instances} optimizer instances shard the state {instances} times coarser")


def _full_recompute(said: Said) -> Iterator[LeftOut]:
    a, activation = said.a, said.report.activation
    if a.recompute_granularity != "full" or not activation:
        return
    kept = recomputed_layer_bytes(said.tokens // (a.tensor_model_parallel_size if a.sequence_parallel else 1), a.hidden_size)
    every = whole(said.args, "recompute_num_layers", 1) if said.args.get("recompute_method") == "uniform" else 1
    layers = _layers_term(said)
    yield LeftOut("full_recompute", round(kept / every * a.num_layers * said.factor - layers), "first",
                  f"full recomputation keeps 2 h a token and {every} layer(s) of each; the formula counts every layer as if nothing were recomputed")


def _sequence_parallel(said: Said) -> Iterator[LeftOut]:
    a = said.a
    if said.report.branch == "without_sp" and a.sequence_parallel and a.recompute_granularity != "full":
        whole = 10 * said.tokens * a.hidden_size * a.num_layers * said.factor
        yield LeftOut("sequence_parallel_ignored", -round(whole * (1 - 1 / a.tensor_model_parallel_size)), "first",
                      "norms and residuals are sharded by sequence parallelism, but this branch counts them whole")


def _ffn_width(said: Said) -> Iterator[LeftOut]:
    a, dense = said.a, said.a.num_layers - said.moe_layers
    if not said.report.activation or not dense or a.recompute_granularity == "full":
        return
    real = (6 if a.swiglu else 4) * a.ffn_hidden_size * said.tokens / a.tensor_model_parallel_size
    counted = "4 h, ungated" if said.report.branch == "without_sp" or not said.generation.ffn else f"{a.ffn_hidden_size}, ungated"
    yield LeftOut("ffn_width", round((real - _counted_mlp(said)) * dense * said.factor), "first",
                  f"the MLP is counted {counted}; it is {a.ffn_hidden_size} wide{' with a gate' if a.swiglu else ''}")


def _experts(said: Said) -> Iterator[LeftOut]:
    if said.generation.expert_shards or not said.moe_layers or said.report.weight_and_optimizer_bytes is None:
        return
    real = weight_and_optimizer_bytes(NEWEST, said.a, count_parameters(NEWEST, said.a))
    yield LeftOut("expert_parallel", round(real - said.report.weight_and_optimizer_bytes), "first",
                  f"experts are not divided by EP {said.a.expert_model_parallel_size} before G14; this is G15's count less what was printed")


def _dtypes(said: Said) -> Iterator[LeftOut]:
    args = said.args
    if half_gradients(args):
        yield LeftOut("gradient_dtype", -round(2 * said.shard), "first", "gradients are kept in bf16, counted in fp32")
    if args.get("use_precision_aware_optimizer"):
        real = optimizer_width(args)
        yield LeftOut("optimizer_dtypes", round((real - 12) * said.optimizer), "first",
                      f"the precision-aware optimizer keeps {real} bytes a parameter, not 12")


def _offload(said: Said) -> Iterator[LeftOut]:
    if said.args.get("optimizer_cpu_offload"):
        share = fraction(said.args, "optimizer_offload_fraction", 1.0)
        yield LeftOut("optimizer_offload", -round(12 * share * said.optimizer), "first", f"{share:.0%} of the optimizer state is on the host")


def _fp8(said: Said) -> Iterator[LeftOut]:
    if not said.args.get("fp8"):
        return
    embedding = said.a.hidden_size * said.a.padded_vocab_size / said.a.tensor_model_parallel_size
    gathered = bool(said.args.get("fp8_param_gather"))
    yield LeftOut("fp8", round((0 if gathered else 2) * (said.shard - embedding)), "first",
                  "beside the bf16 weights the linear layers keep an fp8 copy and its transpose")


def _mtp(said: Said) -> Iterator[LeftOut]:
    if said.a.mtp_num_layers and said.a.pipeline_model_parallel_size > 1 and said.report.parameters:
        without = replace(said.a, mtp_num_layers=None)
        less = weight_and_optimizer_bytes(said.generation, without, count_parameters(said.generation, without))
        yield LeftOut("mtp_placement", round(less - (said.report.weight_and_optimizer_bytes or 0)), "first",
                      "the MTP block stands on the last stage, not beside the embedding; the last stage holds it and a copy of the embedding")


def _uneven(said: Said) -> Iterator[LeftOut]:
    """The fullest stage against the formula: L / p layers, and its own count in flight."""
    layout = stage_layout({**said.args, "num_layers": said.a.num_layers})
    if layout.even or layout.pp == 1:
        return
    even = said.a.num_layers / layout.pp
    if said.report.parameters:
        each = said.report.parameters.others / even * bytes_per_parameter(said.a, said.a.data_parallel_size)
        most = max(layout.layers_of_stage(stage) for stage in range(layout.pp))
        yield LeftOut("uneven_stages_weights", round((most - even) * each), "fullest", f"a stage holds {most} layers, the formula counts {even:g}")
    if said.report.activation:
        yield _uneven_activation(said, layout)


def _uneven_activation(said: Said, layout: StageLayout) -> LeftOut:
    """The schedule is walked with the layers of each chunk; four groups of micro-batches reach its steady state."""
    group = whole(said.args, "microbatch_group_size_per_vp_stage", layout.pp)
    plan = schedule(layout.pp, layout.chunks, min(said.microbatches or group, 4 * group), group)
    alive = max(heaviest_mix(plan, stage, [cell.layers for cell in layout.of_stage(stage)])[0] for stage in range(layout.pp))
    each = _layers_term(said) / (said.a.num_layers * said.factor)
    return LeftOut("uneven_stages_activation", round(each * (alive - said.a.num_layers * said.factor)), "fullest",
                   f"{alive:g} layers of activation are alive on the fullest stage, the formula counts {said.a.num_layers * said.factor:g}")


def _five_percent(said: Said) -> Iterator[LeftOut]:
    overhead = dict(said.report.activation.terms).get("overhead") if said.report.activation else None
    if overhead:
        yield LeftOut("five_percent", -round(overhead), "first", "this branch adds 5 % for temporaries that no tensor stands for")


EFFECTS: tuple[Callable[[Said], Iterator[LeftOut]], ...] = (
    _activation, _logits, _moe, _context_parallel, _optimizer_instances, _full_recompute, _sequence_parallel, _ffn_width, _experts, _dtypes, _offload,
    _fp8, _mtp, _uneven, _five_percent)


def said_for(generation: Generation, report: Report, a: FormulaArguments, args: Args, microbatches: int | None) -> Said:
    """Bundle a report with native arguments."""
    return Said(generation, report, a, native_args(args), microbatches)


def _layers_term(said: Said) -> float:
    """What the formula counts for all layers in flight, its overhead left out."""
    return dict(said.report.activation.terms).get("layers", 0.0) if said.report.activation else 0.0


def _counted_mlp(said: Said) -> float:
    """Bytes of the MLP's own tensors in the formula's layer: 4 f (16 h where it assumes f = 4 h), divided by TP."""
    a = said.a
    width = 4 * a.hidden_size if said.report.branch == "without_sp" or not said.generation.ffn else a.ffn_hidden_size
    return 4 * width * said.tokens / a.tensor_model_parallel_size
