"""Device tables and CSV: nvidia-smi, rocm-smi, npu-smi; what no header names is never called used or free."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.ingest.parsers.log.reading import read

MIB = 2**20


def devices(text: str, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row.get(name) for name in names) for row in read(text + "\n").get("device_memory", [])]


TABLE = """\
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:9D:00.0 Off |                    0 |
| N/A   61C    P0             612W / 700W |   75377MiB /  81920MiB |    100%      Default |
|                                         |                        |             Disabled |
|   1  Tesla V100-SXM2...  On   | 00000000:9D:00.0 Off |                    0 |
| N/A   61C    P0   612W / 700W |  15377MiB / 32510MiB |      0%      Default |
| Processes:                                                                              |
|    1   N/A  N/A    61877      C   /opt/conda/bin/python3.12                   75360MiB |"""


def test_nvidia_smi_tables_of_two_releases_name_the_device_and_the_run_s_gpu() -> None:
    assert devices(TABLE, "device", "device_name", "used_bytes", "total_bytes", "utilization_percent") == [
        (0, "NVIDIA A100-SXM4-80GB", 75377 * MIB, 81920 * MIB, 100.0), (1, "Tesla V100-SXM2...", 15377 * MIB, 32510 * MIB, 0.0)]
    assert read(TABLE + "\n")["device_memory"][0]["other"] == {"temperature_c": "61", "power_w": "612", "power_limit_w": "700"}
    assert [(row["gpu_name"], row["capacity_bytes"]) for row in read(TABLE + "\n" + TABLE)["runs"]] == [
        ("NVIDIA A100-SXM4-80GB", 81920 * MIB), ("Tesla V100-SXM2...", 32510 * MIB)]


@pytest.mark.parametrize("text", [
    "index, name, memory.total [MiB], memory.used [MiB], memory.free [MiB]\n2, NVIDIA H100 80GB HBM3, 81559 MiB, 70144 MiB, 10812 MiB",
    "index, memory.free [MiB], memory.used [MiB], memory.total [MiB]\n2, 10812 MiB, 70144 MiB, 81559 MiB",
    "index, memory.used [MiB], memory.total [MiB], memory.free [MiB]\n2, 70144, 81559, 10812",
    "memory.free [MiB], index, memory.used [MiB], memory.total [MiB]\nsome other line\n10812 MiB, 2, 70144 MiB, 81559 MiB",
])
def test_a_header_tells_which_figure_is_which_in_any_order(text: str) -> None:
    assert devices(text, "device", "used_bytes", "total_bytes", "free_bytes") == [(2, 70144 * MIB, 81559 * MIB, 10812 * MIB)]


def test_without_a_header_only_a_proven_total_is_told() -> None:
    text = "2026/03/28 14:20:11.120, 0, GPU-1, 81559 MiB, 70144 MiB, 10812 MiB, 99 %\n3, 81559 MiB, 71002 MiB\n4, 100 MiB, 71002 MiB"
    assert devices(text, "device", "total_bytes", "used_bytes", "free_bytes") == [(0, 81559 * MIB, None, None), (3, 81559 * MIB, None, None)]
    rows = read(text + "\n")
    assert rows["device_memory"][0]["at"] == datetime(2026, 3, 28, 14, 20, 11, 120000)
    assert rows["device_memory"][0]["other"] == {"unnamed_1_bytes": str(70144 * MIB), "unnamed_2_bytes": str(10812 * MIB), "name": "GPU-1"}
    assert [row["line"] for row in rows["rejects"]] == [3]


def test_rocm_smi_in_bytes_as_a_table_as_csv_and_as_json() -> None:
    lines = "GPU[1]\t\t: VRAM Total Memory (B): 206141652992\nGPU[1]\t\t: VRAM Total Used Memory (B): 198141652992"
    csv = "device,VRAM Total Memory (B),VRAM Total Used Memory (B)\ncard1,206141652992,198141652992"
    found = '{"card1": {"VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "198141652992"}, "system": {}}'
    for text in (lines, csv, found):
        assert devices(text, "device", "total_bytes", "used_bytes", "source") == [(1, 206141652992, 198141652992, "rocm-smi")]
    concise = ("Device  Node  IDs              Temp        Power     Partitions      SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%\n"
               "              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)\n" + "=" * 80 + "\n"
               "3       2     0x74a1,   28851  45.0°C      140.0W    NPS1, SPX, 0    132Mhz   900Mhz   0%   auto  750.0W  93%    100%\n" + "=" * 80)
    assert devices(concise, "device", "used_bytes", "utilization_percent", "other") == [(3, None, 100.0, {"used_percent": "93"})]


NPU = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 98.1        41                0    / 0             |
| 0                         | 0000:C1:00.0  | 97          0    / 0          60112/ 65536         |
+===========================+===============+====================================================+
| 7     910B3               | Warning       | 98.1        41                0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          3370 / 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
| 0       0                 | 3734596       | python                   | 56789                   |"""


def test_npu_smi_tables_with_and_without_their_header_and_modules_of_two_chips() -> None:
    expected = [(0, "910B3", 60112 * MIB, 65536 * MIB, 97.0), (7, "910B3", 3370 * MIB, 65536 * MIB, 0.0)]
    names = ("device", "device_name", "used_bytes", "total_bytes", "utilization_percent")
    assert devices(NPU, *names) == expected
    assert read(NPU + "\n")["device_memory"][0]["other"] == {"chip": "0", "power_w": "98.1", "temperature_c": "41"}
    assert devices(NPU.split("\n", 3)[3], *names) == expected
    two = ("| 2     Ascend910           | OK            | 168.5       36                0    / 0             |\n"
           "| 0     4                   | 0000:82:00.0  | 0           0    / 0          3390 / 65536         |\n"
           "| 1     5                   | 0000:84:00.0  | 12          0    / 0          50390/ 65536         |")
    assert [(row["device"], row["other"]["chip"], row["used_bytes"]) for row in read(two + "\n")["device_memory"]] == [
        (2, "0", 3390 * MIB), (2, "1", 50390 * MIB)]


def test_device_properties_tell_the_run_s_gpu() -> None:
    (row,) = read("_CudaDeviceProperties(name='NVIDIA H100 80GB HBM3', major=9, minor=0, total_memory=81008MB, multi_processor_count=132)\n")["runs"]
    assert (row["gpu_name"], row["capacity_bytes"]) == ("NVIDIA H100 80GB HBM3", 81008 * MIB)
