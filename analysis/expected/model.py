"""The options of a run that move memory, checked once and typed: what every class of the expected ledger reads.

Source: `megatron/training/arguments.py` (defaults, and what `validate_args` derives from other arguments). Names follow
Megatron's. What is given but unknown here is ignored by the classes and listed in `assumptions`, so that an option this
ledger does not price lowers the stated confidence instead of failing. Sizes a model cannot do without are never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.theory.arguments import Args, fraction, native_args, padded_vocabulary, whole
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
    tied: bool
    experts: int
    top_k: int
    expert_ffn: int
    shared_ffn: int
    shared_gate: bool
    latent: int
    grouped_gemm: bool
    moe_pattern: tuple[int, ...]
    expert_bias: bool
    mla: bool
    q_latent: int
    kv_latent: int
    nope_width: int
    rope_width: int
    value_width: int
    mtp: int
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


@dataclass(frozen=True, slots=True)
class Options:
    """How the run trains: precisions, sharding of state, recomputation, kernels. Bytes an element where a name ends in `_bytes`."""

    tp: int
    cp: int
    sequence_parallel: bool
    sequence: int
    micro_batch: int
    weight_bytes: int
    gradient_bytes: int
    half: bool
    fp16: bool
    distributed_optimizer: bool
    instances: int
    optimizer: str
    precision_aware: bool
    master_bytes: int
    moment_bytes: int
    offload_fraction: float
    overlap_gradients: bool
    overlap_parameters: bool
    pad_buckets: bool
    fsdp: str | None
    fp8: str | None
    fp8_recipe: str
    fp8_parameters: bool
    recompute: str | None
    recompute_method: str | None
    recompute_layers: int
    recompute_modules: frozenset[str]
    transformer_engine: bool
    attention: str | None
    attention_dropout: float
    hidden_dropout: float
    softmax_fp32: bool
    fused_activation: bool
    fused_loss: str | None
    gradient_fusion: bool
    capacity_factor: float | None
    dispatcher: str
    overlap_experts: bool
    defer_embedding: int
    router_bytes: int
    cuda_graph: bool
    residual_bytes: int
    rope: bool
    mask_in_batch: bool
    legacy: bool
    legacy_gradients: bool
    deepspeed: bool
    distributed_inputs: bool

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on a context-parallel rank (S)."""
        return self.sequence * self.micro_batch // self.cp

    @property
    def local_tokens(self) -> int:
        """Tokens a rank works on outside the sharded GEMMs (T): S/t with sequence parallelism."""
        return self.tokens // self.tp if self.sequence_parallel else self.tokens


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
        qkv_bias=bias or bool(args.get("add_qkv_bias")), norm=1 if args.get("normalization") == "RMSNorm" else 2,
        qk_norm=bool(args.get("qk_layernorm")), vocabulary=vocabulary, positions=_positions(args),
        tied_positions=_positions(args) if args.get("deepspeed") and not args.get("untie_embeddings_and_output_weights") else 0,
        tied=not args.get("untie_embeddings_and_output_weights"), experts=experts, top_k=whole(args, "moe_router_topk", 2),
        expert_ffn=whole(args, "moe_ffn_hidden_size", ffn), shared_ffn=whole(args, "moe_shared_expert_intermediate_size", 0, least=0),
        shared_gate=bool(args.get("moe_shared_expert_gate") or args.get("moe_use_shared_expert_gate")),
        latent=whole(args, "moe_latent_size", 0, least=0), grouped_gemm=bool(args.get("moe_grouped_gemm")),
        moe_pattern=_moe_pattern(args, experts), expert_bias=bool(args.get("moe_router_enable_expert_bias")),
        mla=bool(args.get("multi_latent_attention")), q_latent=whole(args, "q_lora_rank", 0, least=0), kv_latent=whole(args, "kv_lora_rank", 32),
        nope_width=whole(args, "qk_head_dim", 128), rope_width=whole(args, "qk_pos_emb_head_dim", 64), value_width=whole(args, "v_head_dim", 128),
        mtp=whole(args, "mtp_num_layers", 0, least=0), pattern=pattern.split("/")[0], mamba=_mamba(args, hidden),
        bf16_layers=_bf16_layers(args), yarn_positions=_yarn_positions(args))


