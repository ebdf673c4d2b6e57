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
_SEVERAL_BYTES = 2 * 2**30


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


def _host(seen: Seen) -> dict[str, Any]:
    """The modules whose tensors are large beside the time that hides their copies."""
    modules = ["core_attn", "attn_proj", *(("expert_fc1", "moe_act") if seen.moe else ())]
    return {"fine_grained_activation_offloading": True, "offload_modules": modules}


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


def _later_stages(seen: Seen) -> str | None:
    """1F1B keeps as many micro-batches on the first stage as there are stages: more stages take from a rank's layers what they add in flight."""
    full = max((rank for rank in seen.overview.ranks if rank.peak_bytes), key=lambda rank: rank.peak_bytes or 0, default=None)
    count, stages = seen.overview.configuration.num_microbatches or 0, seen.number("pipeline_model_parallel_size")
    if full is None or full.stage != 0 or stages < 2 or count < stages:
        return None
    return "the first stage is the fullest: under 1F1B its activations in flight stay the same however many stages there are"


def _offloading(seen: Seen) -> str | None:
    on = seen.on("fine_grained_activation_offloading") or seen.on("cpu_offloading")
    return "activations are offloaded already" if on else None


def _precision_aware(seen: Seen) -> str | None:
    """Lower precision of the states, only where they still hold several GiB on a rank after sharding."""
    if seen.on("use_precision_aware_optimizer"):
        return "the optimizer is precision-aware already"
    stages = seen.overview.ledger.expected.stages if seen.overview.ledger else {}
    held = max((row.classes.get("optimizer", 0) for row in stages.values()), default=None)
    return None if held is None or held >= _SEVERAL_BYTES else "the optimizer's states are small after sharding"


def _max_split(seen: Seen) -> str | None:
    if "max_split_size_mb" in _allocator(seen):
        return "max_split_size_mb is set already"
    return "expandable segments are in force: together they are a known bad pair" if _expandable(seen) else None


def _cublas(seen: Seen) -> str | None:
    return "CUBLAS_WORKSPACE_CONFIG is set already" if seen.environment.get("CUBLAS_WORKSPACE_CONFIG") else None


def _virtual(seen: Seen) -> str | None:
    return "the stages are interleaved already" if seen.number("virtual_pipeline_model_parallel_size") > 1 else _one_stage(seen)


def _overlapping(seen: Seen) -> str | None:
    return "gradients and parameters overlap already" if seen.on("overlap_grad_reduce") and seen.on("overlap_param_gather") else None


def _less_recompute(seen: Seen) -> str | None:
    return None if seen.args.get("recompute_granularity") in ("full", "selective") else "nothing is recomputed"


