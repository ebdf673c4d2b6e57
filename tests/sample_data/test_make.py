"""The committed samples are what the script writes, and their numbers agree with each other and with the worked example."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from sample_data import dense, ledger, make, moe, oom
from sample_data.ledger import GIB, MIB

SAMPLES = Path(make.__file__).parent


def test_the_committed_files_are_what_the_script_writes(tmp_path):
    paths = make.write(tmp_path)
    written = {path.relative_to(tmp_path): content(path) for path in paths}
    committed = {path.relative_to(SAMPLES): content(path) for run in make.RUNS for path in (SAMPLES / run).rglob("*")
                 if path.is_file()}
    assert committed.keys() == written.keys()
    assert [path for path in written if written[path] != committed[path]] == []
    assert sum(path.stat().st_size for path in paths) < 3_000_000


def content(path: Path) -> bytes:
    """Of a compressed file what it holds: releases of zlib compress differently."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_the_dense_run_is_the_worked_example():
    counts = [ledger.parameters(dense.MODEL, stage) for stage in (0, 1)]
    copy, replicated_norms = 128256 * 4096, 32 * 8192 + 4096
    assert 2 * sum(counts) - copy - replicated_norms == 7_504_924_672
    assert ledger.dense_activations(dense.MODEL, 0) == 17_213_489_152
    assert ledger.dense_activations(dense.MODEL, 1) == 8_589_934_592
    state = [ledger.resident(dense.MODEL, stage) - ledger.WORKSPACE_BYTES for stage in (0, 1)]
    assert [round(size / 1e9, 2) for size in state] == [12.42, 12.42]
    assert round((state[0] + ledger.dense_activations(dense.MODEL, 0)) / 1e9, 1) == 29.6
    assert ledger.logits_peak(dense.MODEL, 1) == 6 * 525_336_576 + 67_108_864


def test_the_printed_theory_is_that_of_the_dense_run():
    text = (SAMPLES / "dense_7b5_pp2" / "train.log").read_text()
    weights, activation, total = map(float, re.findall(r"weight and optimizer=(\S+) MB, activation=(\S+) MB, total=(\S+) MB", text)[0])
    assert activation == pytest.approx(ledger.dense_activations(dense.MODEL, 0) / MIB, abs=0.01)
    assert weights == pytest.approx((ledger.resident(dense.MODEL, 0) - ledger.WORKSPACE_BYTES) / MIB, rel=2e-4)
    assert total == pytest.approx(weights + activation, abs=0.02)


@pytest.mark.parametrize("run", ["dense_7b5_pp2", "oom_run"])
def test_every_memory_line_is_possible(run):
    text = (SAMPLES / run / "train.log").read_text()
    lines = re.findall(r"\[Rank (\d+)\] \(after (\d+) iterations\) memory \(MB\) \| allocated: (\S+) \| max allocated: (\S+) \| reserved: (\S+) \| "
                       r"max reserved: (\S+)", text)
    assert {int(line[0]) for line in lines} == set(ledger.memory_ranks(dense.MODEL if run.startswith("dense") else oom.MODEL))
    for _, _, allocated, most, reserved, most_reserved in lines:
        assert float(allocated) <= float(most) <= float(reserved) <= float(most_reserved) < 81559


def test_routed_tokens_are_conserved_in_every_step():
    assert len(moe.loads()) == moe.STEPS
    for loads in moe.loads():
        assert sum(loads) == pytest.approx(moe.MODEL.expert_parallel)


