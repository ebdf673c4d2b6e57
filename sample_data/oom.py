"""The same dense model on 8 GPUs without the distributed optimizer, micro-batch 4: it fits, reserved memory climbs, and step 18 dies.

`max allocated` stays where it was while `reserved` rises with every set of sequence lengths: space is there, but in pieces. The last
request fails with several GiB reserved and unallocated. Format of core 0.18; the ranks' tracebacks come through torchrun.
"""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta

from sample_data import printed
from sample_data.ledger import GIB, MIB, Model, dense_activations, logits_peak, memory_ranks, resident, stage_of, up_to

MODEL = Model(layers=32, hidden=4096, heads=32, groups=8, kv_channels=128, ffn=14336, vocabulary=128256, sequence=4096, micro_batch=4,
              tensor=2, pipeline=2, data=2, distributed_optimizer=False)
MICRO_BATCHES = 16
GENERATION = "G14"
LAST_ITERATION = 17
PRINTED = (1, 2, 5, 10, 15)
"""Iterations after which memory is printed."""
CAPACITY_BYTES = 85_017_755_648
OUTSIDE_BYTES = int(2.31 * GIB)
VICTIM = 0
REQUEST_BYTES = 2 * 2 * MODEL.ffn * MODEL.tokens // MODEL.tensor
"""The output of a gated fc1: 2 x ffn elements a token in bf16, over TP."""
FREE_BYTES = 214 * MIB


def files() -> dict[str, str]:
    """File names and contents of the run."""
    chance = random.Random(18)
    args = printed.arguments(MODEL, MICRO_BATCHES, recompute_granularity="selective", train_iters=5000, load=None, save="/data/runs/oom/checkpoints",
                             log_memory_interval=5)
    ranks = memory_ranks(MODEL)
    lines = [*printed.smi(range(8)), *printed.header(MODEL, args, MICRO_BATCHES), *printed.counts(MODEL, ranks), "training ..."]
    at = datetime(2026, 7, 3, 22, 40, 5)
    for iteration in range(1, LAST_ITERATION + 1):
        elapsed = 15900.0 + chance.uniform(-90, 90)
        at += timedelta(milliseconds=elapsed)
        lines.append(printed.iteration_line(args, at, iteration, 5000, elapsed, 11.8 - 0.1 * iteration, tflops=318.0, microseconds=True))
        if iteration <= 2:
            lines += printed.theory(args, MODEL, MICRO_BATCHES, GENERATION)
        if iteration in PRINTED:
            lines += [_memory(rank, iteration) for rank in ranks]
    return {"train.log": "\n".join([*lines, *_death()]) + "\n"}


def peak(rank: int) -> int:
    """Peak of allocated: the same at every step."""
    stage = stage_of(MODEL, rank)
    return up_to(resident(MODEL, stage) + dense_activations(MODEL, stage) + logits_peak(MODEL, stage), 512)


def reserved(rank: int, iteration: int) -> int:
    """What the allocator holds: the peak, and pieces of earlier steps that fit no later request; never beyond the device."""
    pieces = int((0.55 + 0.6 * iteration) * GIB)
    most = CAPACITY_BYTES - OUTSIDE_BYTES - FREE_BYTES
    return min(up_to(peak(rank) + pieces, 2 * MIB), most // (2 * MIB) * 2 * MIB)


def _memory(rank: int, iteration: int) -> str:
    return printed.memory(rank, iteration, up_to(resident(MODEL, stage_of(MODEL, rank)), 512), peak(rank), reserved(rank, iteration))


def _death() -> list[str]:
    held = reserved(VICTIM, LAST_ITERATION + 1)
    allocated = peak(VICTIM) - REQUEST_BYTES
    process = held + OUTSIDE_BYTES
    free = CAPACITY_BYTES - process
    said = (f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {REQUEST_BYTES / MIB:.2f} MiB. GPU 0 has a total capacity of "
            f"{CAPACITY_BYTES / GIB:.2f} GiB of which {free / MIB:.2f} MiB is free. Including non-PyTorch memory, this process has "
            f"{process / GIB:.2f} GiB memory in use. Of the allocated memory {allocated / GIB:.2f} GiB is allocated by PyTorch, and "
            f"{(held - allocated) / GIB:.2f} GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")
    traceback = ["Traceback (most recent call last):", '  File "/opt/megatron/pretrain_gpt.py", line 301, in <module>', "    pretrain(",
                 '  File "/opt/megatron/megatron/training/training.py", line 2571, in train_step', "    losses_reduced = forward_backward_func(",
                 '  File "/opt/megatron/megatron/core/transformer/mlp.py", line 164, in forward',
                 "    intermediate_parallel, bias_parallel = self.linear_fc1(hidden_states)", said]
    return [f"[rank{VICTIM}]: {line}" for line in traceback] + [
        "E0703 22:45:02.114000 2211 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 2290) "
        "of binary: /usr/bin/python3"]


def truth() -> dict[str, bytes]:
    """What was planted: pieces in every step, so that in the last steps the first stage has little left but cache; its death, case B."""
    ranks = memory_ranks(MODEL)
    margin, most = CAPACITY_BYTES * 3 // 100, CAPACITY_BYTES - OUTSIDE_BYTES
    near = {rank: [step for step in range(1, LAST_ITERATION + 1) if most - reserved(rank, step) <= margin] for rank in ranks}
    near[VICTIM].append(LAST_ITERATION + 1)
    told = {"iterations": LAST_ITERATION, "classes": {rank: "occasional" if near[rank] else "clear" for rank in ranks}, "near_steps": near,
            "ranks_not_seen": MODEL.world - len(ranks),
            "risers": [{"rank": rank, "step": step, "kind": "fragmentation"} for rank in ranks for step in PRINTED[1:]],
            "oom": [{"case": "B", "rank": VICTIM, "iteration": LAST_ITERATION}]}
    return {"oom_run.json": (json.dumps(told, indent=1) + "\n").encode()}