def _no_effect(reason: str) -> Callable[[Seen], str | None]:
    return lambda seen: reason


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
           "PCIe: bytes a step over 32 to 64 GB/s", "a setting", "the copies outlast the layer that hides them, or host memory is short",
           _host, _offloading),
    Action("more_tensor_parallel", "double tensor parallelism", "smaller GEMMs", "four all-reduces a layer, inside the NVLink domain", "a new layout",
           "TP exceeds the NVLink domain or does not divide the heads", _times("tensor_model_parallel_size")),
    Action("more_pipeline_stages", "double the pipeline stages", "a larger bubble (p-1)/(m+p-1)", "point-to-point", "a new layout",
           "the first stage's activations are the problem: 1F1B keeps p micro-batches there", _times("pipeline_model_parallel_size"), _later_stages),
    Action("more_context_parallel", "double context parallelism", "none", "K and V round the ring", "a new layout",
           "the batch a rank holds grows back", _times("context_parallel_size")),
    Action("distributed_optimizer", "share the optimizer over data parallelism (use_distributed_optimizer)", "none",
           "reduce-scatter and all-gather instead of all-reduce: the same bytes", "a switch", "there is one data-parallel rank",
           lambda seen: {"use_distributed_optimizer": True}, _sharded),
    Action("more_expert_parallel", "double expert parallelism: nothing else shards experts", "none", "two all-to-alls a MoE layer", "a new layout",
           "EP does not divide the experts", _times("expert_model_parallel_size"), _only_moe),
    Action("fsdp", "shard parameters as well (FSDP, ZeRO-3)", "none", "+50 % of data-parallel bytes: 2P to 3P", "a new layout",
           "its all-gather outlasts backward: then HSDP"),
    Action("precision_aware_optimizer", "keep the optimizer's moments in bf16 (use_precision_aware_optimizer)", "none", "none", "a setting",
           "updates smaller than the format's step vanish: never fp8 for what is accumulated",
           lambda seen: {"use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}, _precision_aware),
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
    Action("max_split_size", "set max_split_size_mb in PYTORCH_CUDA_ALLOC_CONF", "none", "none", "a setting",
           "it wastes whole blocks where large ones of many sizes come and go", hindered=_max_split),
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
    Action("cublas_workspace", "set CUBLAS_WORKSPACE_CONFIG=:4096:8", "none", "none", "a setting", "few cuBLAS handles are open",
           hindered=_cublas),
    Action("fused_kernels", "fuse the operation, or give it smaller tiles or chunks", "none", "none", "code", "no fused kernel exists for it"),
    Action("more_micro_batches", "more micro-batches a step (a larger global batch, or fewer data-parallel ranks)", "none", "none", "a setting",
           "the global batch may not grow"),
    Action("virtual_stages", "interleave stages (virtual pipeline)", "none", "point-to-point v times as often", "a new layout",
           "memory is short: the first stage's activations grow to 1 + (p-1)/(p v) times", hindered=_virtual),
    Action("larger_micro_batch", "a larger micro-batch, within the headroom", "larger GEMMs, higher utilisation", "the same bytes in fewer messages",
           "a setting", "the headroom was not measured in steps of high load"),
    Action("less_recompute", "one step less recompute: full to selective, selective to fewer modules", "less", "none", "a setting",
           "the plan says that it does not fit", hindered=_less_recompute),
    Action("overlap", "overlap communication (overlap_grad_reduce, overlap_param_gather, tp_comm_overlap)", "none", "hidden behind computation",
           "a switch", "bandwidth is shared with what it hides behind", hindered=_overlapping),
    Action("async_checkpoint", "write checkpoints asynchronously (async_save)", "none", "none", "a switch", "host memory is short: it holds a copy",
           hindered=lambda seen: "checkpoints are written asynchronously already" if seen.on("async_save") else None),
    Action("bucket_schedule", "smaller or differently scheduled buckets (ddp_bucket_size), another algorithm or protocol", "none",
           "more, smaller messages", "a setting", "latency is the bottleneck"),
    Action("symmetric_memory", "symmetric memory for collectives", "none", "fewer staging copies", "code", "its own synchronisation is not minded"),
    Action("smaller_global_batch", "a smaller global batch", "none", "none", "a setting", "it never frees memory",
           hindered=_no_effect("the global batch sets how many micro-batches follow each other, not how many are held at once")),
    Action("fewer_micro_batches", "fewer micro-batches a step", "none", "none", "a setting", "it never frees what stays between steps",
           hindered=_no_effect("weights, gradients and optimizer states do not depend on the number of micro-batches")),
    Action("recompute_transient", "recompute or offload against short-lived buffers", "none", "none", "a setting", "it never reaches them",
           hindered=_no_effect("what lives inside one operator is never saved for backward")),
    Action("chunk_operation", "chunk that operation (logits, all-gather, checkpoint tensor)", "none", "none", "code", "one tensor must stay whole"),
    Action("host_buffers", "fewer pinned buffers, a smaller offload fraction, fewer dataloader workers", "none", "none", "a setting",
           "the dataset itself is in memory"),
    Action("raise_cap", "raise the memory fraction", "none", "none", "a setting", "the rest of the device is another's"),
    Action("other_process", "end the other process on the device", "none", "none", "a setting", "it belongs to the job"),
)}

SYMPTOMS: dict[str, tuple[str, ...]] = {
    "activations": (
        "smaller_micro_batch", "recompute_moe_act", "recompute_mla_up_proj", "recompute_layernorm", "recompute_core_attn", "recompute_mlp",
        "recompute_moe", "full_recompute", "offload_activations", "more_tensor_parallel", "more_pipeline_stages", "more_context_parallel",
        "smaller_global_batch"),
    "resident": ("distributed_optimizer", "more_expert_parallel", "fsdp", "precision_aware_optimizer", "more_tensor_parallel", "more_pipeline_stages",
                 "fewer_micro_batches"),
    "last_stage": ("smaller_micro_batch", "chunked_loss", "fewer_layers_last", "move_embedding"),
    "first_stage": ("full_recompute", "fewer_layers_first", "move_embedding"),
    "fragmentation": ("expandable_segments", "fixed_shapes", "max_split_size", "empty_cache"),
    "streams": ("one_stream", "fewer_streams"),
    "graph_pools": ("one_graph_pool", "fewer_graphs"),
    "not_torch": ("empty_cache", "gc_threshold", "expandable_segments"),
    "communication": ("bucket_schedule", "fewer_channels", "symmetric_memory"),
    "transient": ("fused_kernels", "cublas_workspace", "recompute_transient"), "bubble": ("more_micro_batches", "virtual_stages"),
    "spare": ("larger_micro_batch", "less_recompute", "overlap", "async_checkpoint"),
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
