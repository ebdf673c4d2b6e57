"""What fully sharded data parallelism divides, and the gathered units it works on.

Source: Megatron-Core `distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py`. `optim` shards the optimizer, `optim_grads` gradients too,
`optim_grads_params` weights too. A unit is a transformer layer; embedding and head are units of their own, often the largest.
"""

from __future__ import annotations

from analysis.expected.model import Options

_SHARDED = {"no_shard": frozenset[str](), "optim": frozenset({"optimizer"}), "optim_grads": frozenset({"optimizer", "gradients"}),
            "optim_grads_params": frozenset({"optimizer", "gradients", "weights"})}


def divided(kind: str, options: Options, shards: int) -> int:
    """By how much FSDP divides `weights` or `gradients`; 1 without it."""
    if options.fsdp is None:
        return 1
    return shards if kind in _SHARDED.get(options.fsdp, _SHARDED["optim_grads_params"]) else 1


def gathered_bytes(unit_elements: int, options: Options) -> int:
    """The running unit and the one fetched ahead, unsharded, and the unsharded gradient of the running one."""
    if options.fsdp != "optim_grads_params":
        return 0
    return unit_elements * (2 * options.weight_bytes + options.gradient_bytes)
