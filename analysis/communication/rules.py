"""Bytes of device memory that communication libraries set aside, by their own rules: pure arithmetic, nothing read.

Source: NCCL 2.30's transports (LL 8 lines x 512 threads x 8 steps x 16 B, LL128 120 x 640 x 8 x 8 B, Simple NCCL_BUFFSIZE), DeepEP's buffer size
hints, CANN's documentation. Each allocation is rounded up to 2 MiB, the granularity of device memory. Not `NCCL_BUFFSIZE x channels` alone,
the rule of thumb: it knows no peers, no protocols and no NVLS, and is kept as the lower bound only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MIB = 2**20
GRANULE_BYTES = 2 * MIB
STEPS = 8
LL_BYTES = 8 * 512 * STEPS * 16
LL128_BYTES = 120 * 640 * STEPS * 8
SIMPLE_BYTES = 4 * MIB
NVLS_CHUNK_BYTES = 128 * 1024
NVLS_CREDIT_BYTES = 2 * MIB
SHARED_SLOTS = 16
"""Slots of a p2p chunk that each channel has in a communicator's shared network pool."""
LARGEST_BYTES = 1 << 34


@dataclass(frozen=True, slots=True)
class Buffers:
    """Sizes of one connection's buffers by protocol."""

    ll_bytes: int = LL_BYTES
    ll128_bytes: int = LL128_BYTES
    simple_bytes: int = SIMPLE_BYTES

    @property
    def whole_bytes(self) -> int:
        """All three protocols."""
        return self.ll_bytes + self.ll128_bytes + self.simple_bytes


def buffers_of(environment: Mapping[str, str]) -> Buffers:
    """The sizes that `NCCL_BUFFSIZE` and its LL and LL128 kin set; what is no size leaves the default, as in NCCL."""
    sizes = (_size(environment.get(name), default) for name, default in (
        ("NCCL_LL_BUFFSIZE", LL_BYTES), ("NCCL_LL128_BUFFSIZE", LL128_BYTES), ("NCCL_BUFFSIZE", SIMPLE_BYTES)))
    return Buffers(*sizes)


def _size(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and 0 < int(text) < LARGEST_BYTES else default


def rounded(size: int) -> int:
    """Up to whole granules; nothing stays nothing."""
    return -(-size // GRANULE_BYTES) * GRANULE_BYTES


def p2p_bytes(buffers: Buffers, *, read: bool) -> tuple[int, int]:
    """(sender, receiver) of one peer-to-peer connection. In read mode (compute capability 8.0 over NVLink) the Simple buffer lies at the sender."""
    if read:
        return rounded(buffers.simple_bytes + 1), rounded(buffers.whole_bytes - buffers.simple_bytes)
    return GRANULE_BYTES, rounded(buffers.whole_bytes)


def net_bytes(buffers: Buffers, *, gpu_direct: bool) -> tuple[int, int]:
    """(sender, receiver) of one network connection; without GPUDirect all of it lies on the host. LL of the sender always does."""
    if not gpu_direct:
        return 0, 0
    return rounded(buffers.whole_bytes - buffers.ll_bytes), rounded(buffers.whole_bytes)


def shared_pool_bytes(p2p_channels: int, p2p_chunk_bytes: int) -> int:
    """One direction of the pool that all network send/recv of a top-level communicator and its split children share."""
    return p2p_channels * SHARED_SLOTS * p2p_chunk_bytes


def p2p_chunk_bytes(environment: Mapping[str, str], buffers: Buffers, *, nodes: int, all_nvlink: bool = True) -> int:
    """Chunk of send/recv: by what lies between the ranks, never above Simple / 8."""
    name, default = (("NCCL_P2P_NET_CHUNKSIZE", 128 * 1024) if nodes > 1 else
                     ("NCCL_P2P_NVL_CHUNKSIZE", 512 * 1024) if all_nvlink else ("NCCL_P2P_PCI_CHUNKSIZE", 128 * 1024))
    return min(_size(environment.get(name), default), buffers.simple_bytes // STEPS)


def nvls_bytes(channels: int, heads: int, chunk_bytes: int = NVLS_CHUNK_BYTES) -> int:
    """The block of NVLink SHARP that one communicator has on each GPU."""
    return channels * 2 * STEPS * chunk_bytes * heads


def all_to_all_bytes(ranks: int, channels_per_peer: int, buffers: Buffers, *, read: bool = False) -> int:
    """send/recv inside NVLink: every channel to a peer connects at the first send to it, whatever its size."""
    return (ranks - 1) * channels_per_peer * sum(p2p_bytes(buffers, read=read))


def collnet_bytes(channels: int, buffers: Buffers) -> int:
    """SHARP over the network: one Simple buffer a CollNet channel."""
    return channels * rounded(buffers.simple_bytes)


def deepep_bytes(hidden_size: int, expert_parallel: int, num_sms: int = 20) -> tuple[int, int]:
    """(least, most) of DeepEP's legacy buffers of one process: NVLink part, RDMA part beyond one node, workspace of 32 MiB."""
    channels, token = num_sms // 2, 2 * hidden_size + 8 + 1024 + 512 + 512
    low, high = (256, 256) if expert_parallel <= 8 else (288, 288) if expert_parallel <= 64 else (480, 720)
    nvlink = channels * min(expert_parallel, 8) * token
    rdma = 2 * channels * (expert_parallel // 8) * 128 * (token + 16) if expert_parallel > 8 else 0
    return nvlink * low + rdma + 32 * MIB, nvlink * high + rdma + 32 * MIB


def hccl_bytes(communicators: int, environment: Mapping[str, str], p2p_communicators: int = 0) -> int:
    """HCCL: two buffers of HCCL_BUFFSIZE MB (200) a communicator, two of P2P_HCCL_BUFFSIZE (20) a separate point-to-point one."""
    collective, direct = _size(environment.get("HCCL_BUFFSIZE"), 200), _size(environment.get("P2P_HCCL_BUFFSIZE"), 20)
    return 2 * MIB * (communicators * collective + p2p_communicators * direct)
