"""Lines as Megatron-LM prints them, filled with a sample's numbers: header, dump, counts, theory, memory, iterations.

Formats are those of the releases named at each sample; the theory block comes from `analysis.theory`, which is proven digit by digit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from analysis.theory.megatron import report_args
from sample_data.ledger import MIB, Model, parameters, stage_of

_COMMON: dict[str, Any] = {
    "accumulate_allreduce_grads_in_fp32": True, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-08, "add_bias_linear": False,
    "attention_backend": "AttnBackend.flash", "attention_dropout": 0.0, "bf16": True, "clip_grad": 1.0, "consumed_train_samples": 0,
    "context_parallel_size": 1, "data_path": "['1.0', '/data/corpus/text_document']", "ddp_bucket_size": None, "distributed_backend": "nccl",
    "eval_interval": 1000, "eval_iters": 10, "fp16": False, "fp8": None, "grad_reduce_in_bf16": False, "group_query_attention": True,
    "hidden_dropout": 0.0, "init_method_std": 0.02, "log_interval": 1, "lr": 0.0003, "lr_decay_style": "cosine", "make_vocab_size_divisible_by": 128,
    "min_lr": 3e-05, "mtp_num_layers": None, "normalization": "RMSNorm", "num_layers_per_virtual_pipeline_stage": None, "optimizer": "adam",
    "optimizer_cpu_offload": False, "overlap_grad_reduce": True, "overlap_param_gather": True, "params_dtype": "torch.bfloat16",
    "position_embedding_type": "rope", "rank": 0, "recompute_method": None, "recompute_num_layers": None, "rotary_base": 500000,
    "save_interval": 1000, "seed": 1234, "swiglu": True, "tokenizer_type": "HuggingFaceTokenizer",
    "transformer_impl": "transformer_engine", "use_flash_attn": True,
    "use_precision_aware_optimizer": False, "virtual_pipeline_model_parallel_size": None, "vocab_size": None, "weight_decay": 0.1,
}


def arguments(model: Model, micro_batches: int, **more: Any) -> dict[str, Any]:
    """The run's arguments by Megatron's names."""
    return {
        **_COMMON, "num_layers": model.layers, "hidden_size": model.hidden, "num_attention_heads": model.heads, "num_query_groups": model.groups,
        "kv_channels": model.kv_channels, "ffn_hidden_size": model.ffn, "seq_length": model.sequence, "max_position_embeddings": model.sequence,
        "micro_batch_size": model.micro_batch, "global_batch_size": model.micro_batch * model.data * micro_batches, "world_size": model.world,
        "tensor_model_parallel_size": model.tensor, "pipeline_model_parallel_size": model.pipeline, "data_parallel_size": model.data,
        "expert_model_parallel_size": model.expert_parallel, "expert_tensor_parallel_size": model.tensor, "num_experts": model.experts,
        "sequence_parallel": model.tensor > 1, "use_distributed_optimizer": model.distributed_optimizer,
        "untie_embeddings_and_output_weights": not model.tied, **more}


def dump(args: Mapping[str, Any]) -> list[str]:
    """The argument dump, sorted and dotted as Megatron does it."""
    lines = sorted((f"  {name} {'.' * (48 - len(name))} {value}" for name, value in args.items()), key=str.lower)
    return ["-" * 24 + " arguments " + "-" * 24, *lines, "-" * 20 + " end of arguments " + "-" * 21]


def header(model: Model, args: Mapping[str, Any], micro_batches: int) -> list[str]:
    """What rank 0 prints before the model is built."""
    return [
        f"using world size: {model.world}, data-parallel size: {model.data}, context-parallel size: 1, hierarchical context-parallel sizes: None, "
        f"tensor-model-parallel size: {model.tensor}, pipeline-model-parallel size: {model.pipeline}",
        "using torch.bfloat16 for parameters ...", *dump(args),
        f" > padded vocab (size: {model.vocabulary}) with 0 dummy tokens (new size: {model.vocabulary})",
        f"INFO:megatron.core.num_microbatches_calculator:setting number of microbatches to constant {micro_batches}",
        f"> initialized tensor model parallel with size {model.tensor}", f"> initialized pipeline model parallel with size {model.pipeline}",
        "building GPT model ..."]


def counts(model: Model, ranks: list[int], *, weight_remat: bool = False) -> list[str]:
    """Parameter counts of the ranks that print into this file."""
    axes = "(tensor, gtp_weight_remat, pipeline)" if weight_remat else "(tensor, pipeline)"
    middle = "0, " if weight_remat else ""
    return [f" > number of parameters on {axes} model parallel rank ({rank % model.tensor}, {middle}{stage_of(model, rank)}): "
            f"{parameters(model, stage_of(model, rank))}" for rank in ranks]


def theory(args: Mapping[str, Any], model: Model, micro_batches: int, generation: str) -> list[str]:
    """The theoretical footprint of one generation, its closing blank line included."""
    [(report, _)] = report_args({**args, "padded_vocab_size": model.vocabulary}, micro_batches, generation=generation)
    assert report.printed_text is not None
    return report.printed_text.split("\n")[:-1]


def memory(rank: int, iteration: int, allocated: int, peak: int, reserved: int, device_used: int | None = None, *, exact: bool = False) -> str:
    """One `[Rank N]` line; `exact` as releases before 0.16 print it."""
    def shown(size: int) -> str:
        return str(size / MIB) if exact else f"{size / MIB:.2f}"
    used = "" if device_used is None else f" | total device memory used: {shown(device_used)}"
    return (f"[Rank {rank}] (after {iteration} iterations) memory (MB) | allocated: {shown(allocated)} | max allocated: {shown(peak)} | "
            f"reserved: {shown(reserved)} | max reserved: {shown(reserved)}{used}")


def iteration_line(args: Mapping[str, Any], at: datetime, iteration: int, total: int, elapsed_ms: float, loss: float, *,
                   tflops: float, microseconds: bool, extra: str = "") -> str:
    """One iteration of the last rank."""
    stamp = at.strftime("%Y-%m-%d %H:%M:%S.%f" if microseconds else "%Y-%m-%d %H:%M:%S")
    batch = int(args["global_batch_size"])
    rate = float(args["lr"]) * min(iteration / 2000, 1)
    return (f" [{stamp}] iteration {iteration:8d}/{total:8d} | consumed samples: {iteration * batch:12d} | elapsed time per iteration (ms): "
            f"{elapsed_ms:.1f} | throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | learning rate: {rate:.6E} | global batch size: {batch:5d} | "
            f"lm loss: {loss:.6E} |{extra} loss scale: 1.0 | grad norm: {2.0 + loss / 10:.3f} | number of skipped iterations:   0 | "
            "number of nan iterations:   0 |")


def smi(ranks: range, total_mib: int = 81559) -> list[str]:
    """The devices of one host, as a launch script prints them before the job."""
    return ["index, name, memory.total [MiB], memory.used [MiB]",
            *(f"{index}, NVIDIA H100 80GB HBM3, {total_mib} MiB, 4 MiB" for index in ranks)]

