"""A 16-rank MoE run (PP2, EP8, no sequence parallelism) over 50 steps: the logs of rank 0 and of the last rank, and of all ranks but one
`memory_stats`, tokens per expert and NCCL's lines.

Routed tokens are conserved: what one expert rank gets more, its seven peers get less. In each step one expert rank is hot, and which one moves
(`HOT`): so the fullest rank moves, rank 3 is near its limit in every step of its high load, two others in some of theirs, one rank's load never
varies, and rank 12 leaves nothing behind. What the allocator holds climbs by need where a rank's load first reaches a level, and by fragmentation
on rank 2 (`PIECES`). The probe writes interval peaks after each optimizer step: the next line has what evaluation and checkpoint left. The counts
of experts add up to the tokens that the peaks were counted from. What lies outside torch is NCCL's buffers, allocation by allocation, and the
CUDA context, libraries and other processes as one remainder. Format of core 0.15 with exact figures; a device total as PyTorch reports it.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from functools import cache
from math import exp
from typing import Any

from sample_data import nccl, printed
from sample_data.ledger import GIB, MIB, Model, in_flight, logits_peak, moe_activations, resident, stage_of, up_to

MODEL = Model(layers=24, hidden=2048, heads=16, groups=16, kv_channels=128, ffn=10944, vocabulary=102400, sequence=4096, micro_batch=4,
              tensor=1, pipeline=2, data=8, tied=False, experts=16, top_k=2, expert_ffn=5632, shared_ffn=2816, expert_parallel=8)
MICRO_BATCHES = 4
GENERATION = "G10"
STEPS = 50
NEVER_SEEN = 12
SURGE, LOUD, HIGH, BUSY = 1.412, 1.375, 1.392, 1.18
"""Routed tokens of a hot rank over the balanced number; all but the last bring a rank of the first stage near its limit."""
HOT: dict[int, dict[float, tuple[int, ...]]] = {
    0: {BUSY: (2, 12, 23, 33, 46)}, 1: {BUSY: (4, 15, 25, 35, 48)}, 2: {BUSY: (7, 18, 28, 39, 49)},
    3: {SURGE: (8, 17, 29, 38, 47), LOUD: (3, 6, 11, 14, 19, 21, 24, 26, 32, 34, 36, 41, 43, 45, 50)}, 4: {BUSY: (1, 10, 20, 30, 42)},
    5: {HIGH: (9, 22, 31), BUSY: (16, 40)}, 6: {HIGH: (13, 27), BUSY: (5, 37, 44)}}
"""Expert-parallel ranks and the steps in which each is the hot one. Rank 3's surges stand out of its other hot steps, its steps of high load."""
PIECES = {2: {26: GIB * 5 // 4, 33: GIB * 9 // 10, 41: GIB * 3 // 2}}
"""Ranks, steps and bytes by which reserved memory climbs without need: in two of them an evaluation or a checkpoint came before."""
EVALUATED, SAVED = (25, 50), (40,)
SEEN = tuple(rank for rank in range(MODEL.world) if rank != NEVER_SEEN)
_ROOM = 0.005
"""The allocator's level covers a load a little above its own."""
DEVICE_BYTES = 85_017_755_648
OUTSIDE_BYTES = int(2.2 * GIB)
SPLIT_RATIO = 1.018
"""Reserved over the peak of allocated: remainders of split blocks."""
START = datetime(2026, 6, 11, 8, 0, 30)


@cache
def loads() -> list[list[float]]:
    """For each step, each expert-parallel rank's routed tokens over the balanced number; the mean over the ranks is 1."""
    chance = random.Random(16)
    return [_load(step, chance) for step in range(1, STEPS + 1)]


@cache
def hot(step: int) -> tuple[int, float]:
    """The hot expert-parallel rank of a step and its load."""
    ((rank, load),) = [(rank, load) for rank, levels in HOT.items() for load, steps in levels.items() if step in steps]
    return rank, load


def _load(step: int, chance: random.Random) -> list[float]:
    rank, load = hot(step)
    load += chance.uniform(-0.004, 0.004)
    shares = [1 + chance.uniform(-0.01, 0.01) for _ in range(MODEL.expert_parallel)]
    scale = (MODEL.expert_parallel - load) / (sum(shares) - shares[rank])
    return [load if one == rank else share * scale for one, share in enumerate(shares)]


def routed(rank: int, step: int) -> int:
    """Tokens that the experts of a rank get in each layer and micro-batch of a step."""
    return int(loads()[step - 1][rank % MODEL.expert_parallel] * MODEL.top_k * MODEL.tokens)


def load_bytes(rank: int, step: int) -> int:
    """What the routed tokens of a step make a rank hold: saved by each MoE layer and micro-batch in flight, and the dispatch of one layer."""
    saved = (2 * MODEL.hidden + 6 * MODEL.expert_ffn) * routed(rank, step)
    stage = stage_of(MODEL, rank)
    return saved * (MODEL.layers // MODEL.pipeline) * in_flight(MODEL, stage) + 6 * MODEL.hidden * routed(rank, step)


def outside(rank: int, step: int) -> int:
    """What lies outside torch: all of it from step 2 on, when the communicator of all ranks is there too."""
    return OUTSIDE_BYTES - (nccl.after_first_step(rank).device_bytes if step == 1 else 0)


def allocated(rank: int) -> int:
    """Between steps."""
    return up_to(resident(MODEL, stage_of(MODEL, rank)), 512)


def peak(rank: int, step: int) -> int:
    """Peak of allocated within a step."""
    return _peak(rank, loads()[step - 1][rank % MODEL.expert_parallel])


def _peak(rank: int, load: float) -> int:
    stage = stage_of(MODEL, rank)
    return up_to(resident(MODEL, stage) + moe_activations(MODEL, stage, load) + logits_peak(MODEL, stage), 512)


def level(rank: int, step: int) -> float:
    """The highest load that a rank was given so far."""
    return max([1.0, *(load for one in range(1, step + 1) for hottest, load in [hot(one)] if hottest == rank % MODEL.expert_parallel)])


@cache
def reserved(rank: int, step: int) -> int:
    """Held after a step: what the highest load so far needs, and pieces that fit no later request; never beyond the device."""
    most = (DEVICE_BYTES - OUTSIDE_BYTES) // (2 * MIB) * 2 * MIB
    pieces = sum(size for one, size in PIECES.get(rank, {}).items() if one <= step)
    return min(up_to(int(_peak(rank, level(rank, step) + _ROOM) * SPLIT_RATIO) + pieces, 2 * MIB), most)


def retries(rank: int, step: int) -> int:
    """Steps so far in which the allocator had to give its cache back before a request fitted."""
    most = DEVICE_BYTES - OUTSIDE_BYTES
    return sum(int(peak(rank, one) * SPLIT_RATIO) > most for one in range(1, step + 1))


def files() -> dict[str, str]:
    """File names and contents of the run."""
    args = printed.arguments(MODEL, MICRO_BATCHES, recompute_granularity=None, train_iters=STEPS, load=None, save="/data/runs/moe/checkpoints",
                             moe_router_topk=MODEL.top_k, moe_ffn_hidden_size=MODEL.expert_ffn, moe_layer_freq=1, moe_grouped_gemm=True,
                             moe_shared_expert_intermediate_size=MODEL.shared_ffn, moe_token_dispatcher_type="alltoall",
                             moe_router_load_balancing_type="aux_loss", moe_aux_loss_coeff=0.001, eval_interval=25, save_interval=40)
    first = [*printed.header(MODEL, args, MICRO_BATCHES), *nccl.before_training(0).text, *printed.counts(MODEL, [0]), "training ...",
             *printed.theory(args, MODEL, MICRO_BATCHES, GENERATION),
             printed.memory(0, 1, allocated(0), peak(0, 1), reserved(0, 1), exact=True), *nccl.after_first_step(0).text, *_of_rank_0()]
    iterations, end = _iterations(args), MODEL.world - 1
    last = [*nccl.before_training(end).text, "training ...", iterations[0], *nccl.after_first_step(end).text, *iterations[1:]]
    stats = {f"memory_stats_rank{rank}.jsonl": "".join(_stats(rank, step) for step in range(1, STEPS + 1)) for rank in SEEN}
    counts = {f"tokens_per_expert/rank{rank}.jsonl": "".join(_tokens(rank)) for rank in SEEN}
    others = {f"nccl_rank{rank}.log": "\n".join([*nccl.before_training(rank).text, *nccl.after_first_step(rank).text]) + "\n"
              for rank in SEEN if 0 < rank < end}
    return {"rank_0.log": "\n".join(first) + "\n", f"rank_{end}.log": "\n".join(last) + "\n", **stats, **counts, **others}


def _tokens(rank: int) -> list[str]:
    """A line a step and MoE layer; the counts of a rank's experts add up to `routed` in every layer and micro-batch."""
    chance = random.Random(rank)
    experts = (MODEL.experts or 0) // MODEL.expert_parallel
    lines = []
    for step in range(1, STEPS + 1):
        for layer in range(MODEL.layers // MODEL.pipeline):
            passes = []
            for _ in range(MICRO_BATCHES):
                total = routed(rank, step)
                first = int(total * chance.uniform(0.42, 0.58))
                passes.append([first, total - first])
                assert len(passes[-1]) == experts
            lines.append(json.dumps({"iter": step, "block": "decoder", "layer": layer, "tpe": passes}) + "\n")
    return lines


def _iterations(args: dict[str, Any]) -> list[str]:
    lines = []
    for step in range(1, STEPS + 1):
        slowest = max(loads()[step - 1])
        elapsed = 2900.0 * (0.6 + 0.4 * slowest)
        balance = sum(load * load for load in loads()[step - 1]) / MODEL.expert_parallel
        lines.append(printed.iteration_line(args, _at(step), step, STEPS, elapsed, 10.9 - 0.06 * step, tflops=138.0 * 2900 / elapsed,
                                            microseconds=False, extra=f" load_balancing_loss: {balance:.6E} |"))
        lines += _validated(step) if step in EVALUATED else []
    return lines


def _validated(step: int) -> list[str]:
    loss = 10.9 - 0.058 * step
    said = f" validation loss at iteration {step} | lm loss value: {loss:.6E} | lm loss PPL: {exp(loss):.6E} | "
    return ["-" * (len(said) + 1), said, "-" * (len(said) + 1)]


def _of_rank_0() -> list[str]:
    """What rank 0 says of evaluations and checkpoints, in their order."""
    saved = {step: [f"saving checkpoint at iteration {step:7d} to /data/runs/moe/checkpoints in torch_dist format",
                    f"  successfully saved checkpoint from iteration {step:7d} to /data/runs/moe/checkpoints [ t 1/1, p 1/2 ]"] for step in SAVED}
    batch = MODEL.micro_batch * MODEL.data * MICRO_BATCHES
    evaluated = {step: [f"Evaluating on {10 * batch} samples", *(f"Evaluating iter {one}/10" for one in range(1, 11))] for step in EVALUATED}
    return [line for step in range(1, STEPS + 1) for line in (*evaluated.get(step, ()), *saved.get(step, ()))]


def _at(step: int) -> datetime:
    return START + timedelta(seconds=3 * step)


def _stats(rank: int, step: int) -> str:
    now, most, held = allocated(rank), peak(rank, step), reserved(rank, step)
    churn = sum(peak(rank, one) - now for one in range(1, step + 1)) * MICRO_BATCHES
    active, requested = now + 3 * MIB, now - now // 2000
    figures = {
        "allocated_bytes": (now, most, churn + now, churn), "active_bytes": (active, most + 3 * MIB, churn + active, churn),
        "requested_bytes": (requested, most - most // 2000, churn + requested, churn), "reserved_bytes": (held, held, held, 0),
        "inactive_split_bytes": ((held - now) // 40, (held - now) // 30, churn // 3, churn // 3 - (held - now) // 40)}
    stats: dict[str, int] = {f"{name}.all.{when}": value for name, values in figures.items()
                             for when, value in zip(("current", "peak", "allocated", "freed"), values, strict=True)}
    stats |= {"num_alloc_retries": retries(rank, step), "num_ooms": 0, "num_device_alloc": held // (20 * MIB), "num_device_free": 0,
              "max_split_size": -1}
    line = {"rank": rank, "iteration": step, "time": _at(step).replace(tzinfo=UTC).timestamp(), "scope": "interval",
            "device_total_bytes": DEVICE_BYTES, "device_free_bytes": DEVICE_BYTES - held - outside(rank, step), "stats": stats}
    return json.dumps(line) + "\n"
