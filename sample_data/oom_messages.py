"""What is printed when memory runs out, filled from an account of the device: PyTorch by release, NCCL, and a host's kill."""

from __future__ import annotations

from dataclasses import dataclass

from sample_data.ledger import GIB, MIB


@dataclass(frozen=True, slots=True)
class Account:
    """Every byte of a device when a request failed: free, live blocks, what torch caches by kind, and what lies outside torch.

    `whole` are free segments, `split` free pieces of segments in use, `pending` blocks that another stream has yet to finish with, `private`
    free pieces in private pools; `others` is held by other processes; `allowed` is a cap on torch's own, null where there is none.
    """

    capacity: int
    requested: int
    free: int
    live: int
    whole: int = 0
    split: int = 0
    pending: int = 0
    private: int = 0
    outside: int = 0
    others: int = 0
    allowed: int | None = None

    def __post_init__(self) -> None:
        if self.free + self.reserved + self.outside + self.others != self.capacity:
            raise ValueError("the parts of the device do not add up")

    @property
    def reserved(self) -> int:
        """Of torch's allocator."""
        return self.live + self.unused + self.private

    @property
    def unused(self) -> int:
        """What messages call reserved and unallocated: private pools are not in it."""
        return self.whole + self.split + self.pending


_FRAMES = {
    "mlp": ("megatron/core/transformer/mlp.py", 164, "forward", "intermediate_parallel, bias_parallel = self.linear_fc1(hidden_states)"),
    "gather": ("megatron/core/tensor_parallel/mappings.py", 148, "_gather_along_first_dim",
               "output = torch.empty(dim_size, dtype=input_.dtype, device=torch.cuda.current_device())"),
    "scores": ("megatron/core/transformer/dot_product_attention.py", 171, "forward", "attention_scores = torch.baddbmm("),
}
_HINT = "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
_DOCS = {
    "2.1": "If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory "
           "Management and PYTORCH_HIP_ALLOC_CONF",
    "2.9": f"{_HINT}  See documentation for Memory Management  "
           "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"}


def torch(release: str, rank: int, account: Account, frame: str, device: str = "CUDA") -> tuple[str, ...]:
    """The traceback of a rank and the launcher's last word. From 2.2 on PyTorch itself puts the rank before each line; before, mpirun does here."""
    file, line, function, code = _FRAMES[frame]
    error = "torch.OutOfMemoryError" if _at_least(release, 5) else "torch.cuda.OutOfMemoryError"
    said = _before_2_1(account, rank) if release == "2.0" else _since_2_1(release, account, rank)
    trace = ["Traceback (most recent call last):", '  File "/opt/megatron/pretrain_gpt.py", line 301, in <module>', "    pretrain(",
             '  File "/opt/megatron/megatron/training/training.py", line 2571, in train_step', "    losses_reduced = forward_backward_func(",
             f'  File "/opt/megatron/{file}", line {line}, in {function}', f"    {code}", f"{error}: {device} out of memory. {said}"]
    if not _at_least(release, 2):
        return (*(f"[1,{rank}]<stderr>:{text}" for text in trace), "mpirun detected that one or more processes exited with non-zero status.")
    return (*(f"[rank{rank}]: {text}" for text in trace), *_failed(rank))


def _at_least(release: str, minor: int) -> bool:
    return int(release.split(".")[1]) >= minor


def _before_2_1(account: Account, device: int) -> str:
    return (f"Tried to allocate {_size(account.requested)} (GPU {device}; {_size(account.capacity)} total capacity; {_size(account.live)} already "
            f"allocated; {_size(account.free)} free; {_size(account.reserved)} reserved in total by PyTorch) If reserved memory is >> allocated "
            "memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF")


def _since_2_1(release: str, account: Account, device: int) -> str:
    other = f"Process 31337 has {_size(account.others)} memory in use. " if account.others else ""
    allowed = f"{_size(account.allowed)} allowed; " if account.allowed is not None else ""
    private = f"with {_size(account.private)} allocated in private pools (e.g., CUDA Graphs), " if account.private else ""
    capacity = "capacty" if release == "2.1" else "capacity"
    usual = f"{_HINT}  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    return (f"Tried to allocate {_size(account.requested)}. GPU {device} has a total {capacity} of {_size(account.capacity)} of which "
            f"{_size(account.free)} is free. {other}Including non-PyTorch memory, this process has {_size(account.reserved + account.outside)} "
            f"memory in use. {allowed}Of the allocated memory {_size(account.live + account.private)} is allocated by PyTorch, {private}and "
            f"{_size(account.unused)} is reserved by PyTorch but unallocated. {_DOCS.get(release, usual)}")


def _size(size: int) -> str:
    """As PyTorch's `format_size`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"


def _failed(local: int) -> tuple[str, ...]:
    return (f"E0708 09:22:41.507000 4410 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: {local} "
            f"(pid: {4471 + local}) of binary: /usr/bin/python3",)


def nccl(account: Account) -> tuple[str, ...]:
    """NCCL's warning, and the traceback that quotes it."""
    failed = f"Failed to CUDA calloc async {account.requested} bytes"
    trace = ["Traceback (most recent call last):", '  File "/opt/megatron/megatron/training/checkpointing.py", line 612, in save_checkpoint',
             "    torch.distributed.barrier(group=save_group)",
             "torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled cuda error "
             "(run with NCCL_DEBUG=INFO for details), NCCL version 2.26.5", "ncclUnhandledCudaError: Call to CUDA function failed.",
             "Last error:", failed]
    return (f"[rank0]: gx-n07:4471:4902 [0] include/alloc.h:228 NCCL WARN {failed}", *(f"[rank0]: {text}" for text in trace), *_failed(0))


def host() -> tuple[str, ...]:
    """The control group of a job's step is over its memory: the kernel kills, torchrun sees a signal, Slurm says why."""
    return ("W0708 09:17:12.310000 4410 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4472 closing signal SIGTERM",
            "E0708 09:17:14.008000 4410 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 0 (pid: 4471) of "
            "binary: /usr/bin/python3",
            "slurmstepd: error: Detected 1 oom_kill event in StepId=81244.0. Some of the step tasks have been OOM Killed.")
