"""What an expectation takes for granted, in sentences, and which options it has no price for.

An option that moves memory and is not priced is named with what it would change; it never stops the answer, it widens the interval.
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.expected.environment import Environment
from analysis.expected.model import Model
from analysis.expected.options import Options
from analysis.expected.words import TAKEN, unknown_words
from analysis.theory.arguments import Args

UNPRICED: dict[str, str] = {
    "cpu_offloading": "moves layers' activations to the host: the peak is lower than said",
    "delta_offload_bytes_across_pp_ranks": "later stages keep part of what others move to the host: their peak is higher than said",
    "cuda_graph_impl": "captured modules keep their tensors in graph pools: more is allocated than said",
    "enable_cuda_graph": "captured modules keep their tensors in graph pools: more is allocated than said",
    "external_cuda_graph": "captured modules keep their tensors in graph pools: more is allocated than said",
    "moe_paged_stash": "preallocates a stash for expert activations: more is allocated than said",
    "gtp_weight_remat_size": "divides weights and their states further: less is resident than said",
    "mlp_chunks_for_training": "works on the MLP in chunks: the peak is lower than said",
    "num_microbatches_with_partial_activation_checkpoints": "leaves some micro-batches without recomputation: the peak is higher than said",
    "variable_seq_lengths": "sequences differ in length: activations follow the longest",
    "packed_sequence": "sequences are packed: activations follow the fullest pack",
    "tp_comm_overlap": "user buffers for overlapped collectives are not counted",
    "nccl_ub": "buffers come from a registered pool and are rounded up to its granularity",
    "encoder_num_layers": "an encoder beside the decoder is not counted",
    "vision_model_type": "a vision tower is not counted",
    "inference_max_requests": "key-value caches of inference are not counted",
    "perform_rl_step": "rollout and its caches are not counted",
    "hyper_connections": "the extra residual streams are not counted",
    "experimental_attention_variant": "attention is taken as the standard kind",
    "outer_dp_sharding_strategy": "the outer group's sharding is not counted",
    "optimizer_cuda_graph": "the optimizer's graph pool is not counted",
}
"""Options that move memory and have no term here, each with what it would change."""

PARTLY_PRICED: dict[str, str] = {
    "fine_grained_activation_offloading": "copies still on their way to the host are not: the peak is higher than said",
}
"""Options whose term leaves something out, each with what."""

_OFF: tuple[object, ...] = (None, False, 0, "none", "None", "no_shard", "", [])


_OTHER_OPTIMIZERS: dict[str, str] = {
    **dict.fromkeys(("muon", "dist_muon"), "one fp32 momentum a parameter of a matrix and Adam's two of all others"),
    "lion": "one fp32 momentum a parameter", **dict.fromkeys(("soap", "adaptive_muon"), "two fp32 moments a parameter, as Adam's"),
}
"""What is counted for optimizers that hardly any measured run used."""


def doubts(args: Args) -> int:
    """How many options have no price here or a word that is not known: what widens the interval."""
    return len(unpriced(args)) + len(unknown_words(args))


def unpriced(args: Args) -> list[str]:
    """Names of options that are on and not priced, or in part; a size of 1 is off."""
    return [name for name in (*UNPRICED, *PARTLY_PRICED) if args.get(name) not in _OFF and (args[name] is True or args[name] != 1)]


def assumptions(args: Args, model: Model, options: Options, env: Environment, kernel: str) -> Iterator[str]:
    """Everything taken for granted that the arguments or the environment do not say."""
    if env.gpu is None:
        yield "GPU not known: workspaces and attention kernel as on compute capability 8.0"
    if options.attention is None and options.transformer_engine:
        yield f"attention kernel not asked for: {kernel}, as Transformer Engine would choose here; an older release may have chosen another"
    if model.experts:
        yield "routing is balanced: every expert gets the same number of tokens"
    if options.fused_loss == "te":
        yield "Transformer Engine 2.18 or later: its fused loss keeps an fp32 gradient"
    if options.optimizer in _OTHER_OPTIMIZERS:
        yield f"optimizer {options.optimizer}: {_OTHER_OPTIMIZERS[options.optimizer]}; anything else that it holds is not counted"
    if options.legacy_gradients:
        yield "data-parallel wrapper without contiguous buffers: gradients are held twice during backward, as measured on two runs"
    if args.get("position_embedding_type") is None:
        yield "position_embedding_type not given: learned, Megatron's default"
    if (args.get("use_megatron_fsdp") or args.get("use_custom_fsdp")) and args.get("data_parallel_sharding_strategy") is None:
        yield "data_parallel_sharding_strategy not given: optim_grads_params, Megatron's default since core 0.18, no_shard before"
    for name, word in unknown_words(args):
        yield f"{name} is {str(word)!r:.60}, which is not known here: taken as {TAKEN[name]}"
    for name in unpriced(args):
        yield f"{name} has no term here: {UNPRICED[name]}" if name in UNPRICED else f"{name} is counted, but {PARTLY_PRICED[name]}"
