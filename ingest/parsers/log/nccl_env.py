"""Environment variables and versions that a log shows: what NCCL says it took, what a launch script echoed.

`X set by environment to 8388608.` (the full stop only where the value is a number), `Invalid value 8M for X, using default -2.`, `export X=1`,
`declare -x X="1"` and bare `X=1` of `bash -x` and `printenv`. `origin` keeps which of them said it, because NCCL's own line may stem from
a plugin and a launcher's echo may never reach the rank. Of echoed variables only those are read that bear on memory or communication: a
log full of `A=B` text is no environment. Values of variables that hold a secret are not kept.
"""

from __future__ import annotations

import re

from ingest.parsers.log.records import Context, LogLine

PREFIXES = ("NCCL_", "RCCL_", "HCCL_", "P2P_HCCL_", "TORCH_", "PYTORCH_", "CUDA_", "CUBLAS", "NVTE_", "UCX_", "NVSHMEM_", "HIP_", "HSA_", "ASCEND_",
            "MSCCL", "FI_", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NNODES", "SLURM_", "GPUS_PER_NODE", "NPROC_PER_NODE", "MEGATRON_", "DEEPEP_")
"""Variables that bear on memory, communication or the size of a job."""
HIDDEN = "(not kept)"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_NAME = r"(?P<name>[A-Za-z_][A-Za-z0-9_]{1,80})"
_WHO = r"(?:(?<![\w.-])(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,9}):\d{1,9} \[(?P<device>-?\d{1,5})\] NCCL INFO )?"
_SET = re.compile(rf"{_WHO}(?<![A-Za-z0-9_]){_NAME} set by environment to (?P<value>-?\d+(?=\.(?:\s|$|[\w.-]+:\d+:\d+ \[))|\S+)")
_INVALID = re.compile(rf"{_WHO}Invalid value (?P<value>\S+) for {_NAME}, using default (?P<default>-?\d+)")
_ECHO = re.compile(rf"""\s*(?:\++ )?(?P<how>export |declare -x )?{_NAME}=(?P<value>"[^"]*"|'[^']*'|[^\s"']*)(?=\s|$)""")
_HCCL = re.compile(r"(?P<name>(?:P2P_)?HCCL_[A-Z_0-9]+)\]? (?:is )?set (?:by (?P<how>\w+) )?to \[?(?P<value>[\w.-]+)")
_VERSIONS = (
    ("NCCL", re.compile(rf"{_WHO}NCCL version (?P<value>\d[\w.]*)(?:\+cuda(?P<cuda>[\d.]*\d))?(?:\+hip(?P<hip>[\d.]*\d))?")),
    ("RCCL", re.compile(rf"{_WHO}RCCL version ?:? ?(?P<value>\d[\d.]*)(?:\+hip(?P<hip>[\d.]*\d))?")),
    ("NCCL git", re.compile(rf"{_WHO}NCCL git version (?P<value>\S+(?: [0-9a-f]{{7,40}})?)")),
    ("CUDA driver", re.compile(rf"{_WHO}cudaDriverVersion (?P<value>\d+)")), ("HIP", re.compile(rf"{_WHO}HIP version ?: ?(?P<value>\d\S*)")),
    ("ROCm", re.compile(rf"{_WHO}ROCm version ?: ?(?P<value>\d\S*)")), ("network", re.compile(rf"{_WHO}Using network (?P<value>\S+)")),
    ("network plugin", re.compile(rf"{_WHO}NET/Plugin: (?:Loaded|Using) (?P<value>.*\S)")),
    ("driver", re.compile(rf"{_WHO}(?:Nvidia driver|Driver) [Vv]ersion: (?P<value>\d[\d.]*)(?:\s+CUDA Version: (?P<cuda>[\d.]*\d))?")),
    ("CUDA", re.compile(rf"{_WHO}CUDA Version: (?P<value>\d[\d.]*)")),
    ("Transformer Engine", re.compile(rf"{_WHO}transformer[-_]engine(?:_torch)?==(?P<value>\d[\w.+]*)")),
    ("Megatron Core", re.compile(rf"{_WHO}megatron[-_]core==(?P<value>\d[\w.+]*)")),
    ("flash-attn", re.compile(rf"{_WHO}flash[-_]attn==(?P<value>\d[\w.+]*)")), ("PyTorch", re.compile(rf"{_WHO}\btorch==(?P<value>\d[\w.+]*)")),
    ("network devices", re.compile(rf"{_WHO}NET/(?:IB|Socket|OFI|UCX) : Using (?P<value>\[.*\S)")),
)


class EnvironmentLines:
    """Rows of `environment`."""

    literals = (" set by environment to ", "Invalid value ", "NCCL version ", "RCCL version", "cudaDriverVersion ", "HIP version", "ROCm version",
                "NCCL git version ", "Using network ", "NET/IB : Using", "NET/Socket : Using", "NET/OFI : Using", "NET/UCX : Using", "NET/Plugin: ",
                "NCCL_", "HCCL_", "NVTE_", "UCX_", "NVSHMEM_", "HSA_", "ASCEND_", "SLURM_", "PYTORCH_", "TORCH_CUDA", "TORCH_DIST", "TORCH_SHOW",
                "CUDA_DEVICE_MAX_CONNECTIONS=", "CUDA_VISIBLE_DEVICES=", "CUDA_LAUNCH_BLOCKING=", "CUDA_MODULE_LOADING=", "HIP_VISIBLE_DEVICES=",
                "CUBLAS", "FI_PROVIDER", "FI_EFA", "WORLD_SIZE=", "NNODES=", "_PER_NODE=", "Driver Version: ", "driver version: ", "CUDA Version: ",
                "engine==", "megatron-core==", "megatron_core==", "flash-attn==", "flash_attn==", "torch==")

    def take(self, line: LogLine, context: Context) -> bool:
        """Emit what the line says: one thing, or several variables."""
        return _told(line, context) or _version(line, context) or _echoed(line, context)


def shown(name: str, value: str) -> str:
    """The value, unless its name says that it is a secret."""
    return HIDDEN if _SECRET.search(name) else value


def _told(line: LogLine, context: Context) -> bool:
    found = [_emit(line, context, match, match["name"], match["value"], "nccl_set_by_environment") for match in _SET.finditer(line.text)]
    found += [_emit(line, context, match, match["name"], match["value"], "nccl_invalid", default=match["default"])
              for match in _INVALID.finditer(line.text)]
    if not found and (match := _HCCL.search(line.text)):
        context.emit("environment", line, host=line.host, name=match["name"], value=match["value"], origin=f"hccl_set_by_{match['how'] or 'unknown'}")
        return True
    return bool(found)


def _version(line: LogLine, context: Context) -> bool:
    for name, pattern in _VERSIONS:
        if match := pattern.search(line.text):
            version = name if name.startswith("network") else f"{name} version"
            _emit(line, context, match, version, match["value"], "banner")
            for library in ("cuda", "hip"):
                if match.groupdict().get(library):
                    _emit(line, context, match, f"{library.upper()} of {name}", match[library], "banner")
            return True
    return False


def _emit(line: LogLine, context: Context, match: re.Match[str], name: str, value: str, origin: str, **other: str) -> bool:
    if match["host"]:
        other |= {"pid": match["pid"], "device": match["device"]}
    context.emit("environment", line, host=match["host"] or line.host, name=name, value=shown(name, value), origin=origin, other=other or None)
    return True


def _echoed(line: LogLine, context: Context) -> bool:
    """The assignments with which a line begins."""
    at, origin = 0, "env"
    while (match := _ECHO.match(line.text, at)) and match["name"].startswith(PREFIXES):
        origin = (match["how"] or ("assignment" if line.text.lstrip().startswith("+") else origin)).strip()
        context.emit("environment", line, host=line.host, name=match["name"], value=shown(match["name"], match["value"].strip("\"'")), origin=origin)
        at = match.end()
    return at > 0
