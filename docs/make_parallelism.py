"""Write into docs/methods/parallelism.md what doubling each parallel size does to each class: `python -m docs.make_parallelism`.

The figures are the expected ledger's, asked twice for one model: with the size at 1 and at 2, everything else held (micro-batch, sequence,
micro-batches a step, the other sizes). Beside them stand the process groups that grow with the size. A test holds the page to both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.expected.expect import read_run
from analysis.expected.stage import stage_bytes
from analysis.theory.layout import GROUP_KINDS, ParallelSizes, groups

TARGET = Path(__file__).parent / "methods" / "parallelism.md"
START = "<!-- factors: written by docs/make_parallelism.py, do not edit below -->"
MICROBATCHES = 8
COLUMNS = ("weights", "gradients", "optimizer", "activations", "loss")
DENSE: dict[str, Any] = {
    "hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32, "group_query_attention": True, "num_query_groups": 8, "kv_channels": 128,
    "ffn_hidden_size": 14336, "swiglu": True, "normalization": "RMSNorm", "add_bias_linear": False, "untie_embeddings_and_output_weights": True,
    "position_embedding_type": "rope", "padded_vocab_size": 128256, "seq_length": 4096, "micro_batch_size": 1, "global_batch_size": 64, "bf16": True,
    "attention_dropout": 0.0, "hidden_dropout": 0.0, "use_flash_attn": True, "transformer_impl": "transformer_engine", "world_size": 1}
EXPERTS = DENSE | {"num_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 4096, "moe_grouped_gemm": True,
                   "moe_token_dispatcher_type": "alltoall", "world_size": 2}
SHARDED = {"use_distributed_optimizer": True}
FSDP = SHARDED | {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"}
TENSOR = {"world_size": 2, "tensor_model_parallel_size": 2}
SEQUENCE = TENSOR | {"sequence_parallel": True}
STAGES = {"world_size": 2, "pipeline_model_parallel_size": 2}


@dataclass(frozen=True, slots=True)
class Doubling:
    """One row: the arguments at size 1 and what changes at size 2; `stages` are the pipeline stages looked at before and after."""

    name: str
    before: dict[str, Any]
    change: dict[str, Any]
    stages: tuple[int, int] = field(default=(0, 0))


ROWS = (
    Doubling("DP", DENSE, {"world_size": 2}),
    Doubling("DP, distributed optimizer", DENSE | SHARDED, {"world_size": 2}),
    Doubling("DP, FSDP", DENSE | FSDP, {"world_size": 2}),
    Doubling("TP", DENSE, TENSOR),
    Doubling("TP with SP", DENSE, SEQUENCE),
    Doubling("CP", DENSE, {"world_size": 2, "context_parallel_size": 2}),
    Doubling("CP, distributed optimizer", DENSE | SHARDED, {"world_size": 2, "context_parallel_size": 2}),
    Doubling("PP, first stage", DENSE, STAGES),
    Doubling("PP, last stage", DENSE, STAGES, (0, 1)),
    Doubling("VPP, first stage", DENSE | STAGES, {"num_layers_per_virtual_pipeline_stage": 8}),
    Doubling("VPP, last stage", DENSE | STAGES, {"num_layers_per_virtual_pipeline_stage": 8}, (1, 1)),
    Doubling("EP", EXPERTS, {"expert_model_parallel_size": 2}),
    Doubling("EP, distributed optimizer", EXPERTS | SHARDED, {"expert_model_parallel_size": 2}),
    Doubling("ETP", EXPERTS | SEQUENCE | {"expert_tensor_parallel_size": 1}, {"expert_tensor_parallel_size": 2}),
)


def page(text: str) -> str:
    """The page with the figures of now."""
    return text[:text.index(START)] + "\n".join([START, *_lines()]) + "\n"


def factors(row: Doubling) -> dict[str, float | None]:
    """Bytes of each class at size 2 over those at size 1; None where the class is not there."""
    before, after = (_classes(args, stage) for args, stage in zip((row.before, row.before | row.change), row.stages, strict=True))
    return {name: after[name] / before[name] if before[name] and after[name] else None for name in COLUMNS}


def grown(row: Doubling) -> list[str]:
    """The kinds of process groups that have more ranks at size 2."""
    before, after = (_run(args).sizes for args in (row.before, row.before | row.change))
    return [kind for kind in GROUP_KINDS if "independent" not in kind and _ranks(kind, after) > _ranks(kind, before)]


def _run(args: dict[str, Any]) -> Any:
    return read_run(args, MICROBATCHES, None, "H100", None)


def _ranks(kind: str, sizes: ParallelSizes) -> int:
    return len(groups(kind, sizes)[0])


def _classes(args: dict[str, Any], stage: int) -> dict[str, int]:
    found = stage_bytes(_run(args), stage)
    instants = {instant.name: instant.classes for instant in found.instants}
    return {**{name: found.classes[name] for name in COLUMNS[:3]}, "activations": instants["forward"]["activations"],
            "loss": instants.get("loss", {}).get("loss", 0)}


def _lines() -> Iterator[str]:
    yield from ("", "| from 1 to 2 | weights | gradients | optimizer state | activations | logits and loss | process groups that grow |",
                "|---|---|---|---|---|---|---|")
    for row in ROWS:
        figures = ["-" if factor is None else f"{factor:.3f}" for factor in factors(row).values()]
        yield f"| {row.name} | {' | '.join(figures)} | {', '.join(f'`{kind}`' for kind in grown(row)) or '-'} |"


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    print(TARGET)
