"""The arguments of one attempt of a log, as Megatron's argument mapping: for the verbs that take `--log FILE`.

The dump is the best witness, the configuration reprs and the launch command come after it, and facts printed elsewhere
(padded vocabulary, world size) fill what the dump prints as None. A launch command precedes `validate_args`, so
what Megatron forces there is applied here: no sequence parallelism without tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ingest.errors import LedgerError

_ORIGINS = ("log_line", "world_line", "command_line", "optimizer_config", "ddp_config", "dump")
_FACTS = ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "context_parallel_size",
          "expert_model_parallel_size", "expert_tensor_parallel_size", "data_parallel_size", "vocab_size", "padded_vocab_size")

Row = Mapping[str, Any]


def arguments_of_log(path: str, *, run_index: int | None = None) -> tuple[dict[str, Any], int | None]:
    """Arguments and micro-batches of one attempt of a log file (default: the last that has arguments)."""
    from ingest.parsers import parse_file

    rows = parse_file(path).rows
    args, runs = rows.get("run_args", []), rows.get("runs", [])
    indexes = sorted({int(row["run_index"] or 0) for row in [*args, *runs]})
    if not args or (run_index is not None and run_index not in indexes):
        known = f"it has attempts {', '.join(map(str, indexes))}" if args else "it has no argument dump and no launch command"
        which = "any attempt" if run_index is None else f"attempt {run_index}"
        raise LedgerError(f"no arguments of {which} found: {known}", where=path, todo="give --args FILE.json")
    with_args = [index for index in indexes if any(int(row["run_index"] or 0) == index for row in args)]
    return arguments_of_rows(args, runs, with_args[-1] if run_index is None else run_index)


def arguments_of_rows(run_args: Iterable[Row], runs: Iterable[Row], run_index: int) -> tuple[dict[str, Any], int | None]:
    """Arguments and micro-batches of attempt `run_index` from rows of the tables `run_args` and `runs`."""
    own = [row for row in run_args if int(row["run_index"] or 0) == run_index]
    args: dict[str, Any] = {}
    for row in sorted(own, key=lambda row: _rank(row.get("origin"))):
        if row["value"] is not None or row["name"] not in args or row.get("origin") == "dump":
            args[row["name"]] = row["value"]
    if not any(row.get("origin") == "dump" for row in own):
        _force(args)
    microbatches: int | None = None
    for row in runs:
        if int(row["run_index"] or 0) == run_index:
            args.update({name: row[name] for name in _FACTS if row.get(name) is not None and args.get(name) is None})
            microbatches = row.get("num_microbatches") or microbatches
    return args, microbatches or _microbatches(args)


def _rank(origin: str | None) -> int:
    return _ORIGINS.index(origin) if origin in _ORIGINS else -1


def _force(args: dict[str, Any]) -> None:
    """What Megatron's `validate_args` does to a launch command's values."""
    if str(args.get("tensor_model_parallel_size") or 1) == "1" and args.get("sequence_parallel") is not None:
        args["sequence_parallel"] = False
    if args.get("recompute_activations") in (True, "True", ""):
        args["recompute_granularity"] = args.get("recompute_granularity") or "selective"
    args.update({name: True for name, value in args.items() if value == ""})


def _microbatches(args: Mapping[str, Any]) -> int | None:
    """Global batch over micro-batch and data-parallel size, where no schedule changes it."""
    from analysis.theory.arguments import native_args

    known = native_args(args)
    batch, micro, dp = known.get("global_batch_size"), known.get("micro_batch_size"), known.get("data_parallel_size")
    if known.get("rampup_batch_size") or not all(isinstance(part, int) and part > 0 for part in (batch, micro, dp)):
        return None
    whole, rest = divmod(batch, micro * dp)
    return whole if whole and not rest else None
