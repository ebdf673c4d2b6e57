"""Out-of-memory errors of every wording: PyTorch old and new, HIP, NPU, driver, NCCL, cuBLAS, memory saver, host.

Each figure is searched by the words around it, so that a release that adds or drops a sentence, and a message cut short, still give
what they say. A figure that no device can have (an overflow prints 17179869184.00 GiB) becomes null and the row is marked.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ingest.parsers.log import actors
from ingest.parsers.log.quantities import LARGEST_BYTES, size
from ingest.parsers.log.records import Context, LogLine
from ingest.parsers.log.wrapped import Wrapped

_S = r"(?<![\d.])(\d+(?:\.\d+)?) ?(bytes|B|[KMGT]i?B)\b"
_ALLOCATOR = re.compile(r"(?:CUDA|HIP|NPU|XPU|MUSA|MLU) out of memory\. Tried to allocate")
_FIGURES = {
    "requested_bytes": (rf"Tried to allocate {_S}",), "capacity_bytes": (rf"total capac[i]?ty of {_S}", rf"{_S} total capacity"),
    "free_bytes": (rf"of which {_S} is free", rf"; {_S} free"), "process_bytes": (rf"this process has {_S}",),
    "allocated_bytes": (rf"Of the allocated memory {_S} is allocated by PyTorch", rf"{_S} already allocated"),
    "private_pool_bytes": (rf"{_S} allocated in private pools", rf"{_S} (?:is )?allocated in private pools"),
    "reserved_unallocated_bytes": (rf"{_S} is reserved by PyTorch but unallocated", rf"; {_S} cached"),
    "reserved_bytes": (rf"{_S} reserved in total by PyTorch",), "allowed_bytes": (rf"{_S} allowed",),
}
_PATTERNS = {name: tuple(re.compile(one) for one in many) for name, many in _FIGURES.items()}
_ENDS = re.compile(r"reserved by PyTorch but unallocated|reserved in total by PyTorch|\b(?:cached|free)\)")
_SAVER_SIZE = re.compile(r"\bsize[=: ]+(\d+)\b")
_GLUED_RANK = re.compile(r"\[rank(\d{1,7})\]:[^\[]*$")
_DEVICE = re.compile(r"(?:GPU|NPU|HIP device|XPU|MLU|device) (\d+)\b")
_PROCESS = re.compile(rf"Process (\d+) has {_S}")
_ACTIVE = re.compile(rf"{_S} current active")
_HINT = re.compile(r"try setting (\S+?)(?: to avoid|\.\s|\s|$)")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/torch/|<frozen|/lib/python\d")
FRAME_LINES, MOST_TRACEBACKS = 400, 512
"""A frame belongs to an error at most so many lines after it; of so many ranks' tracebacks the last frame is remembered."""
_NCCL = re.compile(
    r"(?P<host>[\w.-]{1,64}):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>\d+)\] "
    r"(?:(?P<site>[\w./-]+:\d+) (?:\((?P<function>\w+)\) )?)?NCCL WARN "
    r"(?P<what>.*(?:out of memory|[Ff]ailed to (?:(?:Cuda|CUDA|HIP|hip) )?(?:host )?(?:\w*[aA]lloc|[cm]alloc)).*)")
_NCCL_LAST = re.compile(r"(?:^\s*|Last error:\s*)(?P<what>Cuda failure (?:2 )?'out of memory'|Failed to (?:CUDA|Cuda) (?:host )?[cm]?alloc.*)")
_WANTED = re.compile(r"(?:[aA]lloc(?:ate)?(?: async)? |size )(\d+)(?: bytes)?")
_OTHERS = (
    ("driver", re.compile(r"(?:AcceleratorError|RuntimeError|torch\.\w+): (?:CUDA|HIP|NPU|MUSA) (?:driver )?error: (?:out of memory|OOM)")),
    ("driver", re.compile(r"Error: (?:cudaErrorMemoryAllocation|hipErrorOutOfMemory)|(?:cudaErrorMemoryAllocation|hipErrorOutOfMemory)\b.*out of")),
    ("cublas", re.compile(r"(?:CUBLAS|HIPBLAS|ROCBLAS)_STATUS_ALLOC_FAILED|rocblas_status_memory_error")),
    ("cudnn", re.compile(r"CUDNN_STATUS_ALLOC_FAILED")),
    ("npu", re.compile(r"(?P<alloc>rt\w{0,20}Malloc\w{0,20} failed)[.,;:]? ?size ?[:=] ?(?P<bytes>\d+)")),
    ("saver", re.compile(r"(?:torch_memory_saver|\[TMS\]|memory.saver).{0,300}?(?:out of memory|OOM)|"
                         r"CUresult error[ :]+(?:result=)?2\b", re.IGNORECASE)),
    ("host", re.compile(r"DefaultCPUAllocator: (?:can't|not enough memory: you tried to) allocate(?: memory)?:?"
                        r"(?: you tried to allocate)? ?(?P<bytes>\d+) bytes")),
    ("host", re.compile(r"^\s*(?:numpy\S*MemoryError|MemoryError\b|OSError: \[Errno 12\] Cannot allocate memory)")),
    ("cuda", re.compile(r"torch\.(?:cuda\.)?OutOfMemoryError: (?!CUDA|HIP|NPU)\S.*")),
)


