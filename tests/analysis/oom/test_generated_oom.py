"""Generated out-of-memory errors in every wording, with the case planted: written as logs, read by the log's parser, judged from tables.

The generator keeps its own account of a device (live, cached, pending, private, outside) and knows no rule of `analysis.oom.case`.
"""

from __future__ import annotations

import random

import pytest

from analysis.database import from_rows
from analysis.oom.table import oom_table
from tests.analysis.made import shown
from tests.ingest.parsers.log.reading import read

GIB, MIB = 2**30, 2**20
CAPACITY = 80 * GIB
WORDINGS = ("torch1.3", "torch1.9", "torch2.0", "torch2.1", "torch2.6", "torch2.9", "hip", "npu")


def _text(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"


def _message(wording: str, ask: int, free: int, allocated: int, unused: int, outside: int, allowed: int | None, other: int) -> str:
    device = {"hip": "HIP", "npu": "NPU"}.get(wording, "CUDA")
    if wording in ("torch1.3", "torch1.9", "torch2.0", "npu"):
        kind = "NPU" if wording == "npu" else "GPU"
        cached = f"{_text(unused)} cached" if wording == "torch1.3" else f"{_text(allocated + unused)} reserved in total by PyTorch"
        cap = f"{_text(allowed)} allowed; " if allowed else ""
        return (f"RuntimeError: {device} out of memory. Tried to allocate {_text(ask)} ({kind} 0; {_text(CAPACITY)} total capacity; "
                f"{_text(allocated)} already allocated; {_text(free)} free; {cap}{cached})")
    word = "capacty" if wording == "torch2.1" else "capacity"
    others = f"Process 4711 has {_text(other)} memory in use. " if other else ""
    cap = f"{_text(allowed)} allowed; " if allowed else ""
    process = allocated + unused + outside
    return (f"torch.OutOfMemoryError: {device} out of memory. Tried to allocate {_text(ask)}. GPU 0 has a total {word} of {_text(CAPACITY)} of which "
            f"{_text(free)} is free. {others}Including non-PyTorch memory, this process has {_text(process)} memory in use. {cap}"
            f"Of the allocated memory {_text(allocated)} is allocated by PyTorch, and {_text(unused)} is reserved by PyTorch but unallocated. "
            "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.")


def _event(case: str, chance: random.Random):
    """A log of one rank that dies of `case`, as text."""
    outside, steady = chance.randint(1, 4) * GIB + chance.randint(0, GIB), chance.randint(20, 40) * GIB
    ask, other, allowed, unused = chance.randint(200, 3000) * MIB, 0, None, chance.randint(1, 60) * MIB
    excess = 0
    if case == "B":
        unused = ask + chance.randint(1, 8) * GIB
    elif case == "C":
        excess = ask + chance.randint(2, 6) * GIB
    elif case == "D":
        ask = CAPACITY - steady - outside + chance.randint(1, 20) * GIB
    elif case == "G":
        allowed = chance.randint(30, 60) * GIB
    free = chance.randint(0, 100) * MIB
    allocated = CAPACITY - outside - excess - other - unused - free
    if case == "D":
        allocated, free = steady, CAPACITY - steady - unused - outside
    if case == "G":
        allocated, free = allowed - unused - 10 * MIB, CAPACITY - (allowed - 10 * MIB) - outside
    wording = chance.choice(WORDINGS)
    lines = []
    for step in range(1, 8):
        held = steady + 20 * GIB
        lines.append(f"[Rank 0] (after {step} iterations) memory (MB) | allocated: {steady / MIB:.2f} | "
                     f"max allocated: {(steady + 15 * GIB) / MIB:.2f} | "
                     f"reserved: {held / MIB:.2f} | max reserved: {held / MIB:.2f} | total device memory used: {(held + outside) / MIB:.2f}")
    lines.append("[rank0]: " + _message(wording, ask, free, allocated, unused, outside + excess, allowed, other))
    return "\n".join(lines) + "\n", wording


def _judged(text: str):
    return oom_table(shown(read(text), "file"), "file", 0)


@pytest.mark.parametrize("case", ["A", "B", "C", "D", "G"])
def test_the_planted_case_is_found_in_every_wording(case):
    seen = set()
    for seed in range(28):
        text, wording = _event(case, random.Random(f"{case}{seed}"))
        found = _judged(text)
        assert [one.case for one in found] == [case], (seed, text.splitlines()[-1], found)
        seen.add(wording)
    assert len(seen) >= 6


NOT_TORCH = (
    "[rank0]: node1:4242:4300 [0] NCCL WARN Failed to CUDA calloc async 608 bytes",
    "[rank0]: node1:4242:4300 [0] alloc.h:214 NCCL WARN Cuda failure 'out of memory'",
    "[rank0]: RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "[rank0]: RuntimeError: CUDA error: out of memory",
)


@pytest.mark.parametrize("message", NOT_TORCH)
@pytest.mark.parametrize(("cached", "case"), [(56, "E"), (0, "A")])
def test_another_library_dies_while_torch_caches_or_beside_a_full_device(message, cached, case):
    """Reserved 113 GiB against 57 GiB allocated, then NCCL fails: the cache is what has to give way."""
    allocated = 57 * GIB
    line = (f"[Rank 0] (after 9 iterations) memory (MB) | allocated: {allocated / MIB:.2f} | max allocated: {allocated / MIB:.2f} | "
            f"reserved: {(allocated + cached * GIB) / MIB:.2f} | max reserved: {(allocated + cached * GIB) / MIB:.2f}")
    found = _judged(f"{line}\n{message}\n")
    assert [one.case for one in found] == [case]


@pytest.mark.parametrize("message", NOT_TORCH)
def test_without_a_history_another_library_s_failure_says_what_is_missing(message):
    (one,) = _judged(message + "\n")
    assert one.case == "E"
    assert "not known" in one.reason


@pytest.mark.parametrize("line", [
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=123.0. Some of your processes may have been killed.",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you tried to allocate 17179869184 bytes.",
    "[123456.789] Out of memory: Killed process 4711 (python) total-vm:123456kB, anon-rss:654321kB",
])
def test_host_memory_is_told_from_the_device_s(line):
    assert {one.case for one in _judged(line + "\n")} == {"F"}


def test_other_processes_on_the_device_are_found():
    message = _message("torch2.6", 2 * GIB, 100 * MIB, 40 * GIB, 10 * MIB, GIB, None, 38 * GIB)
    (one,) = _judged(message + "\n")
    assert one.case == "C"
    assert one.figures["excess_bytes"] == 38 * GIB


def test_a_message_without_totals_is_not_judged():
    (one,) = _judged("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert (one.case, one.missing) == ("unknown", ("capacity_bytes", "free_bytes", "allocated_bytes", "reserved_bytes"))


def test_a_tip_in_force_is_not_given_again_and_a_useless_one_is_said_to_be():
    cached = _message("torch2.6", 2 * GIB, 100 * MIB, 60 * GIB, 10 * GIB, GIB, None, 0)
    full = _message("torch2.6", 2 * GIB, 100 * MIB, 78 * GIB, 10 * MIB, GIB, None, 0)
    rows = read(cached + "\n")
    assert oom_table(from_rows(rows), "file", 0)[0].tips[0].status == "may help"
    rows["environment"] = [{"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True", "line": 1}]
    assert oom_table(from_rows(rows), "file", 0)[0].tips[0].status == "in force"
    assert oom_table(from_rows(read(full + "\n")), "file", 0)[0].tips[0].status == "useless here"
