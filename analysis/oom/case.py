"""Which kind of out-of-memory error it was, by counterfactual: what, given back, would have let the request fit?

Nothing is in the message but a request and a few totals. What the totals leave open is taken from the rank's own history: what stays
allocated between steps, and what lay outside torch before. The order of the questions is that of certainty: not the device (F), not torch (E),
a cap (G), a request that could never fit (D), cached memory that would have sufficed (B, with its letter where a snapshot splits it), memory
outside torch above what was expected (C); what none of them turns is full (A). Cases and counterfactuals: docs/methods/oom.md.
The allocator has already released whole free segments and retried before it throws, so what it still holds is split, pending, or another pool's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.allocator import segment_bytes

GIB = 2**30
USUAL_OUTSIDE_BYTES = 10 * GIB
"""Above any communication and context measured in public (NCCL 7 GB dense, 9.5 GB MoE a rank): beyond it outside is in excess without a history."""

NOT_TORCH = ("nccl", "rccl", "hccl", "cublas", "cudnn", "driver")
_LITTLE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Before:
    """The rank before it died, null where not known: bytes between steps, bytes outside torch, allocated and reserved at its last reading."""

    steady_bytes: int | None = None
    outside_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Cached:
    """What a snapshot of the rank says of its free cached memory, in bytes: split remainders, pending on streams, free in private pools."""

    split_bytes: int
    pending_bytes: int
    private_bytes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """`case` A, B, B1, B2, B3, C, D, E, F, G or unknown; `reason` one sentence; `figures` what it was worked out from, in bytes."""

    case: str
    reason: str
    figures: Mapping[str, int] = field(default_factory=dict)


def judge(kind: str | None, numbers: Mapping[str, int], others_bytes: int = 0, before: Before | None = None, cached: Cached | None = None) -> Verdict:
    """The case of one error. `numbers` as in `oom_events`; `others_bytes` held by other processes that the message names."""
    before = before or Before()
    if kind == "host":
        return Verdict("F", "host memory, not the device's")
    if kind in NOT_TORCH:
        return _not_torch(kind or "", numbers, before)
    if "requested_bytes" not in numbers:
        return Verdict("unknown", "the message does not say how much was asked for")
    return _torch(numbers, others_bytes, before, cached)


def _not_torch(kind: str, numbers: Mapping[str, int], before: Before) -> Verdict:
    """Another allocator's request failed: torch's cache is the question."""
    who = {"driver": "the driver's own", "nccl": "NCCL's", "rccl": "RCCL's", "hccl": "HCCL's", "cublas": "cuBLAS's", "cudnn": "cuDNN's"}[kind]
    if before.reserved_bytes is None or before.allocated_bytes is None:
        return Verdict("E", f"the request that failed is {who}, not torch's; how much torch had cached is not known")
    cache = before.reserved_bytes - before.allocated_bytes
    figures = {"cached_bytes": cache}
    if cache < max(_LITTLE_BYTES, numbers.get("requested_bytes", 0)):
        reason = f"the request that failed is {who}, but torch had cached too little to give way: the device is full of live bytes"
        return Verdict("A", reason, figures)
    return Verdict("E", f"the request that failed is {who}, while torch held memory that it did not use", figures)


def _torch(numbers: Mapping[str, int], others: int, before: Before, cached: Cached | None) -> Verdict:
    asked, free, capacity, allowed = (numbers.get(f"{name}_bytes") for name in ("requested", "free", "capacity", "allowed"))
    need = segment_bytes(asked or 0)
    if allowed is not None and capacity is not None and allowed < capacity and free is not None and free >= need:
        return Verdict("G", "the device had room for it: a cap below its capacity is in force", {"need_bytes": need, "free_bytes": free})
    if giant := _giant(need, capacity, numbers, before):
        return giant
    if free is None:
        return _capped(allowed, capacity) or Verdict("unknown", "the message does not say how much of the device was free")
    unused, private = _unused(numbers), cached.private_bytes if cached else numbers.get("private_pool_bytes", 0)
    if unused is None:
        return _capped(allowed, capacity) or Verdict("unknown", "the message does not say how much torch had reserved")
    short = need - free
    outside = _outside(short, unused, numbers, others, before)
    if unused >= short and not (outside and outside.figures["excess_bytes"] > unused):
        return _cached(asked or 0, free, unused, cached)
    if private >= short and not (outside and outside.figures["excess_bytes"] > private):
        return Verdict("B3", "free blocks of private pools, which only a CUDA graph may use, would have let it fit",
                       {"short_bytes": short, "reserved_unallocated_bytes": unused, "private_bytes": private})
    return outside or Verdict(
        "A", "neither the cache nor what lies outside torch would have let it fit: live bytes and the request together are more than the device",
        {"short_bytes": short, "reserved_unallocated_bytes": unused})


def _capped(allowed: int | None, capacity: int | None) -> Verdict | None:
    capped = allowed is not None and capacity is not None and allowed < capacity
    return Verdict("G", "a cap below the device's capacity is in force; how much of the device was free is not said") if capped else None


def _giant(need: int, capacity: int | None, numbers: Mapping[str, int], before: Before) -> Verdict | None:
    """A request that could not fit even with nothing but the steady state and what lies outside torch on the device."""
    if capacity is None:
        return None
    steady = before.steady_bytes or 0
    outside = before.outside_bytes if before.outside_bytes is not None else 0
    if need <= capacity - steady - outside:
        return None
    beside = "" if not steady + outside else " less what stays between steps and what lies outside torch"
    figures = {"need_bytes": need, "capacity_bytes": capacity, "steady_bytes": steady, "outside_bytes": outside}
    return Verdict("D", f"the request alone is larger than the device{beside}", figures)


def _unused(numbers: Mapping[str, int]) -> int | None:
    """Reserved by torch and not allocated; private pools' free bytes are not in it."""
    if "reserved_unallocated_bytes" in numbers:
        return numbers["reserved_unallocated_bytes"]
    if "reserved_bytes" in numbers and "allocated_bytes" in numbers:
        return numbers["reserved_bytes"] - numbers["allocated_bytes"]
    return None


