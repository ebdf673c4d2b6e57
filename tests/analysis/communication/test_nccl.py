"""The interval and the estimate against 60 generated jobs whose allocations are known; names, late communicators, other libraries, warnings."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from analysis.communication.nccl import communication
from analysis.communication.rows import Communication
from tests.analysis.communication.nccl_jobs import MIB, Job, make
from tests.analysis.made import shown
from tests.ingest.parsers.log.reading import read

SEEDS = range(60)


def section(*logs: tuple[str, str], ranks: Any = (), args: Any = None) -> Communication | None:
    rows: dict[str, list[dict[str, Any]]] = {}
    for path, text in logs:
        for table, found in read(text, path).items():
            rows.setdefault(table, []).extend(row | {"artifact": path} for row in found)
    return communication(shown(rows, "file"), "file", 0, ranks, args)


def judged(job: Job) -> dict[int | None, Any]:
    found = section(*((f"rank_{rank}.log" if rank % 2 else f"node{rank}.log", "\n".join(lines) + "\n") for rank, lines in job.logs.items()))
    assert found is not None
    return {one.rank: one for one in found.ranks}


@pytest.fixture(scope="module")
def answers() -> list[tuple[int, int, Any]]:
    """(seed, bytes held, answer) of every rank of every job."""
    found = []
    for seed in SEEDS:
        job = make(seed)
        by_rank = judged(job)
        assert sorted(by_rank) == list(range(job.world)), seed
        found += [(seed, held, by_rank[rank]) for rank, held in job.held.items()]
    return found


def test_the_jobs_differ(answers: list[tuple[int, int, Any]]) -> None:
    jobs = [make(seed) for seed in SEEDS]
    assert len({(job.local, job.nodes, job.simple, job.read, job.gdr, job.shared, job.quiet) for job in jobs}) > 35
    assert {job.quiet for job in jobs} == {job.read for job in jobs} == {job.gdr for job in jobs} == {True, False}
    assert len({held for _, held, _ in answers}) > 60


def test_the_interval_brackets_every_rank(answers: list[tuple[int, int, Any]]) -> None:
    missed = [(seed, one.rank, one.lower_bytes // MIB, held // MIB, one.upper_bytes // MIB) for seed, held, one in answers
              if not one.lower_bytes <= held <= one.upper_bytes]
    assert missed == []


def test_the_estimate_is_within_15_percent_at_the_median(answers: list[tuple[int, int, Any]]) -> None:
    errors = [abs(one.estimate_bytes - held) / held for _, held, one in answers if held]
    assert len(errors) > 300
    assert median(errors) <= 0.15
    print(f"median {median(errors):.3f}, p90 {sorted(errors)[len(errors) * 9 // 10]:.3f}, worst {max(errors):.3f} of {len(errors)}")


def test_the_log_of_one_rank_alone_still_brackets_it() -> None:
    errors = []
    for seed in range(0, 60, 3):
        job = make(seed)
        for rank in sorted({0, job.world // 2, job.world - 1}):
            found = section((f"rank_{rank}.log", "\n".join(job.logs[rank]) + "\n"))
            assert found is not None
            (one,) = found.ranks
            assert one.lower_bytes <= job.held[rank] <= one.upper_bytes, (seed, rank)
            errors += [abs(one.estimate_bytes - job.held[rank]) / job.held[rank]] if job.held[rank] and not job.quiet else []
    assert median(errors) <= 0.15


@pytest.mark.parametrize("seed", [3, 8])
def test_parts_and_protocols_sum_to_the_estimate(seed: int) -> None:
    job = make(seed)
    found = section(*((f"rank_{rank}.log", "\n".join(lines) + "\n") for rank, lines in job.logs.items()))
    assert found is not None
    for one in found.ranks:
        assert sum(one.parts.values()) == one.estimate_bytes
    for use in found.communicators:
        assert sum(use.parts.values()) == sum(use.protocols.values()) == use.estimate_bytes


WHO = "n0:{pid}:{pid}7 [{device}] NCCL INFO "
SIZES = "using world size: 8, data-parallel size: 2, context-parallel size: 1, tensor-model-parallel size: 2, pipeline-model-parallel size: 2\n"


def init(rank: int, own: int, ranks: int, name: str, identity: str) -> str:
    head = WHO.format(pid=100 + rank, device=rank)
    return (f"{head}comm {name} rank {own} nranks {ranks} cudaDev {rank} nvmlDev {rank} busId a000 commId {identity} - Init START\n"
            f"{head}8 coll channels, 8 collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer\n"
            f"{head}comm {name} rank {own} nranks {ranks} cudaDev {rank} nvmlDev {rank} busId a000 commId {identity} - Init COMPLETE\n")


def ring(rank: int, own: int, ranks: int, via: str = "P2P/CUMEM") -> str:
    head = WHO.format(pid=100 + rank, device=rank)
    return "".join(f"{head}Channel {channel:02d}/0 : {own}[{rank}] -> {(own + 1) % ranks}[0] via {via}\n" for channel in range(8))


def test_communicators_are_named_by_the_groups_they_fit() -> None:
    text = SIZES + "".join(init(rank, rank, 8, "0x55a0000000", "0x1") for rank in range(8)) + init(5, 1, 2, "0x55a0000001", "0x2") + init(
        5, 0, 2, "0x55a0000003", "0x3")
    found = section(("train.log", text))
    assert found is not None
    assert [one.rank for one in found.ranks] == list(range(8))
    assert {(one.name, one.ranks) for one in found.communicators} == {("world", 8), ("tp, pp, expert_tp, tp_ep", 2),
                                                                   ("dp, dp_cp, expert_dp", 2)}
    members = section(("train.log", text + init(4, 0, 2, "0x55a0000004", "0x2")))
    assert members is not None
    assert [one.name for one in members.communicators if one.ranks == 2] == ["dp, dp_cp, expert_dp", "tp, expert_tp, tp_ep"]


def test_a_communicator_set_up_after_the_first_step_is_late() -> None:
    step = "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 4.0 | max reserved: 4.0\n"
    found = section(("train.log", init(0, 0, 2, "0x55a0000000", "0x1") + step + init(0, 0, 2, "0x55a0000001", "0x2") + ring(0, 0, 2)))
    assert found is not None
    (late,) = found.late
    assert (late.ranks, late.estimate_bytes, late.exceeds, late.source.line) == (2, 8 * 12 * MIB, False, 7)


def test_the_connections_of_two_communicators_alike_are_both_counted() -> None:
    once = section(("a.log", init(0, 0, 2, "0x55a0000000", "0x1") + ring(0, 0, 2)))
    twice = section(("a.log", init(0, 0, 2, "0x55a0000000", "0x1") + init(0, 0, 2, "0x55a0000001", "0x2") + ring(0, 0, 2) + ring(0, 0, 2)))
    assert once is not None
    assert twice is not None
    assert (once.ranks[0].estimate_bytes, twice.ranks[0].estimate_bytes) == (96 * MIB, 192 * MIB)


def test_shared_memory_and_the_network_without_gpudirect_hold_nothing_on_the_device() -> None:
    found = section(("a.log", init(0, 0, 2, "0x55a0000000", "0x1") + ring(0, 0, 2, "SHM/direct/direct")))
    assert found is not None
    assert found.ranks[0].estimate_bytes == 0


def test_rccl_totals_are_the_estimate() -> None:
    head = WHO.format(pid=1, device=1)
    found = section(("rank_3.log", f"{head}ncclCudaCallocDebug: Memory used = 40633856 on device = 1\n{head}ncclCudaFree: Memory used = 34342400 on "
                     "device = 1\n"))
    assert found is not None
    (one,) = found.ranks
    assert (one.rank, one.lower_bytes, one.estimate_bytes, one.upper_bytes) == (3, 34342400, 34342400, 40633856)


def test_host_lines_never_count_as_device_memory() -> None:
    head = WHO.format(pid=1, device=1)
    found = section(("rank_3.log", f"{head}init.cc:1 Cuda Host Alloc Size 4096 pointer 0x1\n{head}net.cc:7 Cuda Alloc Size 4194304 pointer 0x2\n"
                     f"{head}Mem Realloc old size 0, new size 256 pointer 0x3\n"))
    assert found is not None
    assert (found.ranks[0].allocated_bytes, found.ranks[0].host_bytes, found.ranks[0].estimate_bytes) == (4194304, 4352, 0)


def test_known_bad_settings_are_told_once() -> None:
    head = WHO.format(pid=1, device=1)
    found = section(("a.log", f"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512\n"
                     f"{head}Invalid value 8M for NCCL_BUFFSIZE, using default -2.\n{head}NCCL_CUMEM_ENABLE set by environment to 0.\n"
                     f"{head}NCCL_MAX_NCHANNELS set by environment to 8.\n"
                     f"{head}NCCL_MAX_NCHANNELS set by environment to 16.\n"))
    assert found is not None
    assert [one.id for one in found.warnings] == ["expandable_with_max_split", "nccl_value_ignored", "nccl_values_differ", "nccl_connects_at_init"]
    assert "NCCL_BUFFSIZE" not in found.settings


def test_deepep_and_hccl_go_by_their_rules() -> None:
    args = {"moe_token_dispatcher_type": "flex", "hidden_size": "7168", "expert_model_parallel_size": "8"}
    found = section(("a.log", SIZES + init(0, 0, 8, "0x55a0000000", "0x1")), args=args)
    assert found is not None
    assert found.ranks[0].deepep_bytes == 335_708_160 + 32 * MIB
    other = section(("a.log", SIZES + "export HCCL_BUFFSIZE=100\n"))
    assert other is not None
    assert other.settings == {"HCCL_BUFFSIZE": "100"}


def test_nothing_is_said_where_nothing_was_printed() -> None:
    assert section(("a.log", SIZES)) is None
