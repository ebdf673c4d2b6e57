"""Out-of-memory errors of six years and five vendors, those that libraries report, and the host's kills, which are none of the device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ingest.parsers.log.reading import read

MIB, GIB = 2**20, 2**30


def figures(row: dict[str, Any]) -> dict[str, int]:
    return {name.removesuffix("_bytes"): value for name, value in row.items() if name.endswith("_bytes") and value is not None}


@pytest.mark.parametrize(("text", "kind", "device", "expected"), [
    ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.50 GiB total capacity; 5.25 GiB already allocated; 100.50 MiB free; "
     "1.25 GiB cached)", "cuda", 0,
     {"requested": 20 * MIB, "capacity": 21 * GIB // 2, "allocated": 21 * GIB // 4, "free": 201 * MIB // 2, "reserved_unallocated": 5 * GIB // 4}),
    ("RuntimeError: CUDA out of memory. Tried to allocate 156.00 MiB (GPU 7; 10.50 GiB total capacity; 5.25 GiB already allocated; 100.50 MiB free; "
     "5.75 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
     "max_split_size_mb to avoid fragmentation.", "cuda", 7,
     {"requested": 156 * MIB, "capacity": 21 * GIB // 2, "allocated": 21 * GIB // 4, "free": 201 * MIB // 2, "reserved": 23 * GIB // 4}),
    ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.50 GiB. GPU 3 has a total capacity of "
     "255.75 GiB of which 3.25 GiB is free. Of the "
     "allocated memory 240.50 GiB is allocated by PyTorch, and 9.00 GiB is reserved by PyTorch but unallocated.", "hip", 3,
     {"requested": 25 * GIB // 2, "capacity": 1023 * GIB // 4, "free": 13 * GIB // 4, "allocated": 481 * GIB // 2, "reserved_unallocated": 9 * GIB}),
    ("RuntimeError: NPU out of memory. Tried to allocate 20.00 MiB (NPU 5; 29.50 GiB total capacity; 28.25 GiB already allocated; 28.25 GiB current "
     "active; 9.00 MiB free; 28.75 GiB reserved in total by PyTorch)", "npu", 5,
     {"requested": 20 * MIB, "capacity": 59 * GIB // 2, "allocated": 113 * GIB // 4, "free": 9 * MIB, "reserved": 115 * GIB // 4}),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 102.00 MiB. GPU 0 has a total "
     "capacty of 39.25 GiB of which 512.00 bytes is free. "
     "Including non-PyTorch memory, this process has 39.00 GiB memory in use. 35.50 GiB allowed; Of the allocated memory 37.00 GiB is allocated by "
     "PyTorch, with 9.50 GiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated.", "cuda", 0,
     {"requested": 102 * MIB, "capacity": 157 * GIB // 4, "free": 512, "process": 39 * GIB, "allowed": 71 * GIB // 2, "allocated": 37 * GIB,
      "private_pool": 19 * GIB // 2, "reserved_unallocated": GIB}),
])
def test_the_allocator_s_messages(text: str, kind: str, device: int, expected: dict[str, int]) -> None:
    (row,) = read(f"[rank3]: {text}\n")["oom_events"]
    assert (row["kind"], row["device"], row["rank"], row["valid"], figures(row)) == (kind, device, 3, True, expected)


def test_what_a_process_holds_outside_torch_and_other_processes() -> None:
    (row,) = read("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
                  "capacity of 79.00 GiB of which 1.00 GiB is free. "
                  "Process 20 has 256.00 MiB memory in use. Process 30 has 1.00 GiB memory in use. Including "
                  "non-PyTorch memory, this process has 76.00 GiB "
                  "memory in use. Of the allocated memory 74.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.\n"
                  )["oom_events"]
    assert row["other"] == {"process_20_bytes": str(256 * MIB), "process_30_bytes": str(GIB), "non_pytorch_bytes": str(3 * GIB // 2)}


@pytest.mark.parametrize(("text", "kind", "requested"), [
    ("torch.AcceleratorError: CUDA error: out of memory", "driver", None), ("RuntimeError: HIP error: out of memory", "driver", None),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cublas", None),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "cudnn", None),
    ("[core.cpp] CUresult error  result=2 file=csrc/core.cpp func=tms_torch_malloc line=35", "saver", None),
    ("[TMS] out of memory: cuMemCreate failed size=2147483648 device=0", "saver", 2 * GIB),
    ("[torch_memory_saver.cpp] CUresult error: 2 (out of memory)  file=csrc/utils.h func=cu_mem_create line=102", "saver", None),
    ("RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory: you "
     "tried to allocate 8589934592 bytes.", "host",
     8 * GIB),
    ("rtMalloc failed. size:5254523547", "npu", 5254523547), ("[ERROR] rtMalloc failed, size: 1024", "npu", 1024),
    ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 1.00 TiB", "host", None), ("MemoryError", "host", None),
    ("gx-n01:3310:4411 [6] include/alloc.h:178 NCCL WARN Failed to CUDA calloc async 608 bytes", "nccl", 608),
    ("gx-n01:3310:4411 [6] include/alloc.h:48 NCCL WARN Failed to CUDA host alloc 147456 bytes", "nccl", 147456),
    ("[2026-06-22 03:04:05] gx-n01:3310:4411 [6] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'", "nccl", None),
    ("gx-n01:3310:4411 [4] transport/nvls.cc:376 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast "
     "memory of size 2097152 : CUDA error 2 'out of "
     "memory'.", "nccl", 2097152),
])
def test_what_other_allocators_and_libraries_report(text: str, kind: str, requested: int | None) -> None:
    (row,) = read(text + "\n")["oom_events"]
    assert (row["kind"], row["requested_bytes"], row["valid"]) == (kind, requested, True)
    assert figures(row) == ({"requested": requested} if requested else {})


TRACEBACK = """\
[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "/opt/train/Megatron-LM/pretrain_gpt.py", line 245, in <module>
[rank{0}]:   File "/opt/train/Megatron-LM/megatron/core/tensor_parallel/layers.py", line 77, in forward
[rank{0}]:   File "/opt/conda/lib/python3.10/site-packages/torch/distributed/c10d_logger.py", line 83, in wrapper
[rank{0}]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:330, unhandled cuda error
[rank{0}]: ncclUnhandledCudaError: Call to CUDA function failed.
[rank{0}]: Last error:
[rank{0}]: {1}
"""


def test_nccl_s_last_error_in_a_traceback_is_told_where_no_warning_was() -> None:
    told = TRACEBACK.format(5, "Failed to CUDA calloc async 4 bytes")
    (row,) = read(told)["oom_events"]
    assert (row["kind"], row["rank"], row["requested_bytes"], row["frame"]) == ("nccl", 5, 4, "layers.py:77")
    warned = "gx-n01:3310:4411 [5] include/alloc.h:178 NCCL WARN Failed to CUDA calloc async 4 bytes\n" + told
    assert len(read(warned)["oom_events"]) == 1
    assert "oom_events" not in read(TRACEBACK.format(5, "Connection reset by peer"))


def test_frames_belong_to_their_rank_and_not_for_ever() -> None:
    frame = '[rank{0}]:   File "/opt/train/{1}.py", line 7, in x\n'
    error = "[rank{0}]: torch.AcceleratorError: CUDA error: out of memory\n"
    rows = read(frame.format(1, "one") + frame.format(2, "two") + error.format(1) + error.format(2))["oom_events"]
    assert [(row["rank"], row["frame"]) for row in rows] == [(1, "one.py:7"), (2, "two.py:7")]
    assert read(frame.format(1, "one") + "noise\n" * 500 + error.format(1))["oom_events"][0]["frame"] is None
    many = "".join(frame.format(rank, "far") for rank in range(2_000))
    assert read(many + error.format(1) + error.format(1_999))["oom_events"][1]["frame"] == "far.py:7"


@pytest.mark.parametrize("text", [
    "[Tue Mar  3 10:00:00 2026] Out of memory: Killed process 12345 (python) total-vm:123456kB, anon-rss:98765432kB",
    "Memory cgroup out of memory: Killed process 12345 (python) total-vm:123456kB", "oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=3142",
    "slurmstepd: error: Detected 3 oom-kill event(s) in StepId=123.batch. Some of your processes may have been killed.",
    "srun: error: gx-n12: task 2: Out Of Memory", "  Reason:       OOMKilled",
    "RuntimeError: DataLoader worker (pid 3141) is killed by signal: Killed. ", "ray.exceptions.OutOfMemoryError: Task was killed due to the node",
])
def test_a_kill_by_the_host_is_an_event_and_no_device_s_error(text: str) -> None:
    rows = read(text + "\n")
    assert [row["event"] for row in rows["job_events"]] == ["host_killed"]
    assert "oom_events" not in rows


def test_errors_of_two_ranks_on_one_line_are_each_rank_s() -> None:
    error = "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {0}.00 GiB. GPU {0} has a total capacity of 79.00 GiB of which"
    rows = read(error.format(3) + " 1.00 MiB is free." + error.format(4) + " 2.00 MiB is free.\n")["oom_events"]
    found = [(row["rank"], row["device"], row["requested_bytes"], row["free_bytes"]) for row in rows]
    assert found == [(3, 3, 3 * GIB, MIB), (4, 4, 4 * GIB, 2 * MIB)]
