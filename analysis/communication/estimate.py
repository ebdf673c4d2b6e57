"""Device bytes of one communicator on one rank: a lower bound, an estimate by its connections, an upper bound with everything connected.

Lower: the Simple buffers that are certain, `NCCL_BUFFSIZE x channels` a direction. Estimate: each printed connection by its transport
(`nccl_rules`); a receiver of P2P prints nothing, so its receives are those its senders printed where the logs of all ranks of the communicator
are there, else inferred: on each channel of a ring a rank receives as often as it sends, and network receives are printed. Upper: ring
and tree to distinct peers on every channel, NVLS, and send/recv to all ranks where the communicator does send/recv. A communicator that
printed no connection while others did has not connected: NCCL connects lazily.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from analysis.communication import rules
from analysis.communication.rules import Buffers

PEERS_A_CHANNEL = 6
"""Ring before and behind, tree parent and up to three children."""
TREE_PEERS = 2
"""Peers of a channel's tree that the ring does not connect already, usually."""
Key = tuple[int, str, str]
"""Connection index (0 collectives, 1 send/recv), direction (send, receive), transport as `nccl_connections.sql` classes it."""


@dataclass(frozen=True, slots=True)
class Communicator:
    """What a process printed about one of its communicators; null where it did not."""

    ranks: int
    nodes: int | None = None
    local_ranks: int | None = None
    collective_channels: int | None = None
    p2p_channels: int | None = None
    p2p_channels_per_peer: int | None = None
    p2p_chunk_bytes: int | None = None
    nvls_channels: int | None = None
    nvls_block_bytes: int | None = None
    top_level: bool = True
    proxied: bool = False
    connections: Mapping[Key, int] = field(default_factory=dict)
    received: Mapping[tuple[int, str], int] | None = None
    """P2P receives by connection index and transport, as the senders printed them; null where some sender's log is not there."""

    def count(self, index: int, direction: str, *transports: str) -> int:
        """Connections printed of an index and direction over the transports."""
        return sum(self.connections.get((index, direction, transport), 0) for transport in transports)

    @property
    def local(self) -> int:
        """Ranks on this rank's node, as far as is known."""
        return self.local_ranks or -(-self.ranks // (self.nodes or 1))


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment and the whole log say: sizes, whether a log shows connections at all, and modes."""

    buffers: Buffers = field(default_factory=Buffers)
    environment: Mapping[str, str] = field(default_factory=dict)
    shows_connections: bool = True
    read: bool = False
    gpu_direct: bool = True
    p2p: bool = True

    @property
    def shared_network_buffers(self) -> bool:
        """Whether send/recv over the network goes through a shared pool."""
        return self.environment.get("NCCL_NET_SHARED_BUFFERS") != "0"

    @property
    def lazy(self) -> bool:
        """Whether algorithms connect at first use: runtime connect needs cuMem."""
        return self.environment.get("NCCL_CUMEM_ENABLE") != "0" and self.environment.get("NCCL_RUNTIME_CONNECT") != "0"


@dataclass(frozen=True, slots=True)
class Bytes:
    """The interval and the estimate, the estimate by what holds it and by protocol. `pool_bytes` is that of the top-level communicator."""

    lower_bytes: int
    estimate_bytes: int
    upper_bytes: int
    parts: dict[str, int]
    protocols: dict[str, int]


def estimate(one: Communicator, settings: Settings) -> Bytes:
    """The bytes of a communicator on the rank that printed it."""
    buffers = settings.buffers
    held = _connected(one, settings) if settings.shows_connections or one.connections else _assumed(one, settings)
    send_recv = _send_recv(one, settings)
    parts = {"collectives": _p2p(held, buffers) + _network(held, buffers), "send_recv": send_recv, "nvls": _nvls(one, settings),
             "sharp": rules.collnet_bytes(one.count(0, "send", "collnet"), buffers)}
    whole = sum(parts.values())
    certain = _certain(one, settings) * buffers.simple_bytes
    lower = (certain if settings.shows_connections or one.connections else 0) + (one.nvls_block_bytes or 0)
    return Bytes(min(lower, whole), whole, max(_upper(one, settings), whole), {name: size for name, size in parts.items() if size},
                 _protocols(held, parts, buffers))


@dataclass(frozen=True, slots=True)
class _Held:
    """Ends of collective connections on this device."""

    write_sends: int = 0
    write_receives: int = 0
    read_sends: int = 0
    read_receives: int = 0
    net_sends: int = 0
    net_receives: int = 0

    @property
    def simple(self) -> int:
        """Simple buffers among them."""
        return self.write_receives + self.read_sends + self.net_sends + self.net_receives


def _certain(one: Communicator, settings: Settings) -> int:
    """Simple buffers that surely lie on this device: of inferred receives only the ring's, one a channel."""
    shared = settings.shared_network_buffers
    network = sum(one.count(index, way, "net_gdr") for index in (0, 1) for way in ("send", "receive") if index == 0 or not shared)
    reads = one.count(0, "send", "p2p_read") + one.count(1, "send", "p2p_read")
    if one.received is not None:
        return network + reads + one.received.get((0, "p2p"), 0) + one.received.get((1, "p2p"), 0)
    sends = one.count(0, "send", "p2p", "net_gdr", "net_host")
    ring = min(sends, one.collective_channels or 0) - one.count(0, "receive", "net_gdr", "net_host") if one.count(0, "send", "p2p") else 0
    return network + reads + max(0, ring)


def _connected(one: Communicator, settings: Settings, index: int = 0) -> _Held:
    """What the printed connections hold, receives of P2P inferred."""
    writes, reads = one.count(index, "send", "p2p"), one.count(index, "send", "p2p_read")
    sends = writes + reads + one.count(index, "send", "net_gdr", "net_host", "host")
    net_receives = one.count(index, "receive", "net_gdr", "net_host")
    inferred = max(0, sends - net_receives) if settings.p2p and (writes or reads or not one.count(index, "send", "host")) else 0
    reading = reads > writes or (not writes and settings.read)
    written, read = (0, inferred) if reading else (inferred, 0)
    if one.received is not None:
        written, read = one.received.get((index, "p2p"), 0), one.received.get((index, "p2p_read"), 0)
    return _Held(writes, written, reads, read, one.count(index, "send", "net_gdr"), one.count(index, "receive", "net_gdr"))


def _assumed(one: Communicator, settings: Settings) -> _Held:
    """A log that shows no connections: one ring, and a tree where more than two ranks are, P2P within a node; between nodes one rank in `local`."""
    channels, nodes = one.collective_channels or 0, one.nodes or 1
    if one.ranks < 2 or not channels:
        return _Held()
    pairs = channels * (1 + (TREE_PEERS if one.ranks > 2 and nodes > 1 else 0))
    between = 0 if nodes == 1 else pairs if one.local < 2 else channels // one.local
    within = pairs - between
    network = between if settings.gpu_direct else 0
    return _Held(0 if settings.read else within, 0 if settings.read else within, within if settings.read else 0, within if settings.read else 0,
                 network, network)


def _p2p(held: _Held, buffers: Buffers) -> int:
    write, read = rules.p2p_bytes(buffers, read=False), rules.p2p_bytes(buffers, read=True)
    return held.write_sends * write[0] + held.write_receives * write[1] + held.read_sends * read[0] + held.read_receives * read[1]


def _network(held: _Held, buffers: Buffers) -> int:
    send, receive = rules.net_bytes(buffers, gpu_direct=True)
    return held.net_sends * send + held.net_receives * receive


def _send_recv(one: Communicator, settings: Settings) -> int:
    """Send/recv: P2P connections by the rule, network ones through the pool of the top-level communicator, which `pools` counts."""
    held = _connected(one, settings, 1)
    return _p2p(held, settings.buffers) + (0 if settings.shared_network_buffers else _network(held, settings.buffers))


def pool(one: Communicator, settings: Settings) -> int:
    """Both directions of a top-level communicator's network pool, if it or a split child of it sends and receives over the network."""
    chunk = one.p2p_chunk_bytes or rules.p2p_chunk_bytes(settings.environment, settings.buffers, nodes=one.nodes or 1)
    return rules.shared_pool_bytes(one.p2p_channels or one.collective_channels or 0, chunk)


def network_directions(one: Communicator, settings: Settings) -> set[str]:
    """The directions in which it sends or receives over the network from device memory through a shared pool."""
    if not settings.shared_network_buffers:
        return set()
    return {way for way in ("send", "receive") if one.count(1, way, "net_gdr")}


def _nvls(one: Communicator, settings: Settings) -> int:
    """The printed block; by rule where everything connects at init and no block was printed because the log shows little."""
    if one.nvls_block_bytes is not None:
        return one.nvls_block_bytes
    if settings.lazy or not one.nvls_channels or one.local < 2 or settings.environment.get("NCCL_NVLS_ENABLE") == "0":
        return 0
    return _nvls_by_rule(one, settings)


def _nvls_by_rule(one: Communicator, settings: Settings) -> int:
    text = settings.environment.get("NCCL_NVLS_CHUNKSIZE", "")
    chunk = int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 2**30 else rules.NVLS_CHUNK_BYTES
    return rules.nvls_bytes(one.nvls_channels or 0, one.local, chunk)


def _upper(one: Communicator, settings: Settings) -> int:
    """Every algorithm and protocol connected; send/recv to all ranks only where it does send/recv at all."""
    buffers, nodes = settings.buffers, one.nodes or 1
    local, network = sum(rules.p2p_bytes(buffers, read=False)), sum(rules.net_bytes(buffers, gpu_direct=True)) if nodes > 1 else 0
    pair = max(local if one.local > 1 else 0, network)
    collectives = (one.collective_channels or 0) * min(one.ranks - 1, PEERS_A_CHANNEL) * pair
    nvls = _nvls_by_rule(one, settings) + rules.NVLS_CREDIT_BYTES if one.nvls_channels and one.local > 1 else 0
    send_recv = 0
    if any(index == 1 for index, _, _ in one.connections):
        per_peer = one.p2p_channels_per_peer or one.p2p_channels or 0
        far = 0 if settings.shared_network_buffers else (one.ranks - one.local) * per_peer * network
        send_recv = (one.local - 1) * per_peer * local + far
    sharp = rules.collnet_bytes(one.collective_channels or 0, buffers) if one.count(0, "send", "collnet") else 0
    return collectives + max(nvls, one.nvls_block_bytes or 0) + send_recv + sharp


def _protocols(held: _Held, parts: Mapping[str, int], buffers: Buffers) -> dict[str, int]:
    """The collectives' bytes by protocol; headers and rounding apart; the rest by its own name."""
    full = held.write_receives + held.read_receives + held.net_receives
    found = {"LL": full * buffers.ll_bytes, "LL128": (full + held.net_sends) * buffers.ll128_bytes, "Simple": held.simple * buffers.simple_bytes}
    found["headers_and_rounding"] = parts["collectives"] - sum(found.values())
    return {name: size for name, size in (found | {one: parts[one] for one in ("send_recv", "nvls", "sharp")}).items() if size}
