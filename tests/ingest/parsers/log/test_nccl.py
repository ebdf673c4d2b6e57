"""NCCL lines of every release, environment and versions: each shape's values, traps, and that a line depends on itself alone."""

from __future__ import annotations

import random

import pytest

from tests.ingest.parsers.log.reading import canonical, read

WHO = "gx-n05:880:887 [1] NCCL INFO "


def one(table: str, body: str, head: str = WHO) -> dict[str, object]:
    (row,) = read(head + body + "\n")[table]
    return row


@pytest.mark.parametrize(("body", "columns", "other"), [
    ("comm 0x7f10 rank 1 nranks 4 cudaDev 1 busId a9000 - Init COMPLETE", {"communicator": "0x7f10", "ranks": 4, "event": "init"}, {}),
    ("comm 0x7f10 rank 1 nranks 4 cudaDev 1 nvmlDev 5 busId a9000 commId 0xaa11 - Init COMPLETE",
     {"communicator_id": "0xaa11", "bus_id": "a9000"}, {"nvml_device": "5"}),
    ("ncclCommInitRankConfig comm 0x7f10 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId a9000 commId 0xaa11 - Init START", {"event": "init_started"},
     {"function": "ncclCommInitRankConfig"}),
    ("[Rank 1] ncclCommInitRank comm 0x7f10 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId a9000 commId 0xaa11 - Init START",
     {"event": "init_started", "communicator_rank": 1}, {}),
    ("ncclCommSplit comm 0x7f10 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId a9000 parent 0x7f00 splitCount 2 color 10 key 1- Init START",
     {"parent": "0x7f00", "event": "init_started"}, {"split_count": "2", "color": "10", "key": "1"}),
    ("ncclCommSplit comm 0x7f10 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId a9000 parent 0x7f00 childCount 3 color 10 key 1 - Init COMPLETE",
     {"parent": "0x7f00", "event": "init"}, {"child_count": "3"}),
    ("ncclCommSplit comm 0x7f10 rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId a9000 parent 0x7f00 color 10 key 1 commId 0x12 - Init COMPLETE",
     {"parent": "0x7f00", "communicator_id": "0x12"}, {"color": "10"}),
    ("comm 0x7f10 rank 1 nRanks 16 nNodes 2 localRanks 8 localRank 1 MNNVL 0", {"event": "topology", "ranks": 16, "nodes": 2},
     {"local_ranks": "8", "mnnvl": "0"}),
    ("4 coll channels, 8 p2p channels, 2 p2p channels per peer", {"collective_channels": 4, "nvls_channels": None, "p2p_channels_per_peer": 2}, {}),
    ("16 coll channels, 24 nvls channels, 32 p2p channels, 4 p2p channels per peer", {"nvls_channels": 24, "collnet_channels": None}, {}),
    ("24 coll channels, 1 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
     {"collective_channels": 24, "collnet_channels": 1, "nvls_channels": 16, "p2p_channels": 32, "p2p_channels_per_peer": 32}, {}),
    ("Channel 01/24 :    0   3   2   1", {"event": "ring", "ranks": 4}, {"channel": "01", "order": "0 3 2 1"}),
    ("Ring 02 : 7 -> 0 -> 1", {"event": "ring", "communicator_rank": 0}, {"previous": "7", "next": "1"}),
    ("Trees [0] 1/-1/-1->0->-1 [1] 2/-1/-1->0->4", {"event": "trees", "communicator_rank": 0}, {"channels": "0 1"}),
    ("Trees [0] 9/11/-1->10->12|12->10->9/11/-1 [1] -1/-1/-1->10->11|11->10->-1/-1/-1", {"communicator_rank": 10}, {"channels": "0 1"}),
    ("Tree 0 : 4 -> 0 -> 1/2/-1", {"event": "trees", "communicator_rank": 0}, {"up": "4", "down": "1/2/-1"}),
    ("NVLS multicast support is available on dev 3 (NVLS_NCHANNELS 16)", {"event": "nvls", "device": 3, "nvls_channels": 16}, {"available": "true"}),
    ("NVLS multicast support is not available on dev 3", {"event": "nvls"}, {"available": "false"}),
    ("P2P Chunksize set to 524288", {"event": "p2p_chunksize"}, {"bytes": "524288"}),
    ("Connected all rings, use ring PXN 0 GDR 1", {"event": "connected"}, {"what": "all rings, use ring PXN 0 GDR 1"}),
    ("CC Off, workFifoBytes 1048576", {"event": "work_fifo"}, {"bytes": "1048576"}),
    ("Launch mode Parallel", {"event": "launch_mode"}, {"mode": "Parallel"}),
    ("Init timings - ncclCommSplit: rank 1 nranks 4 total 0.31 (kernels 0.00, alloc 0.01, rest 0.01)", {"event": "init_timings"},
     {"total_s": "0.31", "alloc_s": "0.01"}),
])
def test_facts_about_communicators(body: str, columns: dict[str, object], other: dict[str, str]) -> None:
    row = one("nccl_communicators", body)
    assert (row["host"], row["pid"], row["thread"]) == ("gx-n05", 880, 887)
    assert {name: row.get(name) for name in columns} == columns
    assert other.items() <= (row.get("other") or {}).items()  # type: ignore[union-attr, attr-defined]


