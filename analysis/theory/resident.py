"""What a parameter costs on a rank: weights, gradients and optimizer state in bytes, between steps and at the moment Megatron logs.

Source: Megatron-Core's `param_and_grad_buffer.py`, `optimizer/` and Transformer Engine's FusedAdam as of 2026-08-22. Half-precision gradients get an
fp32 copy in the optimizer's step that lives until the next `zero_grad`, so the logged figure holds 4 bytes more than the steps
that follow it; the printed formula's 18, or 6 + 12/DP, is one of these cases.
"""

from __future__ import annotations

from typing import Any

from analysis.theory.arguments import Args, fraction, whole


def resident_bytes(args: Args, *, expert: bool = False) -> tuple[float, float]:
    """Bytes a parameter: idle, and at the logged moment. `args` are native and need world sizes; experts have shards of their own."""
    shards = _shards(args, expert=expert)
    if not (args.get("bf16") or args.get("fp16")) and "bf16" in args:
        return 8 + 8 / shards, 8 + 8 / shards
    gradients = 2 if half_gradients(args) else 4
    state = optimizer_width(args) / shards
    if args.get("optimizer_cpu_offload"):
        state *= 1 - fraction(args, "optimizer_offload_fraction", 1.0)
    copied = 4 / shards if gradients == 2 and not args.get("use_precision_aware_optimizer") else 0
    return 2 + gradients + state, 2 + gradients + state + copied


def half_gradients(args: Args) -> bool:
    """Whether gradients are kept in 16 bits: Megatron switches fp32 accumulation on for bf16, not for fp16."""
    if args.get("grad_reduce_in_bf16") or str(args.get("main_grads_dtype") or "").endswith(("bf16", "bfloat16")):
        return True
    if args.get("grad_reduce_in_fp32") is False:
        return True
    given = args.get("accumulate_allreduce_grads_in_fp32")
    return (given is False and bool(args.get("bf16") or args.get("fp16"))) or (given is None and args.get("fp16") is True)


def optimizer_width(args: Args) -> int:
    """Bytes of master weight and moments a parameter."""
    if not args.get("use_precision_aware_optimizer"):
        return 8 if str(args.get("optimizer") or "adam") in ("sgd", "lion") else 12
    remainders = not args.get("fp8") or args.get("fp8_recipe") in (None, "delayed")
    return (2 if remainders else 4) + width(args.get("exp_avg_dtype")) + width(args.get("exp_avg_sq_dtype"))


def width(dtype: Any) -> int:
    """Bytes an element of a moment's dtype."""
    text = str(dtype or "fp32")
    return 1 if "8" in text else 2 if "16" in text else 4


def _shards(args: Args, *, expert: bool) -> int:
    """Ranks that share one optimizer state."""
    if not args.get("use_distributed_optimizer"):
        return 1
    pp, instances = whole(args, "pipeline_model_parallel_size", 1), whole(args, "num_distributed_optimizer_instances", 1)
    tp, cp = whole(args, "tensor_model_parallel_size", 1), whole(args, "context_parallel_size", 1)
    if args.get("world_size") is None:
        return max(whole(args, "data_parallel_size") * cp // instances, 1)
    inside = whole(args, "expert_tensor_parallel_size", tp) * whole(args, "expert_model_parallel_size", 1) if expert else tp
    return max(whole(args, "world_size") // (inside * pp) // instances, 1)
