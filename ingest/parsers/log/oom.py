"""Out-of-memory errors of every wording: PyTorch old and new, HIP, NPU, driver, NCCL, cuBLAS, memory saver, host.

Each figure is searched by the words around it, so that a release that adds or drops a sentence, and a message cut short, still give
what they say. A figure that no device can have (an overflow prints 17179869184.00 GiB) becomes null and the row is marked.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsers.log.quantities import LARGEST_BYTES, size
from ingest.parsers.log.records import Context, LogLine

_S = r"(\d+(?:\.\d+)?) (bytes|B|[KMGT]i?B)\b"
_ALLOCATOR = re.compile(r"(?:CUDA|HIP|NPU|XPU|MUSA) out of memory\. Tried to allocate")
_FIGURES = {
    "requested_bytes": (rf"Tried to allocate {_S}",), "capacity_bytes": (rf"total capac[i]?ty of {_S}", rf"{_S} total capacity"),
    "free_bytes": (rf"of which {_S} is free", rf"; {_S} free"), "process_bytes": (rf"this process has {_S}",),
    "allocated_bytes": (rf"Of the allocated memory {_S} is allocated by PyTorch", rf"{_S} already allocated"),
    "private_pool_bytes": (rf"{_S} allocated in private pools", rf"{_S} (?:is )?allocated in private pools"),
    "reserved_unallocated_bytes": (rf"{_S} is reserved by PyTorch but unallocated", rf"{_S} cached"),
    "reserved_bytes": (rf"{_S} reserved in total by PyTorch",),
    "allowed_bytes": (rf"{_S} allowed",),
}
_PATTERNS = {name: tuple(re.compile(one) for one in many) for name, many in _FIGURES.items()}
_DEVICE = re.compile(r"(?:GPU|NPU|HIP device|XPU|device) (\d+)\b")
_PROCESS = re.compile(rf"Process (\d+) has {_S}")
_ACTIVE = re.compile(rf"{_S} current active")
_HINT = re.compile(r"try setting (\S+?)(?: to avoid|\.\s|\s|$)")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/torch/|<frozen|/lib/python\d")
_NCCL = re.compile(
    r"(?P<host>[\w.-]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>\d+)\] "
    r"(?:(?P<site>[\w./]+:\d+) (?:\((?P<function>\w+)\) )?)?NCCL WARN "
                   r"(?P<what>.*(?:out of memory|Failed to (?:Cuda|CUDA) \w*[aA]lloc).*)")
_WANTED = re.compile(r"(?:alloc(?:ate)? |size )(\d+)(?: bytes)?")
_OTHERS = (
    ("driver", re.compile(r"(?:AcceleratorError|RuntimeError|torch\.\w+): (?:CUDA|HIP) error: out of memory")),
    ("cublas", re.compile(r"CUBLAS_STATUS_ALLOC_FAILED")),
    ("cudnn", re.compile(r"CUDNN_STATUS_ALLOC_FAILED")),
    ("npu", re.compile(r"(?P<alloc>rtMalloc failed)\. ?size: ?(?P<bytes>\d+)")),
    ("saver", re.compile(r"(?:torch_memory_saver|\[TMS\]|memory.saver).*(?:out of memory|OOM|CUresult error.*2\b)", re.IGNORECASE)),
    ("host", re.compile(r"DefaultCPUAllocator: (?:can't|not enough memory: you tried to) allocate(?: memory)?:?"
                        r"(?: you tried to allocate)? ?(?P<bytes>\d+) bytes")),
)


class OutOfMemory:
    """Rows of `oom_events`; tracebacks are followed for the innermost frame of the user's code."""

    literals = ("out of memory", "ALLOC_FAILED", "rtMalloc failed", 'File "',
                "DefaultCPUAllocator", "NCCL WARN", "memory_saver", "[TMS]", "OOM", "Traceback")

    def take(self, line: LogLine, context: Context) -> bool:
        """Emit the errors of the line; remember frames."""
        if match := _FRAME.match(line.text):
            if not _LIBRARY.search(match["file"]):
                context.facts.setdefault("frames", {})[_who(line)] = f"{match['file'].rsplit('/', 1)[-1]}:{match['line']}"
            return False
        if "Traceback (most recent call last)" in line.text:
            context.facts.setdefault("frames", {}).pop(_who(line), None)
        heads = list(_ALLOCATOR.finditer(line.text))
        for at, head in enumerate(heads):
            end = heads[at + 1].start() if at + 1 < len(heads) else len(line.text)
            _allocator(line, context, line.text[head.start():end])
        return bool(heads) or _nccl(line, context) or _other(line, context)


def _who(line: LogLine) -> str:
    return f"{line.rank}/{line.rank_label}/{line.host}/{line.prefix.get('pid')}"


def _emit(line: LogLine, context: Context, text: str, **columns: Any) -> None:
    frame = context.facts.get("frames", {}).pop(_who(line), None)
    context.emit("oom_events", line, iteration=context.iteration, frame=frame, text=text.strip()[:2000], at=line.at, **columns)


def _allocator(line: LogLine, context: Context, text: str) -> None:
    columns: dict[str, Any] = {"valid": True}
    for name, patterns in _PATTERNS.items():
        match = next((found for one in patterns if (found := one.search(text))), None)
        if match:
            value = size(match[1], match[2])
            columns[name] = value if value <= LARGEST_BYTES else None
            columns["valid"] = columns["valid"] and value <= LARGEST_BYTES
    device, hint = _DEVICE.search(text), _HINT.search(text)
    other = {f"process_{pid}_bytes": str(size(value, unit)) for pid, value, unit in _PROCESS.findall(text)}
    if active := _ACTIVE.search(text):
        other["active_bytes"] = str(size(active[1], active[2]))
    process, allocated, cached = (columns.get(name) for name in ("process_bytes", "allocated_bytes", "reserved_unallocated_bytes"))
    if process is not None and allocated is not None and cached is not None:
        other["non_pytorch_bytes"] = str(process - allocated - cached)
    _emit(line, context, text, kind=text.split(" ", 1)[0].lower(), device=int(device[1]) if device else None,
          allocator_hint=hint[1].rstrip(".,") if hint else None, other=other or None, **columns)


def _nccl(line: LogLine, context: Context) -> bool:
    match = _NCCL.search(line.text)
    if not match:
        return False
    wanted = _WANTED.search(match["what"])
    other = {name: match[name] for name in ("host", "pid", "tid", "site", "function") if match[name]}
    _emit(line, context, match["what"], kind="nccl", device=int(match["device"]), requested_bytes=int(wanted[1]) if wanted else None,
          valid=True, other=other)
    return True


def _other(line: LogLine, context: Context) -> bool:
    for kind, pattern in _OTHERS:
        if match := pattern.search(line.text):
            wanted = match.groupdict().get("bytes")
            _emit(line, context, line.text, kind=kind, requested_bytes=int(wanted) if wanted else None, valid=True)
            return True
    return False
