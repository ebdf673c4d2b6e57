"""Tensors a layer keeps from its forward to its backward, one micro-batch, by name.

Source: Transformer Engine `module/layernorm_linear.py`, `attention/dot_product_attention/backends.py`, Megatron-Core
`transformer/{attention,multi_latent_attention,mlp}.py`, `fusions/`. S tokens of a context-parallel rank, T tokens outside
sharded GEMMs (S/t with sequence parallelism), t TP. Megatron prints s·b·h·(18 + 4·f/h)/t, which has two dropout masks, no
gate, no GQA and no scores; nothing here is fitted.
"""

from __future__ import annotations

from analysis.expected.model import Model
from analysis.expected.options import Options

Saved = dict[str, int]


def dense_layer(model: Model, options: Options, kernel: str) -> Saved:
    """Attention and MLP of a dense layer."""
    return {**attention(model, options, kernel), **mlp(model, options, model.ffn)}


def attention(model: Model, options: Options, kernel: str) -> Saved:
    """Self-attention with its norm, output projection and residual."""
    if model.mla:
        return _latent(model, options, kernel)
    width, sharded = options.weight_bytes, options.tokens
    groups = max(model.groups // options.tp, 1) * model.head_width
    query = model.query // options.tp
    saved = {**_norm("attention", model, options), "qkv": width * (query + 2 * groups) * sharded,
             **_core(model, options, kernel, model.heads // options.tp, model.head_width), "attention_output": width * query * sharded,
             **_mask("attention", model, options)}
    if model.qk_norm:
        saved["qk_norm"] = width * (query + groups) * sharded
    return saved


def mlp(model: Model, options: Options, ffn: int) -> Saved:
    """A dense MLP with its norm and residual."""
    return {**_norm("mlp", model, options), **mlp_inner(model, options, ffn // options.tp, options.tokens), **_mask("mlp", model, options)}


def mlp_inner(model: Model, options: Options, ffn: int, tokens: int, prefix: str = "mlp") -> Saved:
    """First GEMM's output and the activation's output; an unfused gate keeps its halves and their product besides."""
    width, gated = options.weight_bytes, model.gated
    out = width * model.gate * ffn * tokens
    extra = 0
    if not options.fused_activation:
        extra = (width * 2 * ffn * tokens) if gated else (width * ffn * tokens if model.bias else 0)
    return {f"{prefix}_fc1": out + extra, f"{prefix}_act": width * ffn * tokens}


def _norm(name: str, model: Model, options: Options) -> Saved:
    """A norm's input, which is the residual stream, its output, and its statistics."""
    tokens = options.local_tokens
    return {f"{name}_input": options.residual_bytes * model.hidden * tokens, f"{name}_norm": options.weight_bytes * model.hidden * tokens,
            f"{name}_norm_statistics": 4 * model.norm * tokens}


def _mask(name: str, model: Model, options: Options) -> Saved:
    return {f"{name}_dropout_mask": model.hidden * options.local_tokens} if options.hidden_dropout else {}


def _core(model: Model, options: Options, kernel: str, heads: int, width: int) -> Saved:
    """Log-sum-exp of a fused kernel, or the scores of an unfused one: softmax, and with dropout its mask and output.

    Flash attention wants the batch first and keeps its own transposed copy of the output where there is more than one sequence.
    """
    if kernel in ("fused", "flash"):
        copied = kernel == "flash" and options.micro_batch > 1
        again = {"attention_output_copy": options.weight_bytes * heads * width * options.tokens} if copied else {}
        return {"log_sum_exp": 4 * heads * options.tokens} | again
    scores = heads * options.sequence // options.cp * options.tokens
    dropped = (1 + options.weight_bytes) if options.attention_dropout else 0
    return {"scores": (options.weight_bytes + dropped) * scores}


def _latent(model: Model, options: Options, kernel: str) -> Saved:
    """Multi-latent attention: latents on T tokens, heads on S/t."""
    width, heads, tokens, local = options.weight_bytes, model.heads // options.tp, options.tokens, options.local_tokens
    query = heads * (model.nope_width + model.rope_width)
    value = heads * model.value_width
    return {**_norm("attention", model, options),
            "q_latent": 2 * width * model.q_latent * local, "kv_latent": width * (2 * model.kv_latent + model.rope_width) * local,
            "qkv": width * (2 * query + value) * tokens, **_core(model, options, kernel, heads, model.value_width),
            "attention_output": width * value * tokens, **_mask("attention", model, options)}