@pytest.mark.parametrize(("body", "channel", "index", "ends", "direction", "transport"), [
    ("Channel 22/0 : 1[1] -> 0[0] via P2P/direct pointer/read", 22, 0, (1, 0), None, "P2P/direct pointer/read"),
    ("Channel 00 : 11[88000] -> 12[88000] [send] via NET/IB/2/GDRDMA", 0, None, (11, 12), "send", "NET/IB/2/GDRDMA"),
    ("Channel 05/1 : 3[1] -> 0[0] [receive] via NET/IB/0(2)/GDRDMA/Shared", 5, 1, (3, 0), "receive", "NET/IB/0(2)/GDRDMA/Shared"),
    ("Channel 00 : 0[1a000] -> 1[1b000] via direct shared memory", 0, None, (0, 1), None, "direct shared memory"),
    ("Channel 03 : 2[2] -> 3[3] via SHM/direct/direct", 3, None, (2, 3), None, "SHM/direct/direct"),
    ("CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA", 0, 0, (3, None), "send", "COLLNET/SHARP/0/GDRDMA"),
])
def test_connections(body: str, channel: int, index: int | None, ends: tuple[int, int | None], direction: str | None, transport: str) -> None:
    row = one("nccl_connections", body)
    assert (row["channel"], row.get("connection_index"), row.get("direction"), row["transport"]) == (channel, index, direction, transport)
    assert (row.get("source_rank"), row.get("destination_rank")) == ends


def test_rccl_names_the_communicator_of_a_connection() -> None:
    row = one("nccl_connections", "Channel 00/0 : 3[c9000] -> 2[ce000] via P2P/IPC comm 0x7f9d30 nRanks 08")
    assert (row["communicator"], row["transport"]) == ("0x7f9d30", "P2P/IPC")


