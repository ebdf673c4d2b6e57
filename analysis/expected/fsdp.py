"""What fully sharded data parallelism divides, and the gathered units it works on.

Source: Megatron-Core `distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py`. `optim` shards the optimizer, `optim_grads` gradients too,
`optim_grads_params` weights too. A unit is a transformer layer; embedding and head are units of their own, often the largest.
"""

from __future__ import annotations

from collections.abc import Iterable

from analysis.expected.options import Options
from analysis.expected.parameters import Tensor

_SHARDED = {"no_shard": frozenset[str](), "optim": frozenset({"optimizer"}), "optim_grads": frozenset({"optimizer", "gradients"}),
            "optim_grads_params": frozenset({"optimizer", "gradients", "weights"})}


def divided(kind: str, options: Options, shards: int) -> int:
    """By how much FSDP divides `weights` or `gradients`; 1 without it."""
    if options.fsdp is None:
        return 1
    return shards if kind in _SHARDED.get(options.fsdp, _SHARDED["optim_grads_params"]) else 1


def gathered_bytes(tensors: Iterable[Tensor], options: Options) -> int:
    """The largest unit gathered ahead, and a running layer gathered with its unsharded gradient; embedding and head are units too."""
    if options.fsdp != "optim_grads_params":
        return 0
    listed = list(tensors)
    layer = max((tensor.total for tensor in listed if tensor.kind not in ("embedding", "head")), default=0)
    largest = max((tensor.total for tensor in listed), default=0)
    return largest * options.weight_bytes + layer * (options.weight_bytes + options.gradient_bytes)