class OutOfMemory:
    """Rows of `oom_events`; tracebacks are followed for the innermost frame of the user's code."""

    literals = ("out of memory", "ALLOC_FAILED", "alloc failed", 'File "', "memory_error", "MemoryAllocation", "ErrorOutOfMemory",
                "OutOfMemoryError", "DefaultCPUAllocator", "NCCL WARN", "Failed to ", "memory_saver", "[TMS]", "OOM", "Traceback", "CUresult error",
                "MemoryError", "Errno 12]")

    def take(self, line: LogLine, context: Context) -> bool:
        """Emit the errors of the line; remember frames."""
        if match := _FRAME.match(line.text):
            if not _LIBRARY.search(match["file"]):
                _remember(line, context, f"{match['file'].rsplit('/', 1)[-1]}:{match['line']}")
            return False
        if "Traceback (most recent call last)" in line.text:
            context.facts.get("frames", {}).pop(_who(line), None)
        heads = list(_ALLOCATOR.finditer(line.text))
        for at, head in enumerate(heads):
            last = at + 1 == len(heads)
            text = line.text[head.start():len(line.text) if last else heads[at + 1].start()]
            if at and (named := _GLUED_RANK.search(line.text, heads[at - 1].end(), head.start())):
                line = replace(line, rank=int(named[1]))
            if last and not _ENDS.search(text):
                context.open(Wrapped(line, text, _whole, _allocator, _allocator, closes=False))
            else:
                _allocator(line, context, text)
        return bool(heads) or _nccl(line, context) or _other(line, context)


def _who(line: LogLine) -> str:
    return f"{line.rank}/{line.rank_label}/{line.host}/{line.prefix.get('pid')}"


def _remember(line: LogLine, context: Context, frame: str) -> None:
    frames = context.facts.setdefault("frames", {})
    frames.pop(_who(line), None)
    while len(frames) >= MOST_TRACEBACKS:
        frames.pop(next(iter(frames)))
    frames[_who(line)] = [frame, line.number]


def _frame(line: LogLine, context: Context) -> str | None:
    frame, number = context.facts.get("frames", {}).pop(_who(line), (None, 0))
    return str(frame) if frame and line.number - number <= FRAME_LINES else None


def _emit(line: LogLine, context: Context, text: str, **columns: Any) -> None:
    actors.learn(line, context, line.rank)
    rank = actors.rank_of(line, context)
    who = {} if rank is None else {"rank": rank}
    context.emit("oom_events", line, iteration=context.iteration, frame=_frame(line, context), text=text.strip()[:2000], at=line.at, **who, **columns)


def _whole(text: str) -> int:
    """How many figures a message shows that a wrap tore, where it reaches its end."""
    return sum(any(one.search(text) for one in patterns) for patterns in _PATTERNS.values()) if _ENDS.search(text) else 0


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
        return _nccl_told(line, context)
    context.facts["nccl_out"] = line.number
    wanted = _WANTED.search(match["what"])
    other = {name: match[name] for name in ("host", "pid", "tid", "site", "function") if match[name]}
    if re.search(r"(?i)host alloc|failed to malloc|failed to calloc", match["what"]):
        other["space"] = "host"
    _emit(line, context, match["what"], kind="nccl", device=int(match["device"]), requested_bytes=int(wanted[1]) if wanted else None,
          valid=True, other=other)
    return True


def _nccl_told(line: LogLine, context: Context) -> bool:
    """NCCL's last error as a traceback quotes it: an event of its own only where NCCL did not warn of it just before."""
    match = _NCCL_LAST.search(line.text)
    if not match or line.number - context.facts.get("nccl_out", -FRAME_LINES) < FRAME_LINES:
        return bool(match)
    wanted = _WANTED.search(match["what"])
    _emit(line, context, match["what"], kind="nccl", requested_bytes=int(wanted[1]) if wanted else None, valid=True)
    return True


def _other(line: LogLine, context: Context) -> bool:
    for kind, pattern in _OTHERS:
        if match := pattern.search(line.text):
            wanted = match.groupdict().get("bytes") or (kind == "saver" and (asked := _SAVER_SIZE.search(line.text)) and asked[1])
            _emit(line, context, line.text, kind=kind, requested_bytes=int(wanted) if wanted else None, valid=True)
            return True
    return False
