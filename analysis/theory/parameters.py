"""How many parameters the printed formula counts, on the model and on its "most loaded shard".

Source: `compute_weight_and_optimizer_memory` of each generation. Up to G08 one closed form covers all layers; from G09 on
layers are counted by kind (dense, MoE, MTP). The order of additions follows Megatron's, because a sum that differs in its
last bit can print another digit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.theory.formula_arguments import FormulaArguments
from analysis.theory.generations import Generation
from ingest.errors import LedgerError


class Crash(Exception):
    """The exception that Megatron itself would die with, as `Type: message`."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Numbers of parameters. `block` is all layers with the final norm; `tensor`, `replicated` and `expert` are the shares of the most
    loaded shard by what divides them; `shard` is their sum and `others` a shard without embedding and MTP."""

    block: float
    mtp: float
    embedding: float
    active_block: float
    tensor: float
    replicated: float
    expert: float
    shard: float
    others: float

    @property
    def total(self) -> float:
        """Block, MTP and embeddings."""
        return self.block + self.mtp + self.embedding

    @property
    def active_total(self) -> float:
        """As printed: the MTP block counts with all its experts."""
        return self.active_block + self.mtp + self.embedding


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's parameters: divided by TP, by nothing, by EP and ETP; and the total in Megatron's order."""

    tensor: float
    replicated: float
    expert: float
    total: float


def count_parameters(generation: Generation, a: FormulaArguments) -> Parameters:
    """Count as `generation` does. Raises Crash where Megatron's own assertions fail."""
    if not generation.by_block:
        return _shared(generation, a, _closed_form(generation, a), 0.0, 0.0)
    pattern = moe_pattern(a)
    if a.multi_latent_attention and a.group_query_attention:
        raise Crash("AssertionError: ")
    dense, moe = _dense_layer(generation, a), _moe_layer(generation, a)
    moes, mtps = sum(pattern), a.mtp_num_layers or 0
    kinds = ((dense, a.num_layers - moes), (moe, moes))
    mtp_kinds = ((dense, (1 - pattern[-1]) * mtps), (moe, pattern[-1] * mtps))
    final_norm = _norm(generation, a) * a.hidden_size
    block = _sum(layer.total * number for layer, number in kinds) + final_norm
    mtp = _sum(layer.total * number for layer, number in mtp_kinds)
    active = dense.total * (a.num_layers - moes) + _active_moe_layer(generation, a) * moes + final_norm
    if not generation.expert_shards:
        return _shared(generation, a, block, mtp, active)
    return _sharded(a, block, mtp, active, kinds, mtp_kinds, final_norm)


def bytes_per_parameter(a: FormulaArguments, data_parallel: int) -> float:
    """bf16 weights, fp32 gradients, fp32 master weights and Adam moments; the last 12 bytes sharded by the distributed optimizer."""
    return 6 + 12 / data_parallel if a.use_distributed_optimizer else 18


def weight_and_optimizer_bytes(generation: Generation, a: FormulaArguments, counted: Parameters) -> float:
    """Bytes of weights, gradients and optimizer on the most loaded shard; experts have a data-parallel size of their own from G14 on."""
    if not generation.expert_shards:
        return counted.shard * bytes_per_parameter(a, a.data_parallel_size)
    expert_dp = a.world_size // (a.expert_tensor_parallel_size * a.expert_model_parallel_size * a.pipeline_model_parallel_size)
    if expert_dp == 0 and a.use_distributed_optimizer:
        raise Crash("ZeroDivisionError: division by zero")
    dense = (counted.tensor + counted.replicated) * bytes_per_parameter(a, a.data_parallel_size)
    return dense + counted.expert * bytes_per_parameter(a, expert_dp)


def query_groups(a: FormulaArguments) -> int:
    """The groups the formula uses: without grouped-query attention Megatron overwrites the argument with the number of heads."""
    return a.num_query_groups if a.group_query_attention else a.num_attention_heads


def _sum(parts: Iterable[float]) -> float:
    """Left to right, as written; the built-in `sum` compensates rounding and prints other digits."""
    total = 0.0
    for part in parts:
        total += part
    return total


