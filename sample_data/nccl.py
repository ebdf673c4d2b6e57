"""What NCCL 2.27 prints on each rank of a sample run with `NCCL_DEBUG=INFO` and the ALLOC subsystem on, and the device bytes its lines add up to.

Two nodes of eight H100 (peer-to-peer in write mode), rings only (`NCCL_ALGO=Ring`), no cuMem, so that each communicator connects when it is set up
and each buffer is a line; the all-to-all of the experts connects at its first send. Counted here connection by connection,
apart from `analysis`, which must not judge itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from sample_data.ledger import MIB

NODE = 8
CHANNELS, PIPELINE_CHANNELS, PEER_CHANNELS = 16, 4, 4
LL, LL128, SIMPLE, HEADER = 524_288, 4_915_200, 4_194_304, 4096
_SETTINGS = (("NCCL_ALGO", "Ring"), ("NCCL_CUMEM_ENABLE", "0."), ("NCCL_DEBUG_SUBSYS", "INIT,ENV,NET,P2P,ALLOC"))


@dataclass(slots=True)
class Lines:
    """Lines of one rank, and the device bytes of the allocations among them, each in whole granules of 2 MiB."""

    rank: int
    text: list[str]
    device_bytes: int = 0

    def say(self, body: str) -> None:
        """One line."""
        local = self.rank % NODE
        self.text.append(f"gx-n{self.rank // NODE + 1:02d}:{4100 + local}:{4180 + local} [{local}] NCCL INFO {body}")

    def allocate(self, size: int, site: str) -> None:
        """One allocation on the device."""
        self.say(f"{site} Cuda Alloc Size {size} pointer 0x7f{self.rank:02x}{len(self.text):04x}000000")
        self.device_bytes += -(-size // (2 * MIB)) * 2 * MIB


def before_training(rank: int) -> Lines:
    """Settings, then the communicators that the model needs: data parallel, expert parallel (with its all-to-all), pipeline."""
    out = Lines(rank, [])
    for name, value in _SETTINGS:
        out.say(f"{name} set by environment to {value}")
    out.say("cudaDriverVersion 12080")
    out.say("NCCL version 2.27.3+cuda12.8")
    out.say("Using network IB")
    node = list(range(rank // NODE * NODE, rank // NODE * NODE + NODE))
    _communicator(out, node, 1, CHANNELS)
    _communicator(out, node, 2, CHANNELS)
    _all_to_all(out, node)
    pair = [rank % NODE, rank % NODE + NODE]
    _communicator(out, pair, 3, PIPELINE_CHANNELS)
    for site in ("transport/net.cc:1063", "transport/net.cc:1064"):
        out.allocate(PIPELINE_CHANNELS * 16 * 131072, site)
    own = pair.index(rank)
    for channel in range(PIPELINE_CHANNELS):
        for source, destination, way in ((own, 1 - own, "send"), (1 - own, own, "receive")):
            out.say(f"Channel {channel:02d}/1 : {source}[{rank % NODE}] -> {destination}[{rank % NODE}] [{way}] via "
                    f"NET/IB/{rank % NODE}/GDRDMA/Shared")
    return out


def after_first_step(rank: int) -> Lines:
    """The communicator of all ranks, first used when the first step's loss is averaged."""
    out = Lines(rank, [])
    _communicator(out, list(range(2 * NODE)), 4, CHANNELS)
    return out


def _communicator(out: Lines, ranks: list[int], number: int, channels: int) -> None:
    own, nodes = ranks.index(out.rank), len({rank // NODE for rank in ranks})
    local = [rank for rank in ranks if rank // NODE == out.rank // NODE]
    name = f"0x55d{number:x}{out.rank:02x}a0c0"
    about = (f"ncclCommInitRankConfig comm {name} rank {own} nranks {len(ranks)} cudaDev {out.rank % NODE} nvmlDev {out.rank % NODE} "
             f"busId {out.rank % NODE + 1:x}9000 commId 0x{number:x}7c{min(ranks):02x}f1a9be")
    out.say(f"{about} - Init START")
    out.say(f"comm {name} rank {own} nRanks {len(ranks)} nNodes {nodes} localRanks {len(local)} localRank {local.index(out.rank)} MNNVL 0")
    out.say(f"{channels} coll channels, {channels} collnet channels, 0 nvls channels, {channels} p2p channels, {PEER_CHANNELS} p2p channels per peer")
    following, before = (own + 1) % len(ranks), (own - 1) % len(ranks)
    for channel in range(channels):
        _send(out, ranks, own, following, channel, 0)
        _receive(out, ranks, before, own, channel, 0)
    out.say("Connected all rings, use ring PXN 0 GDR 1")
    out.say(f"{about} - Init COMPLETE")


def _send(out: Lines, ranks: list[int], source: int, destination: int, channel: int, index: int) -> None:
    about = f"Channel {channel:02d}/{index} : {source}[{ranks[source] % NODE}] -> {destination}[{ranks[destination] % NODE}]"
    if ranks[source] // NODE == ranks[destination] // NODE:
        out.allocate(HEADER, "transport/p2p.cc:245")
        out.say(f"{about} via P2P/IPC")
    else:
        out.allocate(LL128 + SIMPLE, "transport/net.cc:722")
        out.say(f"{about} [send] via NET/IB/{out.rank % NODE}/GDRDMA")


def _receive(out: Lines, ranks: list[int], source: int, destination: int, channel: int, index: int) -> None:
    if ranks[source] // NODE == ranks[destination] // NODE:
        out.allocate(LL + LL128 + SIMPLE, "transport/p2p.cc:245")
        return
    out.allocate(LL + LL128 + SIMPLE, "transport/net.cc:868")
    out.say(f"Channel {channel:02d}/{index} : {source}[{ranks[source] % NODE}] -> {destination}[{ranks[destination] % NODE}] [receive] via "
            f"NET/IB/{out.rank % NODE}/GDRDMA")


def _all_to_all(out: Lines, ranks: list[int]) -> None:
    own = ranks.index(out.rank)
    for step in range(1, len(ranks)):
        for channel in range(PEER_CHANNELS):
            _send(out, ranks, own, (own + step) % len(ranks), channel, 1)
            _receive(out, ranks, (own - step) % len(ranks), own, channel, 1)
