"""Tensors a mixture-of-experts MLP keeps from forward to backward, one micro-batch, with balanced routing.

Source: Megatron-Core `transformer/moe/{moe_layer,router,token_dispatcher,experts}.py`. C tokens reach this rank's experts:
k·T·etp when balanced (the expectation here), at most T·etp·EP·min(k, E/EP). Without a gate the activation is kept before and after
it is weighted by the probabilities; the gated kernel fuses the weighting. Megatron's formula has no term for it at all.
"""

from __future__ import annotations

from analysis.expected.activations import Saved, mlp_inner
from analysis.expected.model import Model
from analysis.expected.options import Options
from analysis.theory.layout import ParallelSizes


def routed_tokens(model: Model, options: Options, sizes: ParallelSizes) -> int:
    """Tokens of this rank's experts in one layer and micro-batch, balanced; a capacity factor caps and pads them."""
    factor = options.capacity_factor or 1.0
    return int(model.top_k * options.local_tokens * sizes.etp * factor)


def moe_mlp(model: Model, options: Options, sizes: ParallelSizes) -> Saved:
    """Norm, router, dispatch, experts and shared expert."""
    width, tokens = options.weight_bytes, options.local_tokens
    routed = routed_tokens(model, options, sizes)
    experts = mlp_inner(model, options, model.expert_ffn // sizes.etp, routed, "experts")
    if not model.gated and not options.fused_weighting:
        experts["experts_unweighted"] = width * model.expert_ffn // sizes.etp * routed
    saved = {"mlp_input": options.residual_bytes * model.hidden * tokens, "pre_mlp_norm": width * model.hidden * tokens,
             "router": (2 * options.router_bytes + 5) * model.experts * tokens, "row_maps": 8 * model.top_k * tokens,
             "experts_input": width * (model.latent or model.hidden) * routed, **experts, "probabilities": 4 * routed}
    if model.shared_ffn:
        saved |= mlp_inner(model, options, model.shared_ffn // options.tp, options.tokens, "shared")
    if options.hidden_dropout:
        saved["mlp_dropout_mask"] = model.hidden * tokens
    return saved