def _closed_form(generation: Generation, a: FormulaArguments) -> float:
    """All layers and the final norm, G01 to G08; the unit 5 is the 10 h^2 of attention and 4h-wide MLP that G01 starts from."""
    mlp = 4.0
    if generation.ffn:
        experts = (a.num_experts or 1) if generation.experts == "every_layer" else 1
        mlp = a.ffn_hidden_size / a.hidden_size * experts * _gate(generation, a)
    ratio = query_groups(a) / a.num_attention_heads
    unit = 5 if generation.experts == "ignored" else 1
    if generation.kv_channels:
        layer = (1 + ratio) * (a.kv_channels * a.num_attention_heads / a.hidden_size) + mlp
    else:
        layer = (1 + mlp) / unit + query_groups(a) / (unit * a.num_attention_heads)
    scale = 2 * unit * a.num_layers * a.hidden_size * a.hidden_size
    return scale * (layer + 2 / (unit * a.hidden_size) + 1 / (unit * a.num_layers * a.hidden_size))


def moe_pattern(a: FormulaArguments) -> list[int]:
    """1 for each MoE layer, 0 for each dense one."""
    if a.num_experts is None:
        return [0] * a.num_layers
    if isinstance(a.moe_layer_freq, int):
        return [int(layer % a.moe_layer_freq == 0) for layer in range(a.num_layers)]
    if len(a.moe_layer_freq) != a.num_layers:
        raise Crash(f"AssertionError: Invalid length of moe_layer_pattern: {len(a.moe_layer_freq)}, expected {a.num_layers}, "
                    f"current moe layer pattern: {a.moe_layer_freq}")
    return a.moe_layer_freq


def _gate(generation: Generation, a: FormulaArguments) -> float:
    return 3 / 2 if generation.gated and a.swiglu else 1


def _norm(generation: Generation, a: FormulaArguments) -> int:
    return 1 if generation.norm_by_type and a.normalization == "RMSNorm" else 2


def _attention(generation: Generation, a: FormulaArguments) -> float:
    if not a.multi_latent_attention:
        width = a.kv_channels * a.num_attention_heads / a.hidden_size
        return 2 * a.hidden_size * a.hidden_size * ((1 + query_groups(a) / a.num_attention_heads) * width)
    norm = _norm(generation, a) if generation.norm_by_type else 1
    query, heads = a.qk_head_dim + a.qk_pos_emb_head_dim, a.num_attention_heads
    q = a.hidden_size * heads * query if a.q_lora_rank is None else a.q_lora_rank * (a.hidden_size + heads * query + norm)
    kv = a.kv_lora_rank * (a.hidden_size + heads * (a.qk_head_dim + a.v_head_dim) + norm) + a.hidden_size * a.qk_pos_emb_head_dim
    return q + kv + heads * a.v_head_dim * a.hidden_size


def _dense_layer(generation: Generation, a: FormulaArguments) -> _Layer:
    attention, norms = _attention(generation, a), 2 * a.hidden_size * _norm(generation, a)
    mlp = 2 * a.hidden_size * a.ffn_hidden_size * _gate(generation, a)
    total = attention + mlp + norms if generation.expert_shards else mlp + norms + attention
    return _Layer(attention + mlp, norms, 0.0, total)


def _moe_layer(generation: Generation, a: FormulaArguments) -> _Layer:
    attention, norms = _attention(generation, a), 2 * a.hidden_size * _norm(generation, a)
    shared, experts, extra = _shared_expert(generation, a), _experts(generation, a, a.num_experts or 1), _replicated_extra(generation, a)
    total = attention + shared + experts + norms + extra if generation.expert_shards else experts + shared + norms + attention
    return _Layer(attention + shared, norms + extra, experts, total)


def _active_moe_layer(generation: Generation, a: FormulaArguments) -> float:
    """As `_moe_layer` with top-k experts; G13 forgot that RMSNorm has one vector here."""
    attention, shared, experts = _attention(generation, a), _shared_expert(generation, a), _experts(generation, a, a.moe_router_topk)
    if not generation.expert_shards:
        return experts + shared + 4 * a.hidden_size + attention
    return attention + shared + experts + 2 * a.hidden_size * _norm(generation, a) + _replicated_extra(generation, a)


def _shared_expert(generation: Generation, a: FormulaArguments) -> float:
    return 2 * a.hidden_size * a.moe_shared_expert_intermediate_size * _gate(generation, a)