def test_each_reading_of_the_moe_run_is_possible_and_agrees_with_the_log():
    for rank in moe.SEEN:
        readings = [json.loads(line) for line in (SAMPLES / "moe_16ranks" / f"memory_stats_rank{rank}.jsonl").read_text().splitlines()]
        assert [(one["rank"], one["iteration"]) for one in readings] == [(rank, step) for step in range(1, 51)]
        for one in readings:
            stats = one["stats"]
            assert all(value >= -1 for value in stats.values())
            assert stats["requested_bytes.all.peak"] <= stats["allocated_bytes.all.peak"] <= stats["active_bytes.all.peak"]
            assert stats["active_bytes.all.peak"] <= stats["reserved_bytes.all.current"]
            assert one["device_free_bytes"] >= 0
            assert one["device_total_bytes"] - one["device_free_bytes"] > stats["reserved_bytes.all.current"]
            for name in ("allocated_bytes", "requested_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes"):
                assert stats[f"{name}.all.allocated"] - stats[f"{name}.all.freed"] == stats[f"{name}.all.current"]
        if rank == 0:
            log = (SAMPLES / "moe_16ranks" / "rank_0.log").read_text()
            allocated, most = re.findall(r"\| allocated: (\S+) \| max allocated: (\S+) \|", log)[0]
            assert (float(allocated) * MIB, float(most) * MIB) == (
                readings[0]["stats"]["allocated_bytes.all.current"], readings[0]["stats"]["allocated_bytes.all.peak"])


def test_the_death_of_the_oom_run_adds_up():
    text = (SAMPLES / "oom_run" / "train.log").read_text()
    numbers = re.search(r"Tried to allocate (\S+) MiB. GPU 0 has a total capacity of (\S+) GiB of which (\S+) MiB is free. Including non-PyTorch "
                        r"memory, this process has (\S+) GiB memory in use. Of the allocated memory (\S+) GiB is allocated by PyTorch, and (\S+) GiB "
                        "is reserved", text)
    assert numbers
    request, capacity, free, process, allocated, unallocated = map(float, numbers.groups())
    assert request > free
    assert process + free / 1024 == pytest.approx(capacity, abs=0.01)
    assert allocated + unallocated + oom.OUTSIDE_BYTES / GIB == pytest.approx(process, abs=0.02)
    assert unallocated > 10 * request / 1024
    assert request * MIB == oom.REQUEST_BYTES
    assert f"iteration {oom.LAST_ITERATION:8d}/" in text
    assert f"iteration {oom.LAST_ITERATION + 1:8d}/" not in text
    held = [oom.reserved(oom.VICTIM, step) for step in range(1, oom.LAST_ITERATION + 2)]
    assert held == sorted(held)
    assert held[-2] < held[-1] <= oom.CAPACITY_BYTES - oom.OUTSIDE_BYTES - oom.FREE_BYTES


def test_the_counts_of_the_moe_run_add_up_to_what_its_peaks_were_counted_from():
    for rank in moe.SEEN:
        path = SAMPLES / "moe_16ranks" / "tokens_per_expert" / f"rank{rank}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(lines) == moe.STEPS * moe.MODEL.layers // 2
        assert all(sum(one) == moe.routed(rank, line["iter"]) for line in lines for one in line["tpe"])
    for step in range(1, moe.STEPS + 1):
        whole = sum(moe.routed(rank, step) for rank in range(8))
        assert whole == pytest.approx(8 * moe.MODEL.top_k * moe.MODEL.tokens, abs=8)


@pytest.mark.parametrize("rank", moe.SEEN)
def test_nccl_lines_of_the_moe_run_agree_with_its_device_figures(rank):
    name = f"rank_{rank}.log" if rank in (0, 15) else f"nccl_rank{rank}.log"
    text = (SAMPLES / "moe_16ranks" / name).read_text()
    early, late = text.split("commId 0x47c", 1)
    sizes = [sum(-(-int(size) // (2 * MIB)) * 2 * MIB for size in re.findall(r"Cuda Alloc Size (\d+)", part)) for part in (early, late)]
    path = SAMPLES / "moe_16ranks" / f"memory_stats_rank{rank}.jsonl"
    readings = [json.loads(line) for line in path.read_text().splitlines()]
    outside = [one["device_total_bytes"] - one["device_free_bytes"] - one["stats"]["reserved_bytes.all.current"] for one in readings]
    assert outside[1] - outside[0] == sizes[1]
    assert set(outside[1:]) == {moe.OUTSIDE_BYTES}
    assert 0.5 * GIB < outside[1] - sum(sizes) < 1.3 * GIB