@pytest.mark.parametrize(("body", "space", "size", "event", "site"), [
    ("init.cc:1120 Cuda Host Alloc Size 4 pointer 0x7f20", "host_pinned", 4, "alloc", "init.cc:1120"),
    ("transport/net.cc:710 Cuda Alloc Size 4194304 pointer 0x7f1f", "device", 4194304, "alloc", "transport/net.cc:710"),
    ("/app/rccl/build/release/hipify/src/transport/p2p.cc:250 Cuda Alloc Size 6291456 pointer 0x75aa flags 3", "device", 6291456, "alloc",
     "transport/p2p.cc:250"),
    ("transport/p2p.cc:277 (ncclP2pAllocateShareableBuffer) Cuda Alloc Size 10485760 pointer 0x7f memType 1", "device", 10485760, "alloc",
     "transport/p2p.cc:277"),
    ("channel.cc:40 (initChannel) Cuda CallocAsync Size 1152 pointer 0x7f memType 0", "device", 1152, "alloc", "channel.cc:40"),
    ("proxy.cc:12 (expectedProxyResponseEnqueue) Host Calloc Size 64 pointer 0x55", "host", 64, "alloc", "proxy.cc:12"),
    ("CUMEM Host Alloc Size 2097152 pointer 0x7f1f handle 7f1f numa 0 dev 0 granularity 2097152", "host_cumem", 2097152, "alloc", None),
    ("CuMem Alloc Size 2097152 pointer 0x7f handle 11", "device", 2097152, "alloc", None),
    ("transport/net_ib.cc:700 Ib Alloc Size 4096 pointer 0x55", "host", 4096, "alloc", "transport/net_ib.cc:700"),
    ("Mem Realloc old size 0, new size 256 pointer 0x55f0", "host", 256, "realloc", None),
    ("proxy.cc:9 (grow) Mem Realloc old size 0, new size 256 pointer 0x55f0", "host", 256, "realloc", "proxy.cc:9"),
    ("Allocated 9637892 bytes of shared memory in /dev/shm/nccl-Zr5", "host", 9637892, "alloc", None),
    ("misc/utils.cc:320 memory stack hunk malloc(65504)", "host", 65504, "alloc", "misc/utils.cc:320"),
    ("ncclCudaCallocDebug: Memory used = 40633856 on device = 1", "running_total", 40633856, "alloc", None),
    ("ncclCudaFree: Memory used = 34342400 on device = 1", "running_total", 34342400, "free", None),
    ("NVLS comm 0x55 headRank 0 nHeads 8 nvlsRanks 8 buffSize 1048576 nvlsPerRankSize 33554432 nvlsTotalSize 268435456", "nvls", 2**28, "planned",
     None),
    ("NVLS rank 0 (dev 1) alloc done, ucptr 0x7f ucgran 2097152 mcptr 0x7f mcgran 2097152 ucsize 4194304 mcsize 8388608 (inputsize 3)", "nvls",
     4194304, "alloc", None),
    ("NVLS rank 0 (dev 1) alloc done, ucptr 0x7f ucgran 2097152 mcptr 0x7f mcgran 2097152 size 4194304 (4000000)", "nvls", 4194304, "alloc", None),
    ("NVLS Created Multicast group 7f10 nranks 8 size 268435456 on rank 0", "nvls", 2**28, "multicast_group", None),
    ("MemManager: rank 3 suspended 4 local + 2 peer entries (scratch=10, offload=20, peerImport=30, cpuBackup=40)", "device", 30, "suspended", None),
])
def test_allocations_keep_host_and_device_apart(body: str, space: str, size: int, event: str, site: str | None) -> None:
    row = one("nccl_allocations", body)
    assert (row["space"], row["size_bytes"], row["event"], row.get("site"), row["device"]) == (space, size, event, site, 1)


def test_the_full_stop_belongs_to_numbers_only() -> None:
    rows = read(f"{WHO}NCCL_BUFFSIZE set by environment to 8388608.\n{WHO}NCCL_SOCKET_IFNAME set by environment to eth0.100\n"
                f"{WHO}Invalid value 8M for NCCL_BUFFSIZE, using default -2.\n{WHO}NCCL_BUFFSIZE set by environment to 4194304."
                f"{WHO}Launch mode Group\n")
    told = [(row["name"], row["value"], row["origin"], row["host"]) for row in rows["environment"]]
    assert told == [
        ("NCCL_BUFFSIZE", "8388608", "nccl_set_by_environment", "gx-n05"), ("NCCL_SOCKET_IFNAME", "eth0.100", "nccl_set_by_environment", "gx-n05"),
        ("NCCL_BUFFSIZE", "8M", "nccl_invalid", "gx-n05"), ("NCCL_BUFFSIZE", "4194304", "nccl_set_by_environment", "gx-n05")]