def _experts(generation: Generation, a: FormulaArguments, number: int) -> float:
    width = a.moe_latent_size if generation.latent and a.moe_latent_size is not None else a.hidden_size
    return 2 * width * a.moe_ffn_hidden_size * number * _gate(generation, a) if a.num_experts is not None else 0.0


def _replicated_extra(generation: Generation, a: FormulaArguments) -> float:
    """Router, shared-expert gate and latent projections: counted from G14 (latent: G15) on, on every rank."""
    if not generation.expert_shards or a.num_experts is None:
        return 0.0
    router = a.hidden_size * a.num_experts + (a.num_experts if a.add_bias_linear else 0)
    gate = a.hidden_size if a.moe_shared_expert_intermediate_size > 0 and a.moe_shared_expert_gate else 0
    latent = 2 * a.hidden_size * a.moe_latent_size if generation.latent and a.moe_latent_size is not None else 0
    return latent + router + gate


def _embeddings(a: FormulaArguments) -> tuple[int, int]:
    """One embedding, and how many stand on the most loaded shard beside the first: an untied output weight only without pipeline."""
    return a.hidden_size * a.padded_vocab_size, int(a.untie_embeddings_and_output_weights and a.pipeline_model_parallel_size == 1)


def _shared(generation: Generation, a: FormulaArguments, block: float, mtp: float, active: float) -> Parameters:
    """Everything divided by TP."""
    embedding, second = _embeddings(a)
    pp, tp = a.pipeline_model_parallel_size, a.tensor_model_parallel_size
    shard = (block / pp + mtp + embedding) / tp + second * (embedding / tp)
    printed = embedding * (2 if a.untie_embeddings_and_output_weights else 1)
    return Parameters(block, mtp, printed, active, shard, 0.0, 0.0, shard, block / (pp * tp))


def _sharded(a: FormulaArguments, block: float, mtp: float, active: float, kinds: tuple[tuple[_Layer, int], ...],
             mtp_kinds: tuple[tuple[_Layer, int], ...], final_norm: int) -> Parameters:
    """Each part divided by what really divides it (G14 on)."""
    embedding, second = _embeddings(a)
    pp, tp, experts = a.pipeline_model_parallel_size, a.tensor_model_parallel_size, a.expert_tensor_parallel_size * a.expert_model_parallel_size
    tensor, replicated, expert = (_sum(getattr(layer, part) * number for layer, number in kinds) for part in ("tensor", "replicated", "expert"))
    mtp_tensor, mtp_replicated, mtp_expert = (
        _sum(getattr(layer, part) * number for layer, number in mtp_kinds) for part in ("tensor", "replicated", "expert"))
    replicated += final_norm
    on_tensor = (tensor / pp + mtp_tensor + embedding) / tp
    on_replicated, on_expert = replicated / pp + mtp_replicated, (expert / pp + mtp_expert) / experts
    shard = on_tensor + on_replicated + on_expert + second * (embedding / tp)
    others = tensor / (pp * tp) + replicated / pp + expert / (pp * experts)
    printed = embedding * (2 if a.untie_embeddings_and_output_weights else 1)
    return Parameters(block, mtp, printed, active, on_tensor + second * (embedding / tp), on_replicated, on_expert, shard, others)


def layer_shard(generation: Generation, a: FormulaArguments, *, moe: bool) -> tuple[float, float]:
    """Parameters of one layer on a rank: dense and replicated ones, and those of its routed experts."""
    layer = _moe_layer(generation, a) if moe else _dense_layer(generation, a)
    shards = a.expert_tensor_parallel_size * a.expert_model_parallel_size
    return layer.tensor / a.tensor_model_parallel_size + layer.replicated, layer.expert / shards


def layer_kinds(a: FormulaArguments) -> list[int]:
    """`moe_pattern`, with a sentence where Megatron would die. Raises LedgerError."""
    try:
        return moe_pattern(a)
    except Crash as crash:
        length = len(a.moe_layer_freq) if isinstance(a.moe_layer_freq, list) else a.moe_layer_freq
        raise LedgerError(f"argument moe_layer_freq is a list of {length}; one entry for each of num_layers {a.num_layers} would fit") from crash
