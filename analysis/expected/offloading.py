"""What fine-grained activation offloading takes to the host between a layer's forward and its backward.

Source: Megatron-Core `pipeline_parallel/fine_grained_activation_offload.py`, `transformer_config.py:offload_modules` at d98e8a64. A module's
context takes everything that autograd saves in it, not only its input: with unfused attention the scores go with `core_attn`. Tensors below
`min_offloaded_tensor_size` elements stay; so does the last layer before the first backward, which would otherwise wait for its own copies. A
backward brings its layer's tensors back first. `activation_offload_fraction` counts groups in the order of forward; layers being alike, it is
taken as a share of each.
"""

from __future__ import annotations

from collections.abc import Iterable

from analysis.expected.activations import Saved
from analysis.expected.options import Options

_TAKES: dict[str, tuple[str, ...]] = {
    "attn_norm": ("attention_input",),
    "qkv_linear": ("attention_norm", "q_latent", "kv_latent"),
    "core_attn": ("qkv", "qk_norm", "scores"),
    "attn_proj": ("attention_output", "attention_output_copy", "attention_output_quantised"),
    "mlp_norm": ("mlp_input",),
    "expert_fc1": ("experts_input",),
    "moe_act": ("experts_fc1", "experts_unweighted"),
    "fused_group_mlp": ("experts_input", "experts_fc1", "experts_unweighted", "experts_act"),
}


def offloaded_bytes(saved: Saved, freed: Iterable[str], options: Options) -> int:
    """Bytes of one layer's saved tensors on the host; those that recomputation frees are nowhere."""
    taken = {name for module in options.offload_modules for name in _TAKES.get(module, ())} - set(freed)
    least = options.offload_least * options.weight_bytes
    return int(sum(size for name in taken if (size := saved.get(name, 0)) >= least) * options.offload_share)
