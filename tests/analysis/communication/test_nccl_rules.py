"""The rules number by number, as NCCL, DeepEP and HCCL document them."""

from __future__ import annotations

import pytest

from analysis.communication import rules
from analysis.communication.rules import Buffers, buffers_of

MIB, GIB = 2**20, 2**30
DEFAULT = Buffers()


def test_buffers_by_protocol() -> None:
    assert (DEFAULT.ll_bytes, DEFAULT.ll128_bytes, DEFAULT.simple_bytes) == (524_288, 4_915_200, 4_194_304)
    assert buffers_of({"NCCL_BUFFSIZE": "8388608", "NCCL_LL128_BUFFSIZE": "1048576"}) == Buffers(524_288, 1_048_576, 8_388_608)
    assert buffers_of({"NCCL_BUFFSIZE": "8M", "NCCL_LL_BUFFSIZE": "-2"}) == DEFAULT


def test_p2p_write_and_read() -> None:
    assert DEFAULT.whole_bytes == 9_633_792
    assert rules.p2p_bytes(DEFAULT, read=False) == (2 * MIB, 10 * MIB)
    assert rules.p2p_bytes(DEFAULT, read=True) == (6 * MIB, 6 * MIB)
    assert 24 * sum(rules.p2p_bytes(DEFAULT, read=True)) == 288 * MIB


def test_the_network_with_and_without_gpudirect() -> None:
    assert DEFAULT.whole_bytes - DEFAULT.ll_bytes == 9_109_504
    assert rules.net_bytes(DEFAULT, gpu_direct=True) == (10 * MIB, 10 * MIB)
    assert rules.net_bytes(DEFAULT, gpu_direct=False) == (0, 0)


def test_shared_pools_and_chunks() -> None:
    assert rules.shared_pool_bytes(16, 128 * 1024) == 32 * MIB
    assert rules.p2p_chunk_bytes({}, DEFAULT, nodes=2) == 128 * 1024
    assert rules.p2p_chunk_bytes({}, DEFAULT, nodes=1) == 512 * 1024
    assert rules.p2p_chunk_bytes({}, DEFAULT, nodes=1, all_nvlink=False) == 128 * 1024
    assert rules.p2p_chunk_bytes({"NCCL_P2P_NET_CHUNKSIZE": "4194304"}, DEFAULT, nodes=2) == 512 * 1024


@pytest.mark.parametrize(("channels", "heads", "size"), [
    (16, 8, 256 * MIB), (16, 4, 128 * MIB), (16, 2, 64 * MIB), (24, 8, 384 * MIB), (24, 32, 1536 * MIB)])
def test_nvls(channels: int, heads: int, size: int) -> None:
    assert rules.nvls_bytes(channels, heads) == size


def test_the_all_to_all_of_eight_gpus() -> None:
    size = rules.all_to_all_bytes(8, 32, DEFAULT)
    assert size == 7 * 32 * 12 * MIB
    assert round(size / GIB, 1) == 2.6


def test_deepep() -> None:
    workspace = 32 * MIB
    assert [round((size - workspace) / 1e6) for size in rules.deepep_bytes(7168, 8)] == [336, 336]
    assert [round((size - workspace) / 1e6) for size in rules.deepep_bytes(7168, 64)] == [378 + 336] * 2
    least, most = rules.deepep_bytes(7168, 128)
    assert least < most


def test_hccl() -> None:
    assert rules.hccl_bytes(1, {}) == 400 * MIB
    assert rules.hccl_bytes(2, {"HCCL_BUFFSIZE": "100"}, p2p_communicators=1) == 2 * (2 * 100 + 20) * MIB


def test_sharp() -> None:
    assert rules.collnet_bytes(4, DEFAULT) == 16 * MIB
