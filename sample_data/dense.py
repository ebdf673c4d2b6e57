"""A dense 7.5 B model on 256 H100s, TP2 PP2 with sequence parallelism and selective recomputation: one merged log.

The first stage holds two micro-batches in flight, the last one micro-batch and the logits. Format of Megatron-LM main (0.20): theory and memory
after iteration 1 and again at the next log line, then memory every ten iterations with the device's own figure.
"""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta

from sample_data import printed
from sample_data.ledger import GIB, MIB, Model, dense_activations, logits_peak, memory_ranks, resident, stage_of, up_to

MODEL = Model(layers=32, hidden=4096, heads=32, groups=8, kv_channels=128, ffn=14336, vocabulary=128256, sequence=4096, micro_batch=2,
              tensor=2, pipeline=2, data=64)
MICRO_BATCHES = 8
GENERATION = "G15"
ITERATIONS = 30
OUTSIDE_BYTES = 3 * GIB // 2 + 2 * GIB
"""CUDA context, libraries and NCCL's buffers of five communicators."""


def expected_peak(model: Model, stage: int) -> int:
    """State, saved activations and the head's peak of a rank."""
    return resident(model, stage) + dense_activations(model, stage) + logits_peak(model, stage)


def files() -> dict[str, str]:
    """File names and contents of the run."""
    chance = random.Random(7_504_924_672)
    args = printed.arguments(MODEL, MICRO_BATCHES, recompute_granularity="selective", train_iters=20000, load=None,
                             save="/data/runs/dense/checkpoints", log_memory_interval=10, log_device_memory_used=True)
    ranks = memory_ranks(MODEL)
    jitter = {rank: chance.randrange(0, 24 * MIB, 512) for rank in ranks}
    lines = [*printed.smi(range(8)), *printed.header(MODEL, args, MICRO_BATCHES), *printed.counts(MODEL, ranks, weight_remat=True),
             "done with setup ...", "training ...", "[before the start of training step] datetime: 2026-09-14 09:12:20.000000 "]
    at = datetime(2026, 9, 14, 9, 12, 20)
    for iteration in range(1, ITERATIONS + 1):
        elapsed = 9800.0 if iteration == 1 else 6120.0 + chance.uniform(-30, 30)
        at += timedelta(milliseconds=elapsed)
        lines.append(printed.iteration_line(args, at, iteration, 20000, elapsed, 11.9 - 0.11 * iteration + chance.uniform(-0.02, 0.02),
                                            microseconds=True, tflops=405.0 * 6120 / elapsed))
        if iteration <= 2:
            lines += printed.theory(args, MODEL, MICRO_BATCHES, GENERATION)
        if iteration <= 2 or iteration % 10 == 0:
            lines += [_memory(rank, iteration, jitter[rank]) for rank in ranks]
    return {"train.log": "\n".join(lines) + "\n"}


def _memory(rank: int, iteration: int, jitter: int) -> str:
    stage = stage_of(MODEL, rank)
    allocated = up_to(resident(MODEL, stage), 512)
    peak = up_to(expected_peak(MODEL, stage) + jitter, 512)
    reserved = up_to(int(peak * (1.030 if iteration == 1 else 1.042)), 2 * MIB)
    return printed.memory(rank, iteration, allocated, peak, reserved, reserved + OUTSIDE_BYTES - (GIB if iteration == 1 else 0))


def truth() -> dict[str, bytes]:
    """What was planted: far from the limit on every rank that prints, and in the second step pieces that no need explains."""
    ranks = memory_ranks(MODEL)
    told = {"iterations": ITERATIONS, "classes": dict.fromkeys(ranks, "clear"), "ranks_not_seen": MODEL.world - len(ranks),
            "risers": [{"rank": rank, "step": 2, "kind": "fragmentation"} for rank in ranks], "oom": []}
    return {"dense_7b5_pp2.json": (json.dumps(told, indent=1) + "\n").encode()}
