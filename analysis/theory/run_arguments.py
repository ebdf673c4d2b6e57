"""The arguments of one attempt, from rows of the tables `run_args` and `runs`.

The dump is the best witness, the configuration reprs and the launch command come after it, and facts printed elsewhere
(padded vocabulary, world size) fill what the dump prints as None. A launch command precedes `validate_args`, so what
Megatron forces there is applied here: no sequence parallelism without tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.theory.arguments import native_args

_ORIGINS = ("log_line", "world_line", "command_line", "optimizer_config", "ddp_config", "dump")
_FACTS = ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "context_parallel_size",
          "expert_model_parallel_size", "expert_tensor_parallel_size", "data_parallel_size", "vocab_size", "padded_vocab_size")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunArguments:
    """Arguments of one attempt as printed, the line of each where known, and the micro-batches a step where constant."""

    args: dict[str, Any]
    lines: dict[str, int]
    microbatches: int | None


def run_arguments(run_args: Iterable[Row], runs: Iterable[Row]) -> RunArguments:
    """Merge the rows of ONE attempt; of two rows of one name the better origin wins, a value before None."""
    args: dict[str, Any] = {}
    lines: dict[str, int] = {}
    own = sorted(run_args, key=lambda row: _rank(row.get("origin")))
    for row in own:
        if row["value"] is not None or row["name"] not in args or row.get("origin") == "dump":
            args[row["name"]] = row["value"]
            lines |= {row["name"]: row["line"]} if row.get("line") else {}
    if not any(row.get("origin") == "dump" for row in own):
        _force(args)
    microbatches: int | None = None
    for row in runs:
        args.update({name: row[name] for name in _FACTS if row.get(name) is not None and args.get(name) is None})
        microbatches = row.get("num_microbatches") or microbatches
    return RunArguments(args, lines, microbatches or _microbatches(args))


def _rank(origin: str | None) -> int:
    return _ORIGINS.index(origin) if origin in _ORIGINS else -1


def _force(args: dict[str, Any]) -> None:
    """What Megatron's `validate_args` does to a launch command's values; a switch may stand there without a value."""
    args.update({name: True for name, value in args.items() if value == ""})
    if str(args.get("tensor_model_parallel_size") or 1) == "1" and args.get("sequence_parallel") is not None:
        args["sequence_parallel"] = False
    if args.get("recompute_activations") in (True, "True"):
        args["recompute_granularity"] = args.get("recompute_granularity") or "selective"


def _microbatches(args: Mapping[str, Any]) -> int | None:
    """Global batch over micro-batch and data-parallel size, where no schedule changes it."""
    known = native_args(args)
    sizes: list[Any] = [known.get(name) for name in ("global_batch_size", "micro_batch_size", "data_parallel_size")]
    if known.get("rampup_batch_size") or not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    batch, micro, dp = sizes
    whole, rest = divmod(batch, micro * dp)
    return int(whole) if whole and not rest else None