def test_echoed_variables_keep_how_they_were_echoed_and_no_secret() -> None:
    rows = read('+ export NCCL_DEBUG=info\n+ NCCL_DEBUG=info\ndeclare -x NCCL_NVLS_ENABLE="0"\nNCCL_CUMEM_ENABLE=0\n'
                "export CUDA_A_TOKEN=abc NCCL_ALGO=Ring\n"
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512\nsee NCCL_DEBUG=INFO for details\nWANDB_API_KEY=NCCL_\n"
                "NCCL_NET_GDR_LEVEL=PHB torchrun train.py\n")
    assert [(row["name"], row["value"], row["origin"]) for row in rows["environment"]] == [
        ("NCCL_DEBUG", "info", "export"), ("NCCL_DEBUG", "info", "assignment"), ("NCCL_NVLS_ENABLE", "0", "declare -x"),
        ("NCCL_CUMEM_ENABLE", "0", "env"),
        ("CUDA_A_TOKEN", "(not kept)", "export"), ("NCCL_ALGO", "Ring", "export"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512", "env"), ("NCCL_NET_GDR_LEVEL", "PHB", "env")]


def test_versions_and_networks() -> None:
    rows = read(f"{WHO}NCCL version 2.29.3+cuda13.1\n{WHO}NCCL git version stable dcf2a2fbe\n{WHO}cudaDriverVersion 13010\n{WHO}Using network IB\n"
                f"{WHO}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\nRCCL version : 2.20.5-HEAD:d380693\n"
                "NCCL version 2.14.3+cuda11.7\n")
    assert [(row["name"], row["value"]) for row in rows["environment"]] == [
        ("NCCL version", "2.29.3"), ("CUDA of NCCL", "13.1"), ("NCCL git version", "stable dcf2a2fbe"), ("CUDA driver version", "13010"),
        ("network", "IB"), ("network devices", "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"), ("RCCL version", "2.20.5"),
        ("NCCL version", "2.14.3"), ("CUDA of NCCL", "11.7")]


def test_lines_glued_by_two_ranks_give_both_records_and_a_cut_one_none() -> None:
    rows = read("a:1:1 [0] NCCL INFO 2 coll channels, 2 p2p channels, 1 p2p channels per peer"
                " b:2:2 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/"
                " c:3:3 [2] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/IPC\n")
    assert [row["host"] for row in rows["nccl_communicators"]] == ["a"]
    assert [(row["host"], row["channel"]) for row in rows["nccl_connections"]] == [("c", 1)]
    assert [row["reason"] for row in rows["rejects"]] == ["a connection line that another line cut"]


def test_the_global_rank_comes_from_the_prefix_alone() -> None:
    (row,) = read(f"[1,9]<stdout>:{WHO}2 coll channels, 2 p2p channels, 1 p2p channels per peer\n")["nccl_communicators"]
    assert row["rank"] == 9
    assert one("nccl_communicators", "comm 0x7f10 rank 1 nranks 4 cudaDev 1 busId a9000 - Init COMPLETE")["rank"] is None


LINES = [WHO + body for body in (
    "Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM/read", "Channel 02/0 : 7[7] -> 8[0] [send] via NET/IB/1/GDRDMA",
    "24 coll channels, 0 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer", "Trees [0] 1/-1/-1->0->-1 [1] 2/-1/-1->0->4",
    "comm 0x7f10 rank 1 nranks 4 cudaDev 1 nvmlDev 5 busId a9000 commId 0xaa11 - Init COMPLETE", "NCCL_BUFFSIZE set by environment to 8388608.",
    "transport/net.cc:710 Cuda Alloc Size 4194304 pointer 0x7f1f", "ncclCudaCallocDebug: Memory used = 40633856 on device = 1",
    "NVLS comm 0x55 headRank 0 nHeads 8 nvlsRanks 8 buffSize 1048576 nvlsPerRankSize 33554432 nvlsTotalSize 268435456",
    "comm 0x7f10 rank 1 nRanks 16 nNodes 2 localRanks 8 localRank 1 MNNVL 0", "Channel 01/24 :    0   3   2   1")] + [
    "export NCCL_DEBUG=info", "NCCL_CUMEM_ENABLE=0"]


def _mutations(count: int) -> None:
    """Mutated lines raise nothing, and every intact line keeps its rows; fifty lines are mutated in one reading of fifty copies."""
    chance = random.Random(20261129)
    whole = canonical(read("\n".join(LINES * 50) + "\n"))
    for _ in range(-(-count // 50)):
        document = [one.encode() for one in LINES * 50]
        victims = {copy * len(LINES) + chance.randrange(len(LINES)) for copy in range(50)}
        for victim in victims:
            document[victim] = _mutated(document[victim], chance)
        marks = [f'"line": {victim + 1},' for victim in victims]
        found, expected = ({table: left for table, rows in rows_of.items() if table != "rejects" and (left := _unmarked(rows, marks))}
                           for rows_of in (canonical(read(b"\n".join(document) + b"\n")), whole))
        assert found == expected


def _mutated(line: bytes, chance: random.Random) -> bytes:
    data = bytearray(line)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        data[at:at + chance.randint(0, 4)] = bytes(chance.choice(b"\x00[]|:/->0189. \xffNCLX") for _ in range(chance.randint(0, 4)))
    return bytes(data)


def _unmarked(rows: list[str], marks: list[str]) -> list[str]:
    return [row for row in rows if not any(mark in row for mark in marks)]


def test_mutated_lines_leave_the_others_alone() -> None:
    _mutations(500)


@pytest.mark.long
def test_many_mutated_lines() -> None:
    _mutations(20_000)
