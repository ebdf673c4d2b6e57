"""Jobs whose NCCL allocations are known: each rank's log, and the bytes it holds by NCCL's rules, connection by connection.

Written from NCCL's transports, apart from the estimator: it walks real rings, binary trees over nodes and pairs, allocates each end of each
connection where it would lie, and prints what each rank would print. Topology, channels, sizes, lazy or eager connecting, split children,
send/recv and NVLS vary by the seed.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

MIB = 2**20
LL, LL128 = 524_288, 4_915_200


@dataclass
class Group:
    """One communicator of the job: its global ranks, and what connects in it."""

    ranks: list[int]
    channels: int
    parent: int | None
    collectives: bool
    send_recv: str
    nvls: bool
    started: bool = True


@dataclass
class Job:
    """A generated job: log text by rank, and the device bytes of each rank."""

    local: int
    nodes: int
    simple: int
    read: bool
    gdr: bool
    shared: bool
    quiet: bool
    env: dict[str, str]
    logs: dict[int, list[str]] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)

    @property
    def world(self) -> int:
        return self.local * self.nodes

    def node(self, rank: int) -> int:
        return rank // self.local

    def take(self, rank: int, size: int) -> None:
        """One allocation on a device, in whole granules of 2 MiB."""
        if size > 0:
            self.held[rank] += (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB

    def say(self, rank: int, text: str, thread: int = 7) -> None:
        self.logs[rank].append(f"node{self.node(rank)}:{1000 + rank % self.local}:{1000 + thread} [{rank % self.local}] NCCL INFO {text}")


def make(seed: int) -> Job:
    """The job of a seed."""
    chance = random.Random(seed)
    local, nodes = chance.choice([1, 2, 4, 8]), chance.choice([1, 1, 2, 4])
    if local * nodes < 2:
        local = 8
    env: dict[str, str] = {}
    simple = chance.choice([4, 4, 4, 2, 8, 16]) * MIB
    if simple != 4 * MIB:
        env["NCCL_BUFFSIZE"] = str(simple)
    job = Job(local, nodes, simple, chance.random() < 0.4, chance.random() < 0.8, chance.random() < 0.8, chance.random() < 0.15, env)
    if not job.shared:
        env["NCCL_NET_SHARED_BUFFERS"] = "0"
    eager = job.quiet or chance.random() < 0.25
    if eager:
        env["NCCL_CUMEM_ENABLE"] = "0"
    job.logs = {rank: [] for rank in range(job.world)}
    job.held = dict.fromkeys(range(job.world), 0)
    for rank in range(job.world):
        for name, value in env.items():
            job.say(rank, f"{name} set by environment to {value}.")
    pooled: set[tuple[int, int, str]] = set()
    for index, group in enumerate(_groups(job, chance, eager)):
        _set_up(job, index, group, pooled, eager)
    return job


def _groups(job: Job, chance: random.Random, eager: bool) -> list[Group]:
    channels = chance.choice([2, 4, 8, 16, 24])
    kinds = [Group(list(range(job.world)), channels, None, True, "", job.local > 1 and chance.random() < 0.4 and not job.quiet)]
    sizes = [size for size in (2, 4, 8, 16) if size < job.world and job.world % size == 0]
    for size in chance.sample(sizes, min(len(sizes), chance.choice([1, 2, 3]))):
        parts = [list(range(start, start + size)) for start in range(0, job.world, size)]
        parent = 0 if chance.random() < 0.5 else None
        used = eager or chance.random() < 0.8
        how = "" if job.quiet else chance.choice(["", "", "ring", "all"])
        own = chance.choice([channels, max(2, channels // 2)])
        sharp = used and min(job.local, size) > 1 and chance.random() < 0.3 and not job.quiet
        kinds += [Group(part, own, parent, used, how, sharp) for part in parts]
    return kinds


def _set_up(job: Job, index: int, group: Group, pooled: set[tuple[int, int, str]], eager: bool) -> None:
    names = {rank: f"0x55{index:06x}{rank:04x}" for rank in group.ranks}
    nodes = sorted({job.node(rank) for rank in group.ranks})
    per_peer = min(group.channels, 4)
    for own, rank in enumerate(group.ranks):
        head = "ncclCommSplit " if group.parent is not None else "ncclCommInitRankConfig "
        local = [one for one in group.ranks if job.node(one) == job.node(rank)]
        about = f"comm {names[rank]} rank {own} nranks {len(group.ranks)} cudaDev {rank % job.local} nvmlDev {rank % job.local} busId {rank:x}000 "
        about += (f"parent 0x55{group.parent:06x}{rank:04x} childCount {index} color {group.ranks[0]} key {own}" if group.parent is not None
                  else f"commId 0x9{index:04x}")
        job.say(rank, head + about + " - Init START")
        job.say(rank, f"comm {names[rank]} rank {own} nRanks {len(group.ranks)} nNodes {len(nodes)} localRanks {len(local)} localRank "
                f"{local.index(rank)} MNNVL 0")
        job.say(rank, f"{group.channels} coll channels, {group.channels} collnet channels, {16 if group.nvls else 0} nvls channels, "
                f"{group.channels} p2p channels, {per_peer} p2p channels per peer")
        if eager and group.collectives:
            _connect_collectives(job, group, rank)
        if eager and group.nvls:
            _nvls(job, group, rank, names[rank])
        job.say(rank, head + about + " - Init COMPLETE")
        if not eager and group.collectives:
            _connect_collectives(job, group, rank, thread=9)
        if not eager and group.nvls:
            _nvls(job, group, rank, names[rank])
        _send_recv(job, group, index, rank, per_peer, pooled)


def _nvls(job: Job, group: Group, rank: int, name: str) -> None:
    local = [one for one in group.ranks if job.node(one) == job.node(rank)]
    size = 16 * 2 * 8 * 131072 * len(local)
    job.take(rank, size)
    job.say(rank, f"NVLS comm {name} headRank {local.index(rank)} nHeads {len(local)} nvlsRanks {len(local)} buffSize 1048576 nvlsPerRankSize "
            f"{size // len(local)} nvlsTotalSize {size}")


def _edges(group: Group) -> list[tuple[int, int]]:
    """Directed pairs of positions that one channel connects: the ring, and for more than two ranks a binary tree both ways."""
    count = len(group.ranks)
    pairs = {(one, (one + 1) % count) for one in range(count)}
    return sorted(pairs)


def _tree_edges(job: Job, group: Group) -> list[tuple[int, int]]:
    """Between nodes: a chain within each node, and a binary tree over the nodes' first ranks; both ways."""
    firsts: dict[int, list[int]] = {}
    for at, rank in enumerate(group.ranks):
        firsts.setdefault(job.node(rank), []).append(at)
    pairs = set()
    heads = [members[0] for members in firsts.values()]
    for members in firsts.values():
        for one, other in itertools.pairwise(members):
            pairs |= {(one, other), (other, one)}
    for at in range(1, len(heads)):
        up = heads[(at - 1) // 2]
        pairs |= {(heads[at], up), (up, heads[at])}
    return sorted(pairs)


def _connect_collectives(job: Job, group: Group, rank: int, thread: int = 7) -> None:
    nodes = {job.node(one) for one in group.ranks}
    pairs = set(_edges(group)) | (set(_tree_edges(job, group)) if len(nodes) > 1 else set())
    own = group.ranks.index(rank)
    for channel in range(group.channels):
        for source, destination in sorted(pairs):
            if own in (source, destination):
                _connection(job, group, rank, source, destination, channel, 0, thread)


def _connection(job: Job, group: Group, rank: int, source: int, destination: int, channel: int, index: int, thread: int = 9) -> None:
    """One end of a connection: what it allocates on this rank's device, and what this rank prints."""
    sender, receiver = group.ranks[source], group.ranks[destination]
    sending = rank == sender
    text = f"Channel {channel:02d}/{index} : {source}[{sender % job.local}] -> {destination}[{receiver % job.local}]"
    if job.node(sender) == job.node(receiver):
        if sending:
            job.take(rank, job.simple + 4096 if job.read else 4096)
            if not job.quiet:
                job.say(rank, f"{text} via P2P/CUMEM{'/read' if job.read else ''}", thread)
        else:
            job.take(rank, LL + LL128 + (0 if job.read else job.simple))
        return
    if job.gdr and not (index == 1 and job.shared):
        job.take(rank, LL128 + job.simple + (0 if sending else LL))
    if not job.quiet:
        job.say(rank, f"{text} [{'send' if sending else 'receive'}] via NET/IB/{rank % 4}{'/GDRDMA' if job.gdr else ''}"
                f"{'/Shared' if index == 1 and job.shared else ''}", thread)


def _send_recv(job: Job, group: Group, index: int, rank: int, per_peer: int, pooled: set[tuple[int, int, str]]) -> None:
    own, count = group.ranks.index(rank), len(group.ranks)
    peers = {(own + 1) % count, (own - 1) % count} if group.send_recv == "ring" else set(range(count)) if group.send_recv == "all" else set()
    root = index if group.parent is None else group.parent
    for peer in sorted(peers - {own}):
        for channel in range(per_peer):
            for source, destination in ((own, peer), (peer, own)):
                _connection(job, group, rank, source, destination, channel, 1)
        if job.node(group.ranks[peer]) != job.node(rank) and job.gdr and job.shared:
            for way in ("send", "receive"):
                if (rank, root, way) not in pooled:
                    pooled.add((rank, root, way))
                    pool_channels = _channels_of(job, rank, root)
                    job.take(rank, pool_channels * 16 * min(131072, job.simple // 8))


def _channels_of(job: Job, rank: int, root: int) -> int:
    """The p2p channels that the root communicator of this rank printed."""
    name = f"comm 0x55{root:06x}{rank:04x}"
    lines = job.logs[rank]
    at = next(at for at, line in enumerate(lines) if name in line)
    told = next(line for line in lines[at:] if "p2p channels," in line)
    return int(told.split(" p2p channels,")[0].rsplit(" ", 1)[1])
