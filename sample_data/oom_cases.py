"""One job for each kind of out-of-memory error: what fills the device is planted as an account, and the log is written from it.

A full, B1 to B3 cached and unusable (with a snapshot beside the log: `oom_memory`), C another process, D one giant request, E NCCL's own
allocation while torch caches, F host memory, G a cap below capacity. The account is the truth (`truth/oom_cases.json`): every byte of the
device in one of its parts, of which only some are in the message. Messages differ by PyTorch's release as each prints it, once by ROCm's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sample_data import oom, oom_memory, oom_messages, printed
from sample_data.ledger import GIB, MIB, Model, dense_activations, logits_peak, memory_ranks, parameters, resident, stage_of, up_to
from sample_data.oom_memory import Death
from sample_data.oom_messages import Account

H100_BYTES, MI250X_BYTES = oom.CAPACITY_BYTES, 68_702_699_520
OUTSIDE_BYTES = int(2.3 * GIB)
MICRO_BATCHES = 16
GENERATION = "G14"
STEP_MS = 15_900.0


@dataclass(frozen=True, slots=True)
class Case:
    """A job: `case` and `rank` of its error, the account at that instant, memory after a step by rank and step, and what is printed at the end."""

    case: str
    model: Model
    rank: int | None
    iterations: int
    account: Account | None
    end: tuple[str, ...]
    turned_by: tuple[str, ...] = ()
    """The parts of the account of which one, given back, would have let the request fit; none where nothing would."""
    memory: Callable[[int, int], tuple[int, int, int]] | None = None
    snapshot: tuple[str, bytes] | None = None
    mpirun: bool = False
    """Each line tagged with its rank by the launcher, as torchrun does not."""
    args: dict[str, Any] = field(default_factory=dict)


def _steady(model: Model, rank: int) -> int:
    return up_to(resident(model, stage_of(model, rank)), 512)


def _peak(model: Model, rank: int) -> int:
    stage = stage_of(model, rank)
    return up_to(resident(model, stage) + dense_activations(model, stage) + logits_peak(model, stage), 512)


def _plain(model: Model, ratio: float = 1.012) -> Callable[[int, int], tuple[int, int, int]]:
    """Memory of ranks that are the same after each step, as the ledger counts it; reserved is `ratio` of the peak."""
    return lambda rank, step: (_steady(model, rank), _peak(model, rank), up_to(int(_peak(model, rank) * ratio), 2 * MIB))


def _full() -> Case:
    model = replace(oom.MODEL, sequence=5120)
    request, free, unused = 4 * model.tokens * model.ffn // model.tensor, 130 * MIB, 190 * MIB
    live = H100_BYTES - OUTSIDE_BYTES - free - unused
    account = Account(H100_BYTES, request, free, live, split=unused, outside=OUTSIDE_BYTES)
    return Case("A", model, 0, 9, account, oom_messages.torch("2.0", 0, account, "mlp"), memory=_plain(model), mpirun=True)


@cache
def _died(name: str) -> tuple[Model, Death]:
    limit = (H100_BYTES - OUTSIDE_BYTES) // (2 * MIB) * 2 * MIB
    if name == "pieces":
        model = replace(oom.MODEL, sequence=5888)
        return model, oom_memory.pieces(model, limit)
    model = replace(oom.MODEL, sequence=5120)
    return model, oom_memory.streams(model, limit, 5) if name == "streams" else oom_memory.graphs(model, limit, 5, 12)


def _cached(name: str, rank: int, release: str, frame: str, snapshot: str) -> dict[str, Any]:
    """What a simulated rank gives a case; its tensor-parallel peer holds the same, the last stage what the ledger counts."""
    model, death = _died(name)
    state = death.state
    outside = H100_BYTES - state.free - state.reserved
    account = Account(H100_BYTES, state.requested, state.free, state.allocated, split=state.split, pending=state.pending, private=state.private,
                      outside=outside)

    def memory(of: int, step: int) -> tuple[int, int, int]:
        return _plain(model)(of, step) if stage_of(model, of) else tuple(death.readings[step - 1])  # type: ignore[return-value]

    return {"model": model, "rank": rank, "iterations": len(death.readings), "account": account, "memory": memory,
            "end": oom_messages.torch(release, rank, account, frame), "snapshot": (snapshot, death.snapshot)}


def _pieces() -> Case:
    return Case("B1", **_cached("pieces", 0, "2.9", "mlp", "snapshot_oom_rank_0.pickle.gz"), turned_by=("split",),
                args={"variable_seq_lengths": True})


def _streams() -> Case:
    made = _cached("streams", 1, "2.7", "gather", "snapshot_oom_rank-1.pickle.gz")
    saved = "[OOM] rank 1 saved memory snapshot to /data/runs/oom/snapshot_oom_rank-1.pickle"
    return Case("B2", **{**made, "end": (saved, *made["end"])}, turned_by=("pending",))


def _graphs() -> Case:
    made = _cached("graphs", 0, "2.5", "mlp", "oom_rank-0_snapshot.pickle.gz")
    built = "> built 12 cuda graph(s) in 4.37 sec, with total memory usage: allocated 0.6 gb, reserved 7.3 gb."
    return Case("B3", **{**made, "end": (built, "saving allocated state during OOM", *made["end"])}, turned_by=("private",),
                args={"enable_cuda_graph": True})


def _another() -> Case:
    model = replace(oom.MODEL, sequence=4608)
    held, unused, free = _plain(model)(1, 1)[2], 180 * MIB, 98 * MIB
    account = Account(H100_BYTES, 4 * model.tokens * model.ffn // model.tensor, free, held - unused, split=unused, outside=OUTSIDE_BYTES,
                      others=H100_BYTES - OUTSIDE_BYTES - held - free)
    return Case("C", model, 1, 14, account, oom_messages.torch("2.4", 1, account, "mlp"), turned_by=("others",), memory=_plain(model))


def _giant() -> Case:
    model = replace(oom.MODEL, micro_batch=2)
    sequence, outside = 32_768, int(1.4 * GIB)
    request = 2 * model.heads // model.tensor * sequence * sequence
    live, unused = _steady(model, 0) + 800 * MIB, 900 * MIB
    account = Account(MI250X_BYTES, request, MI250X_BYTES - outside - live - unused, live, split=unused, outside=outside)
    evaluating = ("[1,0]<stdout>:Evaluating on 160 samples", "[1,0]<stdout>:Evaluating iter 1/10")
    return Case("D", model, 0, 10, account, (*evaluating, *oom_messages.torch("2.1", 0, account, "scores", device="HIP")), memory=_plain(model),
                mpirun=True, args={"eval_interval": 10, "attention_backend": "AttnBackend.unfused", "use_flash_attn": False})


def _library() -> Case:
    model = replace(oom.MODEL, sequence=5120)
    held = up_to(int(H100_BYTES - OUTSIDE_BYTES - 4 * MIB), 2 * MIB) - 2 * MIB
    live = _steady(model, 0)
    account = Account(H100_BYTES, 10_485_760, H100_BYTES - OUTSIDE_BYTES - held, live, whole=held - live, outside=OUTSIDE_BYTES)
    saving = "saving checkpoint at iteration      20 to /data/runs/oom/checkpoints in torch_dist format"

    def memory(rank: int, step: int) -> tuple[int, int, int]:
        return _steady(model, rank), _peak(model, rank), held if rank == 0 else _plain(model)(rank, step)[2]

    return Case("E", model, 0, 20, account, (saving, *oom_messages.nccl(account)), turned_by=("whole",), memory=memory, args={"save_interval": 20})


def _host() -> Case:
    def memory(rank: int, step: int) -> tuple[int, int, int]:
        on_host = 12 * parameters(oom.MODEL, stage_of(oom.MODEL, rank))
        return tuple(size - on_host for size in _plain(oom.MODEL)(rank, step))  # type: ignore[return-value]

    return Case("F", oom.MODEL, None, 6, None, oom_messages.host(), turned_by=("host",), memory=memory,
                args={"optimizer_cpu_offload": True, "optimizer_offload_fraction": 1.0})


def _capped() -> Case:
    allowed, outside = H100_BYTES // 2, int(1.2 * GIB)
    live, unused = allowed - 380 * MIB, 220 * MIB
    request = 4 * oom.MODEL.tokens * oom.MODEL.ffn // oom.MODEL.tensor
    account = Account(H100_BYTES, request, H100_BYTES - outside - live - unused, live, split=unused, outside=outside, allowed=allowed)
    return Case("G", oom.MODEL, 0, 0, account, oom_messages.torch("2.6", 0, account, "mlp"), turned_by=("allowed",))


CASES: dict[str, Callable[[], Case]] = {
    "oom_case_a": _full, "oom_case_b1": _pieces, "oom_case_b2": _streams, "oom_case_b3": _graphs, "oom_case_c": _another, "oom_case_d": _giant,
    "oom_case_e": _library, "oom_case_f": _host, "oom_case_g": _capped}
_OUTSIDE = {"oom_case_d": int(1.4 * GIB)}


def files(run: str) -> dict[str, str | bytes]:
    """File names and contents of a run."""
    case = CASES[run]()
    found: dict[str, str | bytes] = {"train.log": "\n".join([*_training(case, _OUTSIDE.get(run, OUTSIDE_BYTES)), *case.end]) + "\n"}
    return found | ({case.snapshot[0]: case.snapshot[1]} if case.snapshot else {})


def _training(case: Case, outside: int) -> list[str]:
    """The log up to the last whole iteration."""
    model, ranks = case.model, memory_ranks(case.model)
    args = printed.arguments(model, MICRO_BATCHES, **{
        "recompute_granularity": "selective", "train_iters": 5000, "load": None, "save": "/data/runs/oom/checkpoints", "log_memory_interval": 2,
        "log_device_memory_used": True, **case.args})
    lines = [(0, line) for line in (*printed.header(model, args, MICRO_BATCHES), *printed.counts(model, ranks), "training ...")]
    at = datetime(2026, 7, 8, 9, 15, 30)
    for step in range(1, case.iterations + 1):
        at += timedelta(milliseconds=STEP_MS)
        lines.append((model.world - 1, printed.iteration_line(args, at, step, 5000, STEP_MS, 11.8 - 0.1 * step, tflops=318.0, microseconds=True)))
        lines += [(0, line) for line in (printed.theory(args, model, MICRO_BATCHES, GENERATION) if step == 1 else ())]
        lines += _memory(case, ranks, step, outside) if step == 1 or step % 2 == 0 else []
    return [f"[1,{rank}]<stdout>:{line}" if case.mpirun else line for rank, line in lines]


def _memory(case: Case, ranks: list[int], step: int, outside: int) -> list[tuple[int, str]]:
    assert case.memory is not None
    read = [(rank, *case.memory(rank, step)) for rank in ranks]
    return [(rank, printed.memory(rank, step, now, most, held, held + outside)) for rank, now, most, held in read]


def truth() -> dict[str, bytes]:
    """The planted case of every run, with the account that makes it so."""
    planted = {run: make() for run, make in CASES.items()}
    told = {run: {"case": case.case, "rank": case.rank, "iteration": case.iterations or None, "turned_by": list(case.turned_by),
                  "account_bytes": asdict(case.account) if case.account else None, "snapshot": case.snapshot[0] if case.snapshot else None}
            for run, case in planted.items()}
    return {"oom_cases.json": (json.dumps(told, indent=1) + "\n").encode()}