def _cached(asked: int, free: int, unused: int, cached: Cached | None) -> Verdict:
    figures = {"free_bytes": free, "reserved_unallocated_bytes": unused}
    if cached is None:
        return Verdict("B", "torch held enough that it did not use, but not in one usable piece; the message alone does not tell why", figures)
    ways = {"B1": (cached.split_bytes, "in pieces split off larger blocks"), "B2": (cached.pending_bytes, "freed but pending on another stream"),
            "B3": (cached.private_bytes, "free in private pools")}
    figures |= {"split_bytes": cached.split_bytes, "pending_bytes": cached.pending_bytes, "private_bytes": cached.private_bytes}
    enough = [case for case, (size, _) in ways.items() if free + size >= asked]
    case = max(enough or ways, key=lambda one: ways[one][0])
    return Verdict(case if enough else "B", f"torch held enough that it did not use: {ways[case][1]}", figures)


def _outside(short: int, unused: int, numbers: Mapping[str, int], others: int, before: Before) -> Verdict | None:
    """Memory outside torch above expectation, where giving the excess back would have sufficed; it is compared with what the cache would give."""
    allocated, process = numbers.get("allocated_bytes"), numbers.get("process_bytes")
    if others >= max(short, _LITTLE_BYTES):
        return Verdict("C", "other processes hold enough of the device", {"short_bytes": short, "excess_bytes": others})
    if allocated is None:
        return None
    held = allocated + unused
    capacity, free = numbers.get("capacity_bytes"), numbers.get("free_bytes")
    own = process - held if process is not None else capacity - free - held - others if capacity is not None and free is not None else None
    if own is None:
        return None
    expected = USUAL_OUTSIDE_BYTES if before.outside_bytes is None else before.outside_bytes
    if own - expected < short:
        return None
    known = "that was never seen to be needed" if before.outside_bytes is None else "than this rank ever had before"
    return Verdict("C", f"more lies outside torch {known}", {"short_bytes": short, "outside_bytes": own, "excess_bytes": own - expected})
