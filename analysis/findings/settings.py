"""Rules on settings: switches that save nothing here, combinations that harm, and precision or hardware to mind.

Sources: the saved-activation account of Megatron-Core (docs/methods/theory.md), NCCL's and Transformer Engine's documentation for the combinations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from analysis.findings.model import Finding, Rule, Seen

_THEORY, _COMMUNICATION = "methods/theory.md", "methods/communication.md"


def _note(id_: str, sentence: str, *names: str, severity: str = "note") -> Callable[[Seen], Finding]:
    def finding(seen: Seen) -> Finding:
        lines = seen.said(*names)
        return Finding(id_, "warning" if severity == "warning" else "note", "proven" if lines else "likely", sentence, lines)
    return finding


def _core_attn(seen: Seen) -> Iterator[Finding]:
    if "core_attn" in seen.recomputed and seen.flash:
        yield _note("recompute_core_attn_flash", "Selective recompute of core attention with flash or fused attention frees next to nothing and runs "
                    "attention again; Megatron itself warns.", "recompute_granularity", "recompute_modules", "attention_backend")(seen)


def _layernorm(seen: Seen) -> Iterator[Finding]:
    if "layernorm" in seen.recomputed and not seen.moe and not seen.on("multi_latent_attention"):
        yield _note("recompute_layernorm_dense", "Recomputing the norms frees nothing here: in dense layers they lie inside their linear layers.",
                    "recompute_modules")(seen)


def _emptying(seen: Seen) -> Iterator[Finding]:
    if seen.number("empty_unused_memory_level", 0) >= 2:
        yield _note("empty_cache_in_loop", "The cache is emptied inside the training loop (empty_unused_memory_level 2): every step stalls, and "
                    "nothing is freed for good; level 1 empties at phase borders.", "empty_unused_memory_level", severity="warning")(seen)


def _native_loss(seen: Seen) -> Iterator[Finding]:
    if seen.on("cross_entropy_loss_fusion") and str(seen.args.get("cross_entropy_fusion_impl", "native")) == "native":
        yield _note("native_loss_fusion", "The native fused cross-entropy keeps the same fp32 logits as the unfused one: it saves time, not memory.",
                    "cross_entropy_loss_fusion", "cross_entropy_fusion_impl")(seen)


def _microbatches(seen: Seen) -> Iterator[Finding]:
    facts = seen.overview.configuration
    if facts.pp and facts.pp > 1 and facts.num_microbatches and facts.num_microbatches < facts.pp:
        count = f"{facts.num_microbatches} micro-batch{'es' * (facts.num_microbatches > 1)}"
        yield _note("fewer_microbatches_than_stages", f"{count} on {facts.pp} stages: the pipeline never fills; more "
                    "micro-batches cost activations only until there are as many as stages, and shorten the bubble.", "global_batch_size")(seen)


def _graphs(seen: Seen) -> Iterator[Finding]:
    graphs = seen.on("enable_cuda_graph") or seen.on("external_cuda_graph") or seen.args.get("cuda_graph_impl") not in (None, "none", "None")
    expandable = any("expandable_segments:True" in value.replace(" ", "") for name, value in seen.environment.items() if name.endswith("ALLOC_CONF"))
    if graphs and expandable and seen.environment.get("NCCL_GRAPH_REGISTER") != "0":
        yield _note("expandable_segments_cuda_graphs", "Expandable segments with CUDA graphs need NCCL_GRAPH_REGISTER=0, which is not set.",
                    "cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph", severity="warning")(seen)


def _connections(seen: Seen) -> Iterator[Finding]:
    wants = seen.number("tensor_model_parallel_size") > 1 or seen.number("context_parallel_size") > 1
    newer = re.search(r"\b(?:G?B[1-3]00)\b", seen.overview.configuration.gpu_name or "")
    said = seen.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if wants and seen.environment and said != "1" and not newer and not seen.on("use_torch_fsdp2") and not seen.on("use_megatron_fsdp"):
        yield _note("device_max_connections", f"CUDA_DEVICE_MAX_CONNECTIONS is {said or 'not set'}; tensor or context parallelism on Hopper and "
                    "older wants 1, so that communication starts before the computation it should hide behind.", "tensor_model_parallel_size")(seen)


def _fp8(seen: Seen) -> Iterator[Finding]:
    if seen.args.get("fp8") not in (None, False, "None") and not seen.on("fp8_param_gather") and not seen.on("fp8_param"):
        yield _note("fp8_weights_kept", "fp8 computes in 8 bits but keeps the 16-bit weights: working weights halve only with fp8_param_gather.",
                    "fp8")(seen)


def _state_dtype(seen: Seen) -> Iterator[Finding]:
    low = [name for name in ("exp_avg_dtype", "exp_avg_sq_dtype") if re.search("fp8|uint8", str(seen.args.get(name, "")))]
    if low:
        yield _note("fp8_moments", "Moments in fp8 risk swamping: updates below the step of the format vanish, and the loss goes flat without an "
                    "error.", *low, severity="warning")(seen)


def _small_recompute(seen: Seen) -> Iterator[Finding]:
    by_block = seen.args.get("recompute_granularity") == "full" and seen.args.get("recompute_method") == "block"
    if by_block and seen.number("recompute_num_layers", 0) == 0:
        yield _note("block_recompute_of_nothing", "Full recompute by blocks with recompute_num_layers 0 recomputes no layer.", "recompute_num_layers",
                    severity="warning")(seen)


RULES = (
    Rule("recompute_core_attn_flash", "Recompute of core attention beside flash attention", _THEORY, _core_attn),
    Rule("recompute_layernorm_dense", "Recompute of norms in dense layers", _THEORY, _layernorm),
    Rule("empty_cache_in_loop", "The cache is emptied inside the loop", "methods/headroom.md", _emptying),
    Rule("native_loss_fusion", "Native cross-entropy fusion saves no memory", _THEORY, _native_loss),
    Rule("fewer_microbatches_than_stages", "Fewer micro-batches than stages", _THEORY, _microbatches),
    Rule("expandable_segments_cuda_graphs", "Expandable segments and CUDA graphs", _COMMUNICATION, _graphs),
    Rule("device_max_connections", "CUDA_DEVICE_MAX_CONNECTIONS", _COMMUNICATION, _connections),
    Rule("fp8_weights_kept", "fp8 without fp8 weights", _THEORY, _fp8),
    Rule("fp8_moments", "Optimizer moments in fp8", _THEORY, _state_dtype),
    Rule("block_recompute_of_nothing", "Recompute by blocks of no layer", _THEORY, _small_recompute),
)
