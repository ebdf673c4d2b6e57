"""Arguments that take one word of a closed list and move memory: which words Megatron knows, and what one that it does not know is taken as.

The ledger reads a dump, which Megatron has checked before it printed it, but a fork or a later release may have words of its own. Those are
counted as the value beside them in `TAKEN`, said among the assumptions, and widen the interval. Source of the words: the choices in
`megatron/training/arguments.py` of all releases, and `transformer_config.py` for `normalization`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    "fp8_format": ("e4m3", "hybrid"),
    "fp8_recipe": ("delayed", "tensorwise", "mxfp8", "blockwise", "custom"),
    "main_params_dtype": ("fp32", "fp16", "float32", "float16"),
    "exp_avg_dtype": _MOMENTS,
    "exp_avg_sq_dtype": _MOMENTS,
    "optimizer": ("adam", "sgd", "muon", "dist_muon", "lion", "soap", "adaptive_muon"),
    "position_embedding_type": ("learned_absolute", "rope", "yarn", "mrope", "relative", "none"),
    "normalization": ("LayerNorm", "RMSNorm"),
}
"""Arguments of a closed list of words that move memory."""

TAKEN: Mapping[str, str] = {
    "recompute_granularity": "no recomputation", "recompute_method": "uniform", "recompute_modules": "a module that frees nothing",
    "offload_modules": "a module that moves nothing", "transformer_impl": "transformer_engine", "attention_backend": "auto",
    "moe_token_dispatcher_type": "alltoall", "cross_entropy_fusion_impl": "native", "data_parallel_sharding_strategy": "no_shard",
    "fp8": "hybrid", "fp8_format": "hybrid", "fp8_recipe": "blockwise", "main_params_dtype": "fp32", "exp_avg_dtype": "fp32",
    "exp_avg_sq_dtype": "fp32", "optimizer": "adam", "position_embedding_type": "rope", "normalization": "LayerNorm",
}
"""What an unknown word of each is counted as."""


def known_word(args: Args, name: str) -> str | None:
    """The word of an argument without the name of its type (`AttnBackend.flash`); None where it is not given or not known."""
    value = args.get(name)
    word = "" if value is None or value is False else _bare(value)
    return word if word in CHOICES[name] else None


def unknown_words(args: Args) -> list[tuple[str, Any]]:
    """Each argument of a closed list with each of its words that is not in it."""
    return [(name, word) for name in CHOICES for word in _strangers(name, args.get(name))]


def refuse_words(args: Args) -> None:
    """Raise LedgerError for the first word that Megatron would not take: for arguments that a person wrote."""
    for name, word in unknown_words(args):
        raise LedgerError(f"argument {name} is {word!r:.60}; {' or '.join(CHOICES[name])} would fit")


def _strangers(name: str, value: Any) -> Iterator[Any]:
    """The words of a value that are not of the argument's list; nothing given is no word."""
    if value is None or value is False:
        return
    for word in listed(value) if name.endswith("_modules") else [value]:
        if _bare(word) not in CHOICES[name]:
            yield word


def listed(value: Any) -> list[str]:
    """The words of a list, or of the text that a dump or a file of settings has for one."""
    words = value if isinstance(value, list | tuple) else str(value or "").replace(",", " ").strip("[]()").split()
    return [str(word).strip("'\"") for word in words]


def _bare(word: Any) -> str:
    return str(word).split(".")[-1]