def _groups(args: Args, heads: int) -> int:
    """Without grouped-query attention every head has keys and values of its own, whatever num_query_groups says."""
    return whole(args, "num_query_groups", heads) if args.get("group_query_attention") else heads


def _positions(args: Args) -> int:
    """Rows of the learned position embedding, Megatron's default kind; 0 for any other."""
    if (args.get("position_embedding_type") or "learned_absolute") != "learned_absolute" or args.get("add_position_embedding") is False:
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


def _mamba(args: Args, hidden: int) -> Mamba:
    width = whole(args, "mamba_head_dim", 64)
    return Mamba(whole(args, "mamba_state_dim", 128), width, whole(args, "mamba_num_groups", 8),
                 whole(args, "mamba_num_heads", max(2 * hidden // width, 1)))


_DTYPES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1,
           "torch.float32": 4, "torch.bfloat16": 2, "torch.float16": 2, "torch.uint8": 1}


def read_options(args: Args) -> Options:
    """How the run trains. Raises LedgerError with one sentence for a value that cannot be."""
    tp = whole(args, "tensor_model_parallel_size", 1)
    bf16, fp16 = bool(args.get("bf16")), bool(args.get("fp16"))
    fsdp = bool(args.get("use_megatron_fsdp") or args.get("use_custom_fsdp") or args.get("use_torch_fsdp2"))
    granularity = _granularity(args)
    legacy, deepspeed = "DDP_impl" in args, bool(args.get("deepspeed"))
    sequence, micro = whole(args, "seq_length"), whole(args, "micro_batch_size")
    cp = whole(args, "context_parallel_size", 1)
    return Options(
        tp=tp, cp=cp, sequence_parallel=bool(args.get("sequence_parallel")) and tp > 1, sequence=sequence, micro_batch=micro,
        weight_bytes=2 if bf16 or fp16 else 4, gradient_bytes=_gradient_bytes(args, bf16, fp16), half=bf16 or fp16, fp16=fp16,
        distributed_optimizer=bool(args.get("use_distributed_optimizer")) or fsdp, instances=whole(args, "num_distributed_optimizer_instances", 1),
        optimizer=str(args.get("optimizer") or "adam"), precision_aware=bool(args.get("use_precision_aware_optimizer")),
        master_bytes=_dtype(args, "main_params_dtype"), moment_bytes=_dtype(args, "exp_avg_dtype") + _dtype(args, "exp_avg_sq_dtype"),
        offload_fraction=fraction(args, "optimizer_offload_fraction", 1.0) if args.get("optimizer_cpu_offload") else 0.0,
        overlap_gradients=bool(args.get("overlap_grad_reduce")), overlap_parameters=bool(args.get("overlap_param_gather")),
        pad_buckets=bool(args.get("ddp_pad_buckets_for_high_nccl_busbw")),
        fsdp=_sharding(args) if fsdp else None,
        fp8=str(args.get("fp8") or args.get("fp8_format")) if args.get("fp8") or args.get("fp8_format") else None,
        fp8_recipe=str(args.get("fp8_recipe") or "delayed"), fp8_parameters=bool(args.get("fp8_param_gather") or args.get("fp8_param")),
        recompute=granularity,
        recompute_method=args.get("recompute_method") or args.get("activations_checkpoint_method"),
        recompute_layers=whole(args, "recompute_num_layers", _old_count(args)), recompute_modules=_modules(args, granularity),
        transformer_engine=(args.get("transformer_impl") or ("local" if legacy else "transformer_engine")) != "local", attention=_attention(args),
        attention_dropout=fraction(args, "attention_dropout", 0.1), hidden_dropout=fraction(args, "hidden_dropout", 0.1),
        softmax_fp32=bool(args.get("attention_softmax_in_fp32") or args.get("apply_query_key_layer_scaling")), fused_activation=_fused(args),
        fused_loss=str(args.get("cross_entropy_fusion_impl") or "native") if args.get("cross_entropy_loss_fusion") else None,
        gradient_fusion=args.get("gradient_accumulation_fusion", not legacy) is not False, capacity_factor=_capacity(args),
        dispatcher=str(args.get("moe_token_dispatcher_type") or "allgather"), overlap_experts=bool(args.get("overlap_moe_expert_parallel_comm")),
        defer_embedding=_deferred(args), router_bytes=_DTYPES.get(str(args.get("moe_router_dtype") or ""), 4),
        cuda_graph=bool(args.get("cuda_graph_impl") not in (None, "none") or args.get("enable_cuda_graph") or args.get("external_cuda_graph")),
        residual_bytes=4 if args.get("fp32_residual_connection") else 2 if bf16 or fp16 else 4,
        rope=args.get("position_embedding_type") in ("rope", "yarn", "mrope"),
        mask_in_batch=args.get("create_attention_mask_in_dataloader") is not False,
        legacy=legacy, legacy_gradients=legacy and not deepspeed and not args.get("use_contiguous_buffers_in_ddp"), deepspeed=deepspeed,
        distributed_inputs=bool(args.get("distribute_saved_activations") or args.get("distribute_checkpointed_activations")))


def _granularity(args: Args) -> str | None:
    """Recomputation under its present name, or under the names of releases before 2022."""
    if args.get("recompute_granularity"):
        return str(args["recompute_granularity"])
    if args.get("checkpoint_activations") or args.get("activations_checkpoint_method"):
        return "full"
    return "selective" if args.get("recompute_activations") else None


def _old_count(args: Args) -> int:
    return whole(args, "activations_checkpoint_num_layers", whole(args, "checkpoint_num_layers", 1))


def _capacity(args: Args) -> float | None:
    """The capacity factor of the experts; Megatron takes a negative one as none."""
    factor = args.get("moe_expert_capacity_factor")
    if factor is None or factor is False:
        return None
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        raise LedgerError(f"argument moe_expert_capacity_factor is {factor!r:.60}; a number would fit")
    return float(factor) if factor > 0 else None


def _sharding(args: Args) -> str:
    """FSDP2 of PyTorch always shards everything; Megatron's own by its strategy, nothing by default."""
    return "optim_grads_params" if args.get("use_torch_fsdp2") else str(args.get("data_parallel_sharding_strategy") or "no_shard")


def _gradient_bytes(args: Args, bf16: bool, fp16: bool) -> int:
    """bf16 switches fp32 accumulation on by itself; fp16 does not."""
    if args.get("grad_reduce_in_bf16"):
        return 2
    if args.get("accumulate_allreduce_grads_in_fp32") or bf16 or not fp16:
        return 4
    return 2


def _dtype(args: Args, name: str) -> int:
    return _DTYPES.get(str(args.get(name) or "fp32").split(".")[-1], 4)


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


def _modules(args: Args, granularity: Any) -> frozenset[str]:
    if granularity != "selective":
        return frozenset()
    given = args.get("recompute_modules")
    if given is None:
        return frozenset({"core_attn"})
    words = given if isinstance(given, list) else str(given).replace(",", " ").strip("[]()").split()
    return frozenset(str(word).strip("'\"") for word in words)


def _attention(args: Args) -> str | None:
    """The attention kernel asked for; None where it was left to Transformer Engine."""
    backend = args.get("attention_backend")
    if args.get("use_flash_attn"):
        return "flash"
    name = str(backend).split(".")[-1] if backend is not None else None
    return None if name in (None, "auto", "None") else name


def _fused(args: Args) -> bool:
    if args.get("swiglu"):
        return args.get("bias_swiglu_fusion") is not False
    return args.get("bias_gelu_fusion") is not False and not args.get("no_bias_gelu_fusion") and args.get("add_bias_linear") is not False


def _deferred(args: Args) -> int:
    """Micro-batches whose output-layer gradient waits: 0 none, -1 all."""
    if not args.get("defer_embedding_wgrad_compute"):
        return 0
    return whole(args, "wgrad_deferral_limit", 0, least=0) or -1


def prepared(args: Args) -> dict[str, Any]:
    """Arguments with native values, and lists that a dump prints without commas."""
    return native_args(args)
