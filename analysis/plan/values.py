"""Whether the value of a changed setting is one that Megatron takes: a word of its own list, true or false for a switch.

The ledger reads a dump, which Megatron has checked before it printed it, and counts a word that it does not know as the default. What a
person types was checked by nobody: `recompute_granularity=ful` would be answered as no recomputation at all, `use_distributed_optimizer=no` as
yes. Source of the words: the choices in `megatron/training/arguments.py` of all releases. Only what was changed is asked, not the run's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.theory.arguments import Args
from ingest.errors import LedgerError

_MOMENTS = ("fp32", "fp16", "bf16", "fp8", "float32", "float16", "bfloat16", "uint8")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "recompute_granularity": ("full", "selective"),
    "recompute_method": ("uniform", "block"),
    "recompute_modules": ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts", "gdn", "gdp", "mhc"),
    "offload_modules": ("core_attn", "attn_proj", "attn_norm", "qkv_linear", "mlp_norm", "expert_fc1", "moe_act", "fused_group_mlp", "gdp_qkv"),
    "transformer_impl": ("transformer_engine", "local", "inference_optimized"),
    "attention_backend": ("auto", "flash", "fused", "unfused", "local"),
    "moe_token_dispatcher_type": ("allgather", "alltoall", "alltoall_seq", "flex"),
    "cross_entropy_fusion_impl": ("native", "te"),
    "data_parallel_sharding_strategy": ("no_shard", "optim", "optim_grads", "optim_grads_params"),
    "fp8": ("e4m3", "hybrid"),
    "fp8_recipe": ("delayed", "tensorwise", "mxfp8", "blockwise", "custom"),
    "main_params_dtype": ("fp32", "fp16", "float32", "float16"),
    "exp_avg_dtype": _MOMENTS,
    "exp_avg_sq_dtype": _MOMENTS,
}
"""Arguments of a closed list of words that move memory. `optimizer` is not here: the ledger tells what it assumes of one it does not know."""


def refuse_misspelt(args: Args, changes: Args) -> None:
    """Raise LedgerError for the first change whose value Megatron would not take. `args` are the run's, both native."""
    for name, value in changes.items():
        if name in CHOICES:
            _word(name, value)
        elif isinstance(args.get(name), bool) and isinstance(value, str):
            raise LedgerError(f"argument {name} is {value!r:.60}; true or false would fit")


def _word(name: str, value: Any) -> None:
    if value is None or value is False:
        return
    for word in value if isinstance(value, list | tuple) else _words(value):
        if str(word).split(".")[-1] not in CHOICES[name]:
            raise LedgerError(f"argument {name} is {word!r:.60}; {' or '.join(CHOICES[name])} would fit")


def _words(value: Any) -> list[str]:
    """One word, or several with commas or spaces between them."""
    return str(value).replace(",", " ").split() or [""]
