"""How a run trains, as far as it moves memory: precisions, sharding of state, recomputation, kernels; checked once and typed.

Source: `megatron/training/arguments.py` (defaults, and what `validate_args` derives). Dumps of releases before 2024 are told by their
`DDP_impl`, an argument that went with the old data-parallel wrapper: their names for recomputation are read too, and what
did not exist then (Transformer Engine layers, fused gradient accumulation) is off where the dump does not name it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.expected.words import CHOICES, known_word, listed
from analysis.theory.arguments import Args, fraction, whole
from analysis.theory.resident import half_gradients
from ingest.errors import LedgerError


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
    distributed_optimizer: bool
    instances: int
    optimizer: str
    precision_aware: bool
    master_bytes: int
    moments_bytes: tuple[int, int]
    expands_moments: bool
    offload_fraction: float
    pad_buckets: bool
    fsdp: str | None
    fsdp_units_are_layers: bool
    fsdp_ahead: int
    fsdp_keeps_ends: bool
    fsdp_double_buffer: bool
    main_weights: bool
    fp8: str | None
    fp8_recipe: str
    fp8_parameters: bool
    recompute: str | None
    recompute_method: str | None
    recompute_layers: int
    recompute_modules: frozenset[str]
    offload_modules: frozenset[str]
    offload_least: int
    offload_share: float
    transformer_engine: bool
    attention: str | None
    attention_dropout: float
    hidden_dropout: float
    fused_activation: bool
    fused_weighting: bool
    fused_loss: str | None
    gradient_fusion: bool
    capacity_factor: float | None
    dispatcher: str
    overlap_experts: bool
    defer_embedding: int
    router_bytes: int
    residual_bytes: int
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


_ZERO_STAGES = (None, "optim", "optim_grads", "optim_grads_params")
_AHEAD = 500_000_000
_DOUBLE_BUFFERS = ("fsdp_double_buffer", "megatron_fsdp_max_pool_double_buffer", "nccl_ub")
_SINCE_ENDS_STAY = ("eval_micro_batch_size", "fp8_output_proj", "mtp_detach_heads", "save_params_interval")
_DTYPES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1}


def read_options(args: Args) -> Options:
    """How the run trains. Raises LedgerError with one sentence for a value that cannot be."""
    tp = whole(args, "tensor_model_parallel_size", 1)
    bf16, fp16 = bool(args.get("bf16")), bool(args.get("fp16"))
    granularity = _granularity(args)
    legacy, deepspeed, sharding = "DDP_impl" in args, bool(args.get("deepspeed")), _sharding(args)
    sequence, micro = whole(args, "seq_length"), whole(args, "micro_batch_size")
    cp = whole(args, "context_parallel_size", 1)
    return Options(
        tp=tp, cp=cp, sequence_parallel=bool(args.get("sequence_parallel")) and tp > 1, sequence=sequence, micro_batch=micro,
        weight_bytes=2 if bf16 or fp16 else 4, gradient_bytes=_gradient_bytes(args), half=bf16 or fp16,
        distributed_optimizer=bool(args.get("use_distributed_optimizer") or sharding),
        instances=whole(args, "num_distributed_optimizer_instances", 1),
        optimizer=known_word(args, "optimizer") or "adam", precision_aware=bool(args.get("use_precision_aware_optimizer")),
        master_bytes=_dtype(args, "main_params_dtype"), moments_bytes=_moments(args),
        expands_moments=_expands(args),
        offload_fraction=fraction(args, "optimizer_offload_fraction", 1.0) if args.get("optimizer_cpu_offload") else 0.0,
        pad_buckets=bool(args.get("ddp_pad_buckets_for_high_nccl_busbw")), fsdp=sharding,
        fsdp_units_are_layers=_megatron_fsdp(args), fsdp_ahead=_ahead(args), fsdp_keeps_ends=_keeps_ends(args),
        fsdp_double_buffer=_megatron_fsdp(args) and any(args.get(name) for name in _DOUBLE_BUFFERS),
        main_weights=not _left_alone(args, "megatron_fsdp_main_params_dtype") if _megatron_fsdp(args) else bf16 or fp16,
        fp8=str(args.get("fp8") or args.get("fp8_format")) if args.get("fp8") or args.get("fp8_format") else None,
        fp8_recipe=str(args.get("fp8_recipe") or "delayed"), fp8_parameters=bool(args.get("fp8_param_gather") or args.get("fp8_param")),
        recompute=granularity, recompute_method=args.get("recompute_method") or args.get("activations_checkpoint_method"),
        recompute_layers=whole(args, "recompute_num_layers", _old_count(args)), recompute_modules=_modules(args, granularity),
        offload_modules=frozenset(listed(args.get("offload_modules"))) if args.get("fine_grained_activation_offloading") else frozenset(),
        offload_least=whole(args, "min_offloaded_tensor_size", 2**20, least=0), offload_share=fraction(args, "activation_offload_fraction", 1.0),
        transformer_engine=(args.get("transformer_impl") or ("local" if legacy else "transformer_engine")) != "local", attention=_attention(args),
        attention_dropout=fraction(args, "attention_dropout", 0.1), hidden_dropout=fraction(args, "hidden_dropout", 0.1),
        fused_activation=_fused(args), fused_weighting=bool(args.get("use_fused_weighted_squared_relu")),
        fused_loss=str(args.get("cross_entropy_fusion_impl") or "native") if args.get("cross_entropy_loss_fusion") else None,
        gradient_fusion=args.get("gradient_accumulation_fusion", not legacy) is not False, capacity_factor=_capacity(args),
        dispatcher=str(args.get("moe_token_dispatcher_type") or "allgather"), overlap_experts=bool(args.get("overlap_moe_expert_parallel_comm")),
        defer_embedding=_deferred(args), router_bytes=_DTYPES.get(str(args.get("moe_router_dtype") or ""), 4),
        residual_bytes=4 if args.get("fp32_residual_connection") else 2 if bf16 or fp16 else 4,
        mask_in_batch=args.get("create_attention_mask_in_dataloader") is not False,
        legacy=legacy, legacy_gradients=legacy and not deepspeed and not _contiguous(args), deepspeed=deepspeed,
        distributed_inputs=bool(args.get("distribute_saved_activations") or args.get("distribute_checkpointed_activations")))


def _contiguous(args: Args) -> bool:
    """Whether the old data-parallel wrapper kept gradients in one buffer; the argument had two names."""
    return any(args.get(f"use_contiguous_buffers_in_{where}ddp") is True for where in ("", "local_"))


def _granularity(args: Args) -> str | None:
    """Recomputation under its present name, or under the names of releases before 2022."""
    if args.get("recompute_granularity"):
        return known_word(args, "recompute_granularity")
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


def _sharding(args: Args) -> str | None:
    """What is sharded over data-parallel ranks beyond the distributed optimizer, in the words of Megatron-FSDP, whose default is everything since
    core 0.18 and was nothing before; a dump says it. FSDP2 of PyTorch shards everything, DeepSpeed by its stage.
    """
    if args.get("use_torch_fsdp2"):
        return "optim_grads_params"
    if _megatron_fsdp(args):
        given = args.get("data_parallel_sharding_strategy") is not None
        return known_word(args, "data_parallel_sharding_strategy") or ("no_shard" if given else "optim_grads_params")
    stage = whole(args, "zero_stage", 0, least=0) if args.get("deepspeed") else 0
    return _ZERO_STAGES[min(stage, 3)]


def _megatron_fsdp(args: Args) -> bool:
    """Whether Megatron's own FSDP runs, under its present or its first name."""
    return bool(args.get("use_megatron_fsdp") or args.get("use_custom_fsdp")) and not args.get("use_torch_fsdp2")


