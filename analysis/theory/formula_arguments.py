"""The arguments that Megatron's printed formula reads, with Megatron's defaults filled in and each filled default listed.

Source: `megatron/training/arguments.py` (defaults and what `validate_args` derives). `None` counts as not given where the
formula could not compute with it. Sizes that a model cannot do without (hidden size, layers, heads, sequence length,
micro-batch, padded vocabulary) are never guessed: one sentence names the one that is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from analysis.theory.arguments import Args, native_args, padded_vocabulary, whole
from analysis.theory.stages import virtual_stages
from ingest.errors import LedgerError


@dataclass(frozen=True, slots=True)
class FormulaArguments:
    """Megatron's own names; sizes are numbers of elements, ranks or layers."""

    hidden_size: int
    num_layers: int
    num_attention_heads: int
    seq_length: int
    micro_batch_size: int
    padded_vocab_size: int
    tensor_model_parallel_size: int
    pipeline_model_parallel_size: int
    context_parallel_size: int
    data_parallel_size: int
    world_size: int
    expert_model_parallel_size: int
    expert_tensor_parallel_size: int
    kv_channels: int
    ffn_hidden_size: int
    group_query_attention: bool
    num_query_groups: int
    swiglu: bool
    normalization: str
    untie_embeddings_and_output_weights: bool
    add_bias_linear: bool
    sequence_parallel: bool
    recompute_granularity: str | None
    use_distributed_optimizer: bool
    virtual_pipeline_model_parallel_size: int | None
    num_experts: int | None
    moe_router_topk: int
    moe_ffn_hidden_size: int
    moe_layer_freq: int | list[int]
    moe_shared_expert_intermediate_size: int
    moe_shared_expert_gate: bool
    moe_latent_size: int | None
    mtp_num_layers: int | None
    multi_latent_attention: bool
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_head_dim: int
    qk_pos_emb_head_dim: int
    v_head_dim: int
    is_hybrid_model: bool
    hybrid_layer_pattern: str | None


_REQUIRED = ("hidden_size", "num_layers", "num_attention_heads", "seq_length", "micro_batch_size")
_NULLABLE = ("recompute_granularity", "virtual_pipeline_model_parallel_size", "num_experts", "moe_latent_size", "mtp_num_layers", "q_lora_rank",
             "hybrid_layer_pattern")


def _ffn(args: Args) -> int:
    hidden: int = args["hidden_size"]
    return int((4 * hidden * 2 / 3) / 64) * 64 if args["swiglu"] else 4 * hidden


_DEFAULTS: dict[str, Any | Callable[[Args], Any]] = {
    "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1, "expert_model_parallel_size": 1,
    "expert_tensor_parallel_size": lambda args: args["tensor_model_parallel_size"],
    "kv_channels": lambda args: args["hidden_size"] // args["num_attention_heads"],
    "swiglu": False, "ffn_hidden_size": _ffn, "group_query_attention": False, "num_query_groups": 1, "normalization": "LayerNorm",
    "untie_embeddings_and_output_weights": False, "add_bias_linear": True, "sequence_parallel": False, "use_distributed_optimizer": False,
    "moe_router_topk": 2, "moe_ffn_hidden_size": lambda args: args["ffn_hidden_size"], "moe_layer_freq": 1,
    "moe_shared_expert_intermediate_size": 0, "moe_shared_expert_gate": False, "multi_latent_attention": False, "kv_lora_rank": 32,
    "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128, "is_hybrid_model": False,
}
_UNSAID = {"moe_shared_expert_intermediate_size", "moe_ffn_hidden_size"}
"""Defaults that stand for Megatron's own None and are not worth listing when the argument is given as None."""


def formula_arguments(args: Args) -> tuple[FormulaArguments, dict[str, Any]]:
    """The formula's arguments, and the defaults that were filled in, by name.

    Raises LedgerError with one sentence for a required argument that is missing or no number.
    """
    given = native_args(args)
    known: dict[str, Any] = {name: whole(given, name) for name in _REQUIRED}
    filled: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = given.get(name)
        if value is None:
            value = default(known) if callable(default) else default
            if name not in given or name not in _UNSAID:
                filled[name] = value
        known[name] = value
    known.update({name: given.get(name) for name in _NULLABLE})
    if known["virtual_pipeline_model_parallel_size"] is None and (derived := virtual_stages(given)):
        known["virtual_pipeline_model_parallel_size"] = filled["virtual_pipeline_model_parallel_size"] = derived
    _fill_vocabulary(given, known, filled)
    _fill_world(given, known, filled)
    return _typed(known), filled


def _fill_vocabulary(given: Args, known: dict[str, Any], filled: dict[str, Any]) -> None:
    padded = padded_vocabulary(given)
    if padded is None:
        raise LedgerError("argument padded_vocab_size is missing; the size after `new size:` in the log's `> padded vocab` line would fit, "
                          "or vocab_size with make_vocab_size_divisible_by")
    known["padded_vocab_size"] = padded
    if not given.get("padded_vocab_size"):
        filled["padded_vocab_size"] = padded


def _fill_world(given: Args, known: dict[str, Any], filled: dict[str, Any]) -> None:
    """World size and data-parallel size, each from the other where one is not given."""
    model = 1
    for axis in ("tensor_model", "pipeline_model", "context"):
        model *= whole(known, f"{axis}_parallel_size")
    world, dp = given.get("world_size"), given.get("data_parallel_size")
    if world is None and dp is None:
        raise LedgerError("argument world_size is missing; the number of ranks, or data_parallel_size, would fit")
    if dp is None:
        filled["data_parallel_size"] = dp = max(whole(given, "world_size") // model, 1)
    if world is None:
        filled["world_size"] = world = whole(given, "data_parallel_size") * model
    known["world_size"], known["data_parallel_size"] = world, dp


def _typed(known: dict[str, Any]) -> FormulaArguments:
    """Every field of the declared type, or a sentence."""
    for field in fields(FormulaArguments):
        name, kind, value = field.name, str(field.type), known[field.name]
        if "None" in kind and value is None:
            continue
        if name == "moe_layer_freq" and isinstance(value, list):
            if not all(isinstance(item, int) for item in value):
                raise LedgerError(f"argument moe_layer_freq is {value!r}; a list of 0 and 1, one a layer, would fit")
        elif "int" in kind:
            known[name] = whole(known, name, least=0 if name in ("moe_shared_expert_intermediate_size", "mtp_num_layers") else 1)
        elif kind.startswith("bool"):
            if value not in (True, False):
                raise LedgerError(f"argument {name} is {value!r}; True or False would fit")
            known[name] = bool(value)
        else:
            known[name] = str(value)
    return FormulaArguments(**known)
