"""Bytes that a rank of a sample run holds, counted from its arguments, so that every line of a sample agrees with the others.

Parameters are counted matrix by matrix; weights, fp32 gradients and Adam's states follow from them; saved activations are those that
Megatron's formula counts (dense) or the tensors of a MoE layer by tokens routed (MoE); the loss adds the logits in bf16 and
fp32 on the last stage. Sources: the worked 7.5 B example of docs/methods, Megatron-Core's modules. It is a sample's ledger, kept
apart from `analysis`: it must not judge itself.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20
GIB = 2**30
WORKSPACE_BYTES = 108 * MIB
"""cuBLAS and Transformer Engine workspaces that stay allocated on an H100."""


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder with grouped-query attention and gated MLP; `experts` None is dense. Sizes in elements."""

    layers: int
    hidden: int
    heads: int
    groups: int
    kv_channels: int
    ffn: int
    vocabulary: int
    sequence: int
    micro_batch: int
    tensor: int
    pipeline: int
    data: int
    distributed_optimizer: bool = True
    tied: bool = True
    experts: int | None = None
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    expert_parallel: int = 1

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.tensor * self.pipeline * self.data

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch."""
        return self.sequence * self.micro_batch


def stage_of(model: Model, rank: int) -> int:
    """Pipeline stage of a rank: the last axis of the default order tp-cp-ep-dp-pp."""
    return rank // (model.tensor * model.data)


def memory_ranks(model: Model) -> list[int]:
    """Ranks with data-parallel rank 0: those that print `[Rank N]` lines."""
    return [rank for rank in range(model.world) if (rank // model.tensor) % model.data == 0]


def parameters(model: Model, stage: int) -> int:
    """Elements on one rank of a stage: what `number of parameters on ...` prints."""
    layers = model.layers // model.pipeline
    count = layers * (_sharded(model) // model.tensor + _replicated(model) + local_experts(model))
    count += _embeddings(model, stage) * model.vocabulary * model.hidden // model.tensor
    return count + (model.hidden if stage == model.pipeline - 1 else 0)


def _embeddings(model: Model, stage: int) -> int:
    """The embedding on the first stage, the output weight on the last: a copy of it where tied and there are two stages."""
    first, last = stage == 0, stage == model.pipeline - 1
    return first + last - (first and last and model.tied)


def _sharded(model: Model) -> int:
    query, kv = model.heads * model.kv_channels, model.groups * model.kv_channels
    mlp = model.shared_ffn if model.experts else model.ffn
    return model.hidden * (2 * query + 2 * kv) + 3 * model.hidden * mlp


def _replicated(model: Model) -> int:
    """Two norms and the router of a layer."""
    return 2 * model.hidden + (model.experts or 0) * model.hidden


def local_experts(model: Model) -> int:
    """Elements of the experts of one layer on a rank."""
    return (model.experts or 0) // model.expert_parallel * 3 * model.hidden * model.expert_ffn


def resident(model: Model, stage: int) -> int:
    """Weights (2 B), fp32 gradients (4 B), master weights and moments (12 B, over the data-parallel ranks where distributed)."""
    experts = local_experts(model) * model.layers // model.pipeline
    dense = parameters(model, stage) - experts
    shards = model.data if model.distributed_optimizer else 1
    expert_shards = model.data // model.expert_parallel if model.distributed_optimizer else 1
    return 6 * (dense + experts) + 12 * dense // shards + 12 * experts // expert_shards + WORKSPACE_BYTES


def in_flight(model: Model, stage: int) -> int:
    """Micro-batches alive on a stage under 1F1B."""
    return model.pipeline - stage


def dense_activations(model: Model, stage: int) -> int:
    """Saved activations with sequence parallelism and selective recomputation, as Megatron's formula counts them."""
    layer = model.tokens * model.hidden * (18 + 4 * model.ffn // model.hidden)
    embedding = 8 * model.tokens * model.pipeline + model.tokens * model.hidden * model.pipeline if stage == 0 else 0
    return (layer * (model.layers // model.pipeline) * in_flight(model, stage) + embedding) // model.tensor


def moe_activations(model: Model, stage: int, load: float) -> int:
    """Saved activations of a MoE stage; `load` is the rank's routed tokens over the balanced number."""
    query, kv = model.heads * model.kv_channels, model.groups * model.kv_channels
    a_token = 8 * model.hidden + 4 * query + 4 * kv + 4 * model.heads + 6 * model.shared_ffn + 8 * (model.experts or 0)
    routed = int(load * model.top_k * model.tokens)
    layer = a_token * model.tokens + (2 * model.hidden + 6 * model.expert_ffn + 8) * routed
    return layer * (model.layers // model.pipeline) * in_flight(model, stage)


def logits_peak(model: Model, stage: int) -> int:
    """bf16 logits beside their fp32 copy, and the gather buffer of sequence parallelism, on the last stage."""
    if stage != model.pipeline - 1:
        return 0
    return 6 * model.tokens * model.vocabulary // model.tensor + (2 * model.tokens * model.hidden if model.tensor > 1 else 0)


def up_to(size: int, multiple: int) -> int:
    """`size` rounded up: tensors to 512 B, segments to 2 MiB."""
    return -(-size // multiple) * multiple
