"""Settings that are known to harm, read from the environment as ranks and logs show it.

Sources: PyTorch issue 123548 (expandable segments with max_split_size_mb), NCCL's parameter parser (a value with a unit is ignored), NCCL's
transports (without cuMem everything connects at init). What needs the run's arguments too is a rule of `analysis.findings`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.communication.rows import Warned
from analysis.rows import Source

Row = Mapping[str, Any]
MATTERING = ("NCCL_", "RCCL_", "HCCL_", "P2P_HCCL_", "TORCH_NCCL_", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUDA_DEVICE_MAX_CONNECTIONS",
             "CUBLAS_WORKSPACE_CONFIG", "NVTE_")
_PER_RANK = ("NCCL_DEBUG", "NCCL_COMM_ID", "NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO", "NCCL_NET_PLUGIN", "NCCL_GRAPH_DUMP",
             "NCCL_XML", "NCCL_LAUNCH")


def settings_of(rows: Sequence[Row]) -> dict[str, str]:
    """The value of each variable in force: what the library says it took wins over what a script echoed; an invalid value is not in force."""
    order = {"nccl_set_by_environment": 0, "env": 1, "json": 1, "export": 2, "declare -x": 2, "assignment": 2}
    best: dict[str, Row] = {}
    for row in sorted((one for one in rows if one["origin"] not in ("nccl_invalid", "banner")), key=lambda one: order.get(one["origin"] or "", 3)):
        best.setdefault(row["name"], row)
    invalid = {row["name"] for row in rows if row["origin"] == "nccl_invalid"}
    return {name: row["value"] or "" for name, row in sorted(best.items()) if name.startswith(MATTERING) and name not in invalid}


def environment_findings(rows: Sequence[Row]) -> Iterator[Warned]:
    """The known bad values and pairs among the variables."""
    for row in rows:
        if row["name"] in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            value = (row["value"] or "").replace(" ", "")
            if "expandable_segments:True" in value and "max_split_size_mb" in value:
                yield Warned("expandable_with_max_split", "expandable_segments:True and max_split_size_mb together are a known bad pair "
                             "(PyTorch issue 123548): keep one of them.", _source(row))
        elif row["origin"] == "nccl_invalid":
            default = (dict(row["other"] or {})).get("default")
            yield Warned("nccl_value_ignored", f"{row['name']} is {row['value']}, which NCCL does not understand: it uses its default ({default}).",
                         _source(row))
    yield from _different(rows)
    without = next((row for row in rows if row["name"] == "NCCL_CUMEM_ENABLE" and row["value"] == "0"), None)
    if without:
        yield Warned("nccl_connects_at_init", "NCCL_CUMEM_ENABLE=0: each communicator connects rings, trees and NVLS when it is set up, used or not.",
                     _source(without))


def _different(rows: Sequence[Row]) -> Iterator[Warned]:
    values: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row["name"].startswith("NCCL_") and not row["name"].startswith(_PER_RANK) and row["origin"] == "nccl_set_by_environment":
            values[row["name"]].setdefault(row["value"] or "", row)
    for name, seen in sorted(values.items()):
        if len(seen) > 1:
            listed = ", ".join(sorted(seen)[:4])
            yield Warned("nccl_values_differ", f"{name} differs between ranks ({listed}): collectives may hang or fail, and buffers differ in size.",
                         _source(list(seen.values())[1]))


def _source(row: Row) -> Source:
    return Source(row["path"], row["line"])
