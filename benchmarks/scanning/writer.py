"""Logs of a wanted size for the scanner's benchmark: records as Megatron prints them, and the noise of launchers and NCCL between them.

A log advances as a real one does: every iteration has its line, every tenth the memory of eight ranks, every 5000th the printed theory and
a rank that runs out of memory (a real run prints the theory once or twice). The noise holds no record of any kind that is read, so the figure
is about finding the few lines that matter. Fixed seed: the same size gives the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

NOISE_PER_RECORD = 39
_MIB = 2**20


def write_log(path: Path, megabytes: float, *, sparse: bool) -> dict[str, int]:
    """Write about that many MB (10**6 bytes) and return how many records of each kind stand in it."""
    wanted, written = int(megabytes * 1e6), 0
    counts = {"rank_memory": 0, "iterations": 0, "theory_reports": 0, "oom_events": 0}
    source = random.Random(20261129)
    noise = [_noise(source) for _ in range(2_000)] if sparse else [b""]
    with path.open("wb", buffering=1 << 20) as out:
        for table, record in _records(source):
            written += out.write(record + source.choice(noise))
            counts[table] += 1
            if written >= wanted:
                return counts
    raise AssertionError("records never end")


def _records(source: random.Random) -> Iterator[tuple[str, bytes]]:
    iteration = 0
    while True:
        iteration += 1
        yield "iterations", _iteration(source, iteration).encode()
        if iteration % 5000 == 1:
            yield "theory_reports", _theory(source).encode()
        if iteration % 10 == 1:
            for rank in range(8):
                yield "rank_memory", _memory(source, rank, iteration).encode()
        if iteration % 5000 == 0:
            yield "oom_events", _oom(source).encode()


def _iteration(source: random.Random, n: int) -> str:
    stamp = f"2026-09-{1 + n // 80_000 % 28:02d} {n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}.{source.randrange(10**6):06d}"
    return (f" [{stamp}] iteration {n:8d}/{9_000_000:8d} | consumed samples: {n * 512:12d} | elapsed time per iteration (ms): "
            f"{source.uniform(5e3, 6e3):.1f} | throughput per GPU (TFLOP/s/GPU): {source.uniform(300, 420):.1f} | learning rate: "
            f"{source.uniform(1e-5, 3e-4):.6E} | global batch size: {512:5d} | lm loss: {source.uniform(1, 11):.6E} | "
            f"load_balancing_loss: {source.uniform(1, 2):.6E} | loss scale: 1.0 | grad norm: {source.uniform(0, 3):.3f} | "
            f"number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |\n")


def _memory(source: random.Random, rank: int, n: int) -> str:
    if n % 20 == 1:
        sizes = [f"{source.uniform(2e4, 6e4):.2f}" for _ in range(4)]
    else:
        sizes = [str(source.randrange(40_000_000, 120_000_000) * 512 / _MIB) for _ in range(4)]
    names = ("allocated", "max allocated", "reserved", "max reserved")
    return f"[Rank {rank}] (after {n} iterations) memory (MB) | " + " | ".join(f"{a}: {b}" for a, b in zip(names, sizes, strict=True)) + "\n"


def _theory(source: random.Random) -> str:
    weights, activation = source.uniform(1e4, 4e4), source.uniform(1e4, 4e4)
    return ("Number of parameters in transformer block in billions:  68.45\nNumber of parameters in embedding layers in billions: 0.53\n"
            "Total number of parameters in billions: 68.98\nNumber of parameters in most loaded shard in billions: 2.2052\n"
            "compute_activation_memory_without_sp\nActivation memory footprint per transformer layer (precise, without SP): 512.0 MB\n"
            f"Number of in-flight microbatches: 8\nTheoretical memory footprints: weight and optimizer={weights:.2f} MB, "
            f"activation={activation:.2f} MB, total={weights + activation:.2f} MB\n")


def _oom(source: random.Random) -> str:
    return (f"[rank{source.randrange(8)}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {source.uniform(100, 900):.2f} MiB. GPU "
            f"{source.randrange(8)} has a total capacity of 79.11 GiB of which {source.uniform(10, 99):.2f} MiB is free. Including non-PyTorch "
            f"memory, this process has 79.00 GiB memory in use. Of the allocated memory {source.uniform(70, 75):.2f} GiB is allocated by PyTorch, "
            "and 1.20 GiB is reserved by PyTorch but unallocated.\n")


def _noise(source: random.Random) -> bytes:
    """The lines between two records."""
    return "".join(_noise_line(source) for _ in range(NOISE_PER_RECORD)).encode()


def _noise_line(source: random.Random) -> str:
    host, pid, device = f"gpu{source.randrange(64):03d}", source.randrange(1000, 99999), source.randrange(8)
    nccl = f"{host}:{pid}:{pid + source.randrange(999)} [{device}] NCCL INFO "
    moment = f"W0901 {source.randrange(24):02d}:{source.randrange(60):02d}:12.{source.randrange(10**6):06d} {pid} torch/"
    return source.choice((
        nccl + f"NET/IB: NCCL Dev {device} IbDev {device} Port 1 qpn {pid} mtu 5 query_ece={{supported=1, vendor_id=0x15b3}} GID 3\n",
        nccl + f"bootstrapSplit: comm 0x{source.getrandbits(48):x} parent 0x{pid:x} rank {device} nranks 8 color {pid} key {device}\n",
        nccl + "Setting affinity for GPU 3 to ffff,ffffffff,00000000,0000ffff,ffffffff\n",
        nccl + "Using non-device net plugin version 0\n",
        nccl + f"Bootstrap: Using eth{device % 2}:10.3.{device}.{source.randrange(255)}<0>\n",
        nccl + f"threadThresholds 8/8/64 | {source.randrange(64) * 8}/8/64 | 512 | 512\n",
        nccl + f"ncclCommSplit comm 0x{source.getrandbits(48):x} rank {device} busId {pid:x}\n",
        moment + "distributed/run.py:792] *****************************************\n",
        moment + "nn/parallel/distributed.py:90] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n",
        f"/opt/Megatron-LM/megatron/core/tensor_parallel/layers.py:{source.randrange(900)}: UserWarning: When using async grad allreduce it is "
        "recommended to set the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1 for maximum speedup\n",
        "  warnings.warn(\n",
        f"srun: launching StepId={source.randrange(10**6)}.0 on host {host}, 8 tasks: {device}\n",
        f"    optimizer-inner-step ...........................: ({source.uniform(1, 9):.2f}, {source.uniform(9, 12):.2f})\n",
        f"    forward-backward ...............................: ({source.uniform(900, 990):.2f}, {source.uniform(990, 1200):.2f})\n",
        f"INFO:megatron.core.datasets.gpt_dataset:> total number of samples: {source.randrange(10**7)}\n",
    ))