def _ahead(args: Args) -> int:
    """Elements that are gathered ahead of a running unit: half of a communication unit with Megatron-FSDP, elsewhere the next unit."""
    if not _megatron_fsdp(args):
        return 1
    unit = args.get("suggested_communication_unit_size")
    return whole(args, "suggested_communication_unit_size") // 2 if unit else _AHEAD


def _keeps_ends(args: Args) -> bool:
    """Whether the gathered embedding and head stay between steps: where gathers overlap, since core 0.18. A dump of all arguments (it has a
    `rank`) without any that came then is older."""
    older = "rank" in args and not any(name in args for name in _SINCE_ENDS_STAY)
    return _megatron_fsdp(args) and bool(args.get("overlap_param_gather")) and not older


def _gradient_bytes(args: Args) -> int:
    """Bytes a gradient: Megatron-FSDP's own argument where it is given, else what the wrapper accumulates in."""
    name = "megatron_fsdp_main_grads_dtype"
    if not _megatron_fsdp(args) or name not in args:
        return 2 if half_gradients(args) else 4
    if _left_alone(args, name):
        return 2 if args.get("bf16") or args.get("fp16") else 4
    return _dtype(args, name)


def _left_alone(args: Args, name: str) -> bool:
    """Whether a dtype is `auto`, the weights' own; a dump prints None for it."""
    return name in args and args[name] in (None, "auto", "None")


def _moments(args: Args) -> tuple[int, int]:
    return _dtype(args, "exp_avg_dtype"), _dtype(args, "exp_avg_sq_dtype")


def _expands(args: Args) -> bool:
    """Moments are made fp32 for the step unless both are already, or both are bf16, which the kernel reads as they are."""
    names = {known_word(args, name) or "fp32" for name in ("exp_avg_dtype", "exp_avg_sq_dtype")}
    return names not in ({"fp32"}, {"float32"}, {"bf16"}, {"bfloat16"})


def _dtype(args: Args, name: str) -> int:
    word = known_word(args, name) if name in CHOICES else str(args.get(name)).split(".")[-1]
    return _DTYPES.get(word or "fp32", 4)


def _modules(args: Args, granularity: Any) -> frozenset[str]:
    if granularity != "selective":
        return frozenset()
    given = args.get("recompute_modules")
    if given is None:
        return frozenset({"core_attn"})
    return frozenset(listed(given))


def _attention(args: Args) -> str | None:
    """The attention kernel asked for; None where it was left to Transformer Engine."""
    if args.get("use_flash_attn"):
        return "flash"
    name = known_word(args, "attention_backend")
    return None if name == "auto" else name


def _fused(args: Args) -> bool:
    if args.get("swiglu"):
        return args.get("bias_swiglu_fusion") is not False
    return args.get("bias_gelu_fusion") is not False and args.get("add_bias_linear") is not False


def _deferred(args: Args) -> int:
    """Micro-batches whose output-layer gradient waits: 0 none, -1 all."""
    if not args.get("defer_embedding_wgrad_compute"):
        return 0
    return whole(args, "wgrad_deferral_limit", 0, least=0) or -1
