"""The actions, declared once: what each changes, costs and needs, by symptom and in the order to try them.

Costs are those that papers and Megatron's own documents quote (selective and full recompute: Korthikanti et al. 2022, arXiv 2205.05198, section 6;
FSDP: 3P against 2P bytes of data-parallel traffic, Rajbhandari et al. 2020, arXiv 1910.02054, section 7). `hindered` says why an action is in force
already or would save nothing for this run: such actions are shown with the reason instead of being advised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from analysis.findings.model import Advice, Seen, Useless

Change = Callable[[Seen], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Action:
    """One action of the catalogue; `change` gives the arguments that the plan simulates, empty where it cannot."""

    id: str
    sentence: str
    computation: str
    communication: str
    complexity: Literal["a switch", "a setting", "a new layout", "code"]
    fails_when: str
    change: Change = field(default=lambda seen: {})
    hindered: Callable[[Seen], str | None] = field(default=lambda seen: None)


def _full(seen: Seen) -> str | None:
    return "full recompute is in force" if seen.args.get("recompute_granularity") == "full" else None


def _micro_batch(seen: Seen) -> str | None:
    return "the micro-batch is 1 already" if seen.args.get("micro_batch_size") == 1 else None


def _module(module: str, needs: Callable[[Seen], str | None]) -> Callable[[Seen], str | None]:
    def hindered(seen: Seen) -> str | None:
        return _full(seen) or (f"{module} is recomputed already" if module in seen.recomputed else needs(seen))
    return hindered


def _recompute(module: str) -> Change:
    return lambda seen: {"recompute_granularity": "selective", "recompute_modules": [*seen.recomputed, module]}


def _times(name: str, factor: int = 2) -> Change:
    return lambda seen: {name: seen.number(name) * factor}


def _only_moe(seen: Seen) -> str | None:
    return None if seen.moe else "the model has no experts"


def _attention(seen: Seen) -> str | None:
    return "flash attention keeps no score matrix: recomputing core attention would free next to nothing" if seen.flash else None


def _layernorm(seen: Seen) -> str | None:
    separate = seen.moe or seen.on("multi_latent_attention")
    return None if separate else "the norms of dense layers lie inside their linear layers: recomputing them frees nothing"


def _dense_layers(seen: Seen) -> str | None:
    every = seen.moe and seen.args.get("moe_layer_freq", 1) == 1
    return "every layer is an MoE layer" if every else None


def _mla(seen: Seen) -> str | None:
    return None if seen.on("multi_latent_attention") else "the model has no multi-latent attention"


def _sharded(seen: Seen) -> str | None:
    if seen.on("use_distributed_optimizer"):
        return "the optimizer is distributed already"
    return "there is one data-parallel rank: nothing to share the optimizer with" if seen.overview.configuration.dp == 1 else None


def _expandable(seen: Seen) -> str | None:
    return "expandable segments are in force" if "expandable_segments:True" in _allocator(seen) else None


def _one_pool(seen: Seen) -> str | None:
    return "the graphs share one pool already" if seen.on("cuda_graph_use_single_mempool") else None


def _allocator(seen: Seen) -> str:
    return ",".join(value for name, value in seen.environment.items() if name.endswith("ALLOC_CONF")).replace(" ", "")


def _emptying(seen: Seen) -> str | None:
    return "the cache is emptied already" if seen.number("empty_unused_memory_level", 0) > 0 else None


def _fused_loss(seen: Seen) -> str | None:
    if seen.on("cross_entropy_loss_fusion") and str(seen.args.get("cross_entropy_fusion_impl")) == "te":
        return "Transformer Engine's fused cross-entropy is in force"
    return None


def _layers_per_stage(seen: Seen) -> int:
    return max(1, seen.number("num_layers", 0) // max(1, seen.number("pipeline_model_parallel_size")))


def _one_stage(seen: Seen) -> str | None:
    return "there is one stage" if seen.number("pipeline_model_parallel_size") == 1 else None


ACTIONS: dict[str, Action] = {one.id: one for one in (
    Action("smaller_micro_batch", "halve the micro-batch", "smaller GEMMs, lower utilisation", "the same bytes in more messages", "a setting",
           "the micro-batch is 1, or the GEMMs become too small",
           lambda seen: {"micro_batch_size": max(1, seen.number("micro_batch_size") // 2)}, _micro_batch),
    Action("recompute_moe", "recompute the MoE layers (recompute_modules moe)", "the experts' forward again", "dispatch and combine again",
           "a setting", "the layer's own window is the peak", _recompute("moe"), _module("moe", _only_moe)),
    Action("recompute_moe_act", "recompute the experts' activation (recompute_modules moe_act)", "elementwise only", "none", "a setting",
           "grouped GEMM is off", _recompute("moe_act"), _module("moe_act", _only_moe)),
    Action("recompute_mla_up_proj", "recompute the latent attention's up-projection (recompute_modules mla_up_proj)", "two GEMMs a layer", "none",
           "a setting", "the model has no latent attention", _recompute("mla_up_proj"), _module("mla_up_proj", _mla)),
    Action("recompute_mlp", "recompute the dense MLP (recompute_modules mlp)", "the MLP's forward again", "none, or TP's again", "a setting",
           "all layers are MoE layers", _recompute("mlp"), _module("mlp", _dense_layers)),
    Action("recompute_layernorm", "recompute the norms (recompute_modules layernorm)", "elementwise only", "none", "a setting", "fp8 delayed scaling",
           _recompute("layernorm"), _module("layernorm", _layernorm)),
    Action("recompute_core_attn", "recompute core attention (recompute_modules core_attn)",
           "+1.6 to 2.7 % of FLOPs, about 2 % a step in the paper", "none", "a switch", "attention is flash or fused", _recompute("core_attn"),
           _module("core_attn", _attention)),
    Action("full_recompute", "recompute whole layers (recompute_granularity full, uniform)", "+33 % of computation, 30 to 40 % of a step",
           "TP's collectives again", "a setting", "saved activations are small already, or one micro-batch is in flight",
           lambda seen: {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1, "recompute_modules": None},
           _full),
    Action("offload_activations", "offload activations to the host (fine-grained activation offloading)", "none",
           "PCIe: bytes a step over 32 to 64 GB/s", "a setting", "the copies outlast the layer that hides them, or host memory is short"),
    Action("more_tensor_parallel", "double tensor parallelism", "smaller GEMMs", "four all-reduces a layer, inside the NVLink domain", "a new layout",
           "TP exceeds the NVLink domain or does not divide the heads", _times("tensor_model_parallel_size")),
    Action("more_pipeline_stages", "double the pipeline stages", "a larger bubble (p-1)/(m+p-1)", "point-to-point", "a new layout",
           "the first stage's activations are the problem: 1F1B keeps p micro-batches there", _times("pipeline_model_parallel_size")),
    Action("more_context_parallel", "double context parallelism", "none", "K and V round the ring", "a new layout",
           "the batch a rank holds grows back", _times("context_parallel_size")),
    Action("distributed_optimizer", "share the optimizer over data parallelism (use_distributed_optimizer)", "none",
           "reduce-scatter and all-gather instead of all-reduce: the same bytes", "a switch", "there is one data-parallel rank",
           lambda seen: {"use_distributed_optimizer": True}, _sharded),
    Action("more_expert_parallel", "double expert parallelism: nothing else shards experts", "none", "two all-to-alls a MoE layer", "a new layout",
           "EP does not divide the experts", _times("expert_model_parallel_size"), _only_moe),
    Action("fsdp", "shard parameters as well (FSDP, ZeRO-3)", "none", "+50 % of data-parallel bytes: 2P to 3P", "a new layout",
           "its all-gather outlasts backward: then HSDP"),
    Action("chunked_loss", "fuse or chunk the cross-entropy (cross_entropy_fusion_impl te)", "none", "none", "a switch",
           "Transformer Engine 2.18 and later keep an fp32 gradient",
           lambda seen: {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}, _fused_loss),
    Action("fewer_layers_last", "give the last stage fewer layers (decoder_last_pipeline_num_layers)", "the others compute more", "none",
           "a new layout", "the layers do not divide over the other stages",
           lambda seen: {"decoder_last_pipeline_num_layers": max(1, _layers_per_stage(seen) - 1)}, _one_stage),
    Action("fewer_layers_first", "give the first stage fewer layers (decoder_first_pipeline_num_layers)", "the others compute more", "none",
           "a new layout", "the layers do not divide over the other stages",
           lambda seen: {"decoder_first_pipeline_num_layers": max(1, _layers_per_stage(seen) - 1)}, _one_stage),
    Action("move_embedding", "move embedding, MTP or loss to stages of their own (pipeline_model_parallel_layout)", "none", "none", "a new layout",
           "the layout must name every layer"),
    Action("expandable_segments", "set expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF", "none", "none", "a setting",
           "with CUDA graphs of Transformer Engine NCCL_GRAPH_REGISTER=0 is needed", hindered=_expandable),
    Action("fixed_shapes", "keep shapes fixed (pad sequences, capacity factor)", "padding", "none", "a setting", "routing must stay dropless"),
    Action("empty_cache", "empty the cache at phase borders (empty_unused_memory_level 1)", "a stall at each border", "none", "a setting",
           "inside the loop it stalls every step and frees nothing for good", hindered=_emptying),
    Action("one_stream", "communicate on the main stream where little overlaps", "none", "what overlapped is waited for", "code",
           "communication hides behind computation"),
    Action("fewer_streams", "use fewer streams, and wait for them before the peak", "a wait before the peak", "none", "code",
           "the streams' work hides behind computation"),
    Action("one_graph_pool", "let CUDA graphs share one pool (cuda_graph_use_single_mempool)", "none", "none", "a switch",
           "graphs whose memory is shared must run in the order of their capture", hindered=_one_pool),
    Action("fewer_graphs", "capture fewer CUDA graphs: fewer shapes, fewer modules", "more launches", "none", "a setting",
           "launches are the bottleneck"),
    Action("gc_threshold", "set garbage_collection_threshold or a memory fraction, so that torch gives way", "none", "none", "a setting",
           "expandable segments ignore the threshold"),
    Action("fewer_channels", "fewer or smaller NCCL channels (NCCL_MAX_CTAS, NCCL_BUFFSIZE)", "none", "less bandwidth at large messages", "a setting",
           "bandwidth is the bottleneck"),
    Action("cublas_workspace", "set CUBLAS_WORKSPACE_CONFIG=:4096:8", "none", "none", "a setting", "few cuBLAS handles are open"),
    Action("chunk_operation", "chunk that operation (logits, all-gather, checkpoint tensor)", "none", "none", "code", "one tensor must stay whole"),
    Action("host_buffers", "fewer pinned buffers, a smaller offload fraction, fewer dataloader workers", "none", "none", "a setting",
           "the dataset itself is in memory"),
    Action("raise_cap", "raise the memory fraction", "none", "none", "a setting", "the rest of the device is another's"),
    Action("other_process", "end the other process on the device", "none", "none", "a setting", "it belongs to the job"),
)}

SYMPTOMS: dict[str, tuple[str, ...]] = {
    "activations": (
        "smaller_micro_batch", "recompute_moe_act", "recompute_mla_up_proj", "recompute_layernorm", "recompute_core_attn", "recompute_mlp",
        "recompute_moe", "full_recompute", "offload_activations", "more_tensor_parallel", "more_pipeline_stages", "more_context_parallel"),
    "resident": ("distributed_optimizer", "more_expert_parallel", "fsdp", "more_tensor_parallel", "more_pipeline_stages"),
    "last_stage": ("smaller_micro_batch", "chunked_loss", "fewer_layers_last", "move_embedding"),
    "first_stage": ("full_recompute", "fewer_layers_first", "move_embedding"),
    "fragmentation": ("expandable_segments", "fixed_shapes", "empty_cache"),
    "streams": ("one_stream", "fewer_streams"),
    "graph_pools": ("one_graph_pool", "fewer_graphs"),
    "not_torch": ("empty_cache", "gc_threshold", "expandable_segments"),
    "communication": ("fewer_channels", "cublas_workspace"),
    "outside": ("other_process", "fewer_channels", "cublas_workspace"),
    "giant": ("chunk_operation",), "host": ("host_buffers",), "cap": ("raise_cap",),
}
"""Actions by symptom, in the order to try them."""


def advise(seen: Seen, symptom: str) -> tuple[tuple[Advice, ...], tuple[Useless, ...]]:
    """The actions of a symptom that would help here, in order, and those that would not, with the reason."""
    advice: list[Advice] = []
    useless: list[Useless] = []
    for name in SYMPTOMS[symptom]:
        action = ACTIONS[name]
        if reason := action.hindered(seen):
            useless.append(Useless(name, reason))
            continue
        change = action.change(seen)
        saved = seen.saved(change) if change else None
        if isinstance(saved, str):
            useless.append(Useless(name, f"refused: {saved}"))
            continue
        if saved is not None and saved <= 0:
            useless.append(Useless(name, "it would save nothing on the fullest rank"))
            continue
        advice.append(Advice(name, action.sentence, len(advice) + 1, saved, action.computation, action.communication, action.complexity,
                             action.fails_when))
    return tuple(advice), tuple(useless)
