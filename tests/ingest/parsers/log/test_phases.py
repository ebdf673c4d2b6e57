"""Memory printed at a phase by neighbours of Megatron and by people: figures, units, who and when."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ingest.parsers.log.reading import read

MIB, GIB = 2**20, 2**30


def gib(value: float) -> int:
    return round(value * GIB)


def one(text: str) -> dict[str, Any]:
    (row,) = read(text + "\n")["rank_memory"]
    return row


@pytest.mark.parametrize(("text", "rank", "phase", "allocated", "reserved"), [
    ("(WorkerDict pid=3) INFO:2026-09-02 18:00:01,123:After init model, memory allocated (GB): 14.25, memory reserved (GB): 15.5", None,
     "After init model", gib(14.25), gib(15.5)),
    ("[Rank 3] After offload, memory allocated (GB): 0.0000, memory reserved (GB): 0.125", 3, "After offload", 0, gib(0.125)),
    ("(TaskRunner pid=1) Before update_actor, memory allocated (GB): 2.5, memory reserved (GB): 3.25, device memory used/total (GB): 49.5/79.25 "
     "[repeated 3x across cluster]", None, "Before update_actor", gib(2.5), gib(3.25)),
    ("[INFO:swift] [rank3] before train GPU memory: 3.25GB allocated, 4.50GB reserved", 3, "before train", gib(3.25), gib(4.5)),
    ("[rank0]: [INFO:swift] after load GPU memory: 512.0MiB allocated, 4.50GiB reserved", 0, "after load", 512 * MIB, gib(4.5)),
    ("[Rank 2][before forward] Allocated: 38011.25 MB, Max allocated: 39000.00 MB, Reserved: 38800.00 MB", 2, "before forward",
     38011 * MIB + MIB // 4, 38800 * MIB),
    ("[Before backward] reserved: 14.00 GB | allocated: 12.50 GB", None, "Before backward", gib(12.5), gib(14)),
    ("rank 3: memory allocated: 38.5 GB, max memory allocated: 42.00 GB, memory reserved: 40.0 GB", 3, "print", gib(38.5), gib(40)),
    ("after step 5 - allocated=512MiB reserved=1024MiB", None, "after step 5", 512 * MIB, 1024 * MIB),
    ("INFO:megatron.rl.rl_utils:torch_memory_saver: resumed  optimizer, after: alloc=31020MiB private=0MiB resv-alloc=2048MiB resv=33068MiB "
     "dev_mem=45000MiB", None, "resumed optimizer, after", 31020 * MIB, 33068 * MIB),
    ("> built 12 cuda graph(s) in 3.45 sec, with total memory usage: allocated 1.5 gb, reserved 0 bytes.", None, "cuda_graph_built", gib(1.5), 0),
    ("create cuda graphs | mem: alloc 1.5 gb, res 512.0 mb:  50%|##  | 6/12 [00:01<00:01]", None, "cuda_graph_capture", gib(1.5), 512 * MIB),
])
def test_a_phase_line(text: str, rank: int | None, phase: str, allocated: int, reserved: int) -> None:
    row = one(text)
    assert (row["rank"], row["phase"], row["allocated_bytes"], row["reserved_bytes"]) == (rank, phase, allocated, reserved)
    assert row["valid"] is (allocated + reserved > 0)


def test_slime_tells_device_and_host_and_which_rank_an_actor_is() -> None:
    text = ("(MegatronTrainRayActor pid=1003, ip=192.0.2.17) [Rank 3] Memory-Usage after train: {'gpu': '3', 'total_GB': 139.75, 'free_GB': 58.5, "
            "'used_GB': 81.25, 'allocated_GB': 58.25, 'reserved_GB': 76.5, 'host_total_GB': 2015.5, 'host_used_GB': 640.25, "
            "'host_free_GB': 210.5, 'host_available_GB': 1320.5}\n"
            "(MegatronTrainRayActor pid=1003, ip=192.0.2.17) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 58.25 GiB. GPU 0 has\n"
            "(MegatronTrainRayActor pid=1003, ip=192.0.2.18) torch.AcceleratorError: CUDA error: out of memory\n")
    rows = read(text)
    (row,) = rows["rank_memory"]
    assert (row["rank"], row["phase"], row["device_used_bytes"], row["device_total_bytes"]) == (3, "after train", gib(81.25), gib(139.75))
    assert row["other"]["free_bytes"] == str(gib(58.5))
    (host,) = rows["device_memory"]
    assert (host["source"], host["used_bytes"], host["total_bytes"], host["free_bytes"]) == ("host", gib(640.25), gib(2015.5), gib(210.5))
    assert host["other"] == {"available_bytes": str(gib(1320.5))}
    assert [one["rank"] for one in rows["oom_events"]] == [3, None]


def test_a_process_that_speaks_for_two_ranks_proves_none() -> None:
    memory = "(Actor pid=7) [Rank {0}] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 4.0 | max reserved: 4.0\n"
    error = "(Actor pid=7) torch.AcceleratorError: CUDA error: out of memory\n"
    assert [row["rank"] for row in read(memory.format(1) + error + memory.format(2) + error)["oom_events"]] == [1, None]


def test_deepspeed_prints_rank_0_s_memory_with_peaks_since_the_last_call() -> None:
    stamp = "[2026-04-01 10:00:00,12{0}] [INFO] [utils.py:78{0}:see_memory_usage] "
    rows = read(stamp.format(5) + "before step\n" + stamp.format(6) + "MA 10.25 GB         Max_MA 12.5 GB         CA 13.5 GB         Max_CA 14 GB \n"
                + stamp.format(7) + "CPU Virtual Memory:  used = 120.25 GB, percent = 6.4%\n")
    (row,) = rows["rank_memory"]
    assert (row["rank"], row["phase"], row["scope"], row["rounding_bytes"]) == (0, "before step", "interval", GIB // 2 + 1)
    figures = [row[f"{name}_bytes"] for name in ("allocated", "max_allocated", "reserved", "max_reserved")]
    assert figures == [gib(10.25), gib(12.5), gib(13.5), 14 * GIB]
    assert rows["device_memory"][0]["used_bytes"] == gib(120.25)


def test_verl_s_step_metrics_are_the_largest_over_ranks_and_no_rank_s() -> None:
    row = one("(TaskRunner pid=9) step:3 - actor/loss:0.5 - perf/max_memory_allocated_gb:60.25 - perf/max_memory_reserved_gb:70.5 - "
              "perf/cpu_memory_used_gb:120.5")
    assert (row["rank"], row["rank_label"], row["iteration"], row["phase"]) == (None, "largest of the ranks", 3, "step")
    assert (row["max_allocated_bytes"], row["max_reserved_bytes"], row["other"]) == (
        gib(60.25), gib(70.5), {"cpu_memory_used_bytes": str(gib(120.5))})


@pytest.mark.parametrize("text", [
    "GPU Memory: Allocated: 93.00%, Reserved: 97.50%", "memory allocated: 38.5 GB", "reserved: 10 GB, cached: 11 GB",
    "torch_memory_saver: paused kv_cache, after: alloc=1MiB", "Memory-Usage after train: {}",
    "Tried to allocate 1.00 GiB: 10.00 GiB allocated by PyTorch, 2.00 GiB reserved",
])
def test_what_is_no_measurement_of_a_rank_gives_none(text: str) -> None:
    assert "rank_memory" not in read(text + "\n")
