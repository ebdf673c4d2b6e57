"""The shapes of a model, checked once and typed: what every class of the expected ledger reads beside `options.py`.

Source: `megatron/training/arguments.py` (defaults, and what `validate_args` derives from other arguments). What is given but has
no price here is ignored by the classes and named in `assumptions`. Sizes a model cannot do without are never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.expected.words import known_word
from analysis.theory.arguments import Args, native_args, padded_vocabulary, whole
from ingest.errors import LedgerError


@dataclass(frozen=True, slots=True)
class Model:
    """Shapes of the model, widths in elements; `gated` is SwiGLU-like, `norm` the vectors of one norm (1 RMSNorm, 2 LayerNorm)."""

    hidden: int
    layers: int
    heads: int
    groups: int
    head_width: int
    ffn: int
    gated: bool
    bias: bool
    qkv_bias: bool
    norm: int
    qk_norm: bool
    vocabulary: int
    positions: int
    tied_positions: int
    experts: int
    top_k: int
    expert_ffn: int
    shared_ffn: int
    shared_gate: bool
    latent: int
    grouped_gemm: bool
    moe_pattern: tuple[int, ...]
    mla: bool
    q_latent: int
    kv_latent: int
    nope_width: int
    rope_width: int
    value_width: int
    mtp_kinds: tuple[str, ...]
    mtp_repeated: bool
    pattern: str
    mamba: Mamba
    bf16_layers: frozenset[int]
    yarn_positions: int

    @property
    def query(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_width

    @property
    def gate(self) -> int:
        """Branches of the first MLP matrix: 2 gated, 1 plain."""
        return 2 if self.gated else 1


@dataclass(frozen=True, slots=True)
class Mamba:
    """A Mamba-2 mixer: state and group widths, heads, and the width of the causal convolution."""

    state: int = 128
    head_width: int = 64
    groups: int = 8
    heads: int = 0
    convolution: int = 4


def read_model(args: Args) -> Model:
    """The model's shapes. Raises LedgerError with one sentence where a size is missing or no number."""
    hidden, heads = whole(args, "hidden_size"), whole(args, "num_attention_heads")
    gated = bool(args.get("swiglu") or args.get("gated_linear_unit"))
    ffn = whole(args, "ffn_hidden_size", int((4 * hidden * 2 / 3) / 64) * 64 if args.get("swiglu") else 4 * hidden)
    vocabulary = padded_vocabulary(args)
    if vocabulary is None:
        raise LedgerError("argument padded_vocab_size is missing; the size after `new size:` in the log's `> padded vocab` line would fit, "
                          "or vocab_size with make_vocab_size_divisible_by")
    pattern = str(args.get("hybrid_layer_pattern") or args.get("hybrid_override_pattern") or "")
    experts = whole(args, "num_experts", 0, least=0)
    bias = args.get("add_bias_linear") is not False
    return Model(
        hidden=hidden, layers=whole(args, "num_layers"), heads=heads, groups=_groups(args, heads),
        head_width=whole(args, "kv_channels", max(hidden // heads, 1)), ffn=ffn, gated=gated, bias=bias,
        qkv_bias=bias or bool(args.get("add_qkv_bias")), norm=1 if known_word(args, "normalization") == "RMSNorm" else 2,
        qk_norm=bool(args.get("qk_layernorm")), vocabulary=vocabulary, positions=_positions(args),
        tied_positions=_positions(args) if args.get("deepspeed") and not args.get("untie_embeddings_and_output_weights") else 0,
        experts=experts, top_k=whole(args, "moe_router_topk", 2),
        expert_ffn=whole(args, "moe_ffn_hidden_size", ffn), shared_ffn=whole(args, "moe_shared_expert_intermediate_size", 0, least=0),
        shared_gate=bool(args.get("moe_shared_expert_gate") or args.get("moe_use_shared_expert_gate")),
        latent=whole(args, "moe_latent_size", 0, least=0), grouped_gemm=bool(args.get("moe_grouped_gemm")),
        moe_pattern=_moe_pattern(args, experts),
        mla=bool(args.get("multi_latent_attention")), q_latent=whole(args, "q_lora_rank", 0, least=0), kv_latent=whole(args, "kv_lora_rank", 32),
        nope_width=whole(args, "qk_head_dim", 128), rope_width=whole(args, "qk_pos_emb_head_dim", 64), value_width=whole(args, "v_head_dim", 128),
        mtp_kinds=_mtp_kinds(args, pattern, experts), mtp_repeated=bool(args.get("mtp_use_repeated_layer")),
        pattern=pattern.split("/")[0], mamba=_mamba(args, hidden),
        bf16_layers=_bf16_layers(args), yarn_positions=_yarn_positions(args))


def _groups(args: Args, heads: int) -> int:
    """Without grouped-query attention every head has keys and values of its own, whatever num_query_groups says."""
    return whole(args, "num_query_groups", heads) if args.get("group_query_attention") else heads


def _positions(args: Args) -> int:
    """Rows of the learned position embedding, Megatron's default kind; 0 for any other."""
    other = args.get("position_embedding_type") and known_word(args, "position_embedding_type") != "learned_absolute"
    if other or args.get("add_position_embedding") is False:
        return 0
    return whole(args, "max_position_embeddings", whole(args, "seq_length"))


def _moe_pattern(args: Args, experts: int) -> tuple[int, ...]:
    layers = whole(args, "num_layers")
    if not experts:
        return (0,) * layers
    frequency: Any = args.get("moe_layer_freq") or 1
    if isinstance(frequency, list):
        if len(frequency) != layers or not all(item in (0, 1) for item in frequency):
            raise LedgerError(f"argument moe_layer_freq is {frequency!r:.80}; a list of {layers} times 0 or 1 would fit")
        return tuple(int(item) for item in frequency)
    every = whole(args, "moe_layer_freq", 1)
    return tuple(int(layer % every == 0) for layer in range(layers))


def _mtp_kinds(args: Args, pattern: str, experts: int) -> tuple[str, ...]:
    """Kinds of the layers of one MTP depth: a hybrid pattern writes them after its slash, else it is one layer as the last one is."""
    written = pattern.split("/")[1:]
    if written:
        return tuple(written[0])
    return (pattern.replace("|", "")[-1:] if pattern else "moe" if _moe_pattern(args, experts)[-1] else "dense",)


def _mamba(args: Args, hidden: int) -> Mamba:
    width = whole(args, "mamba_head_dim", 64)
    return Mamba(whole(args, "mamba_state_dim", 128), width, whole(args, "mamba_num_groups", 8),
                 whole(args, "mamba_num_heads", max(2 * hidden // width, 1)))


def _bf16_layers(args: Args) -> frozenset[int]:
    """Layers that a low-precision recipe leaves alone (`first_last_layers_bf16`: by default one at each end)."""
    if not args.get("first_last_layers_bf16"):
        return frozenset()
    layers = whole(args, "num_layers")
    start, end = (whole(args, f"num_layers_at_{where}_in_bf16", 1, least=0) for where in ("start", "end"))
    return frozenset(layer for layer in range(layers) if layer < start or layer >= layers - end)


def _yarn_positions(args: Args) -> int:
    """Positions whose cosines and sines every latent-attention layer caches: YaRN is Megatron's default rope there; 0 without."""
    if not args.get("multi_latent_attention") or (args.get("rope_type") or "yarn") != "yarn":
        return 0
    return whole(args, "original_max_position_embeddings", 4096)


_SWITCHED_OFF = {
    "no_create_attention_mask_in_dataloader": "create_attention_mask_in_dataloader", "no_bias_gelu_fusion": "bias_gelu_fusion",
    "no_position_embedding": "add_position_embedding", "no_use_contiguous_buffers_in_local_ddp": "use_contiguous_buffers_in_local_ddp",
}
"""Command-line switches of this ledger's options that name the opposite of their argument."""


def prepared(args: Args) -> dict[str, Any]:
    """Arguments with native values; a hybrid pattern gives the number of layers where that is not given, as in Megatron.

    A launch command's switches that say no are turned into the argument they set.
    """
    known = native_args(args)
    for switch, name in _SWITCHED_OFF.items():
        if known.get(switch) is True:
            known[name] = False
    pattern = str(known.get("hybrid_layer_pattern") or "").split("/")[0].replace("|", "")
    if pattern and known.get("num_layers") is None:
        known["num_layers"] = len(pattern)
    if pattern and known.get("mtp_num_layers") is None and (depths := str(known["hybrid_layer_pattern"]).count("/")):
        known["mtp_num_layers"] = depths
    return known
