"""What recomputation keeps of a layer, and what its window holds again during backward.

Source: Megatron-Core `transformer_block.py`, `tensor_parallel/random.py`, `transformer_config.py:recompute_modules`. A switch can free
nothing: `core_attn` with flash attention leaves only the log-sum-exp to free, `layernorm` nothing where the norm is inside a GEMM module.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.expected.activations import Saved
from analysis.expected.model import Model
from analysis.expected.offloading import offloaded_bytes
from analysis.expected.options import Options

_FREES: dict[str, tuple[str, ...]] = {
    "core_attn": ("scores", "log_sum_exp"),
    "moe_act": ("experts_act",),
    "mlp": ("mlp_fc1", "mlp_act"),
    "shared_experts": ("shared_fc1", "shared_act"),
    "moe": ("pre_mlp_norm", "router", "row_maps", "experts_input", "experts_fc1", "experts_act", "probabilities", "shared_fc1", "shared_act"),
    "mla_up_proj": ("qkv",),
}


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes a layer keeps for its backward on the device, bytes that its backward makes again first, and bytes that it brings back from the host."""

    saved: int
    window: int
    offloaded: int = 0


def kept(saved: Saved, model: Model, options: Options, *, index: int, decoder: bool = True) -> Kept:
    """Apply recomputation to the saved tensors of layer `index` of a chunk; method block does not reach MTP layers (`decoder` False)."""
    total = sum(saved.values())
    if options.recompute == "full":
        block = options.recompute_method == "block"
        if block and (index >= options.recompute_layers or not decoder):
            return Kept(total, 0)
        entry = saved.get("attention_input", saved.get("mlp_input", 0)) // (options.tp if options.distributed_inputs else 1)
        first = block or index % options.recompute_layers == 0
        return Kept(entry if first else 0, total - entry)
    names = _freed(model, options, saved)
    freed, offloaded = sum(saved.get(name, 0) for name in names), offloaded_bytes(saved, names, options)
    return Kept(total - freed - offloaded, freed, offloaded)


def _freed(model: Model, options: Options, saved: Saved) -> set[str]:
    names = {name for module in options.recompute_modules for name in _FREES.get(module, ())}
    if "layernorm" in options.recompute_modules:
        names |= {"pre_mlp_norm"} | ({"attention_norm"} if model.mla else set())
    if "mlp" in options.recompute_modules and "experts_input" in saved:
        names -= {"mlp_fc1", "mlp_act"}
    return names
