"""Memory printed at a phase: verl, ms-swift, slime, DeepSpeed, torch memory saver, CUDA graphs, and people's own prints.

"GB" is binary in all of them. They tell what is allocated now, seldom the peak. Who printed is told by the launcher's prefix, by a rank in
the text, or by what a Ray actor was proven to be; DeepSpeed's `see_memory_usage` prints on global rank 0 alone.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsers.log import actors
from ingest.parsers.log.quantities import GIB, believable, rounding, size
from ingest.parsers.log.records import Context, LogLine

_N = r"(-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)(?![\d.])"
_U = r" ?([KMG]i?B)\b"
_RANK = re.compile(r"\[?\b[Rr]ank[ :=]*(\d{1,7})\b")
_VERL = re.compile(rf"(?:\[Rank \d+\] *)?(?P<phase>[A-Za-z][^|,:\[\]]{{0,80}}?),? memory allocated \(GB\): {_N}, memory reserved \(GB\): {_N}"
                   rf"(?:, device memory used/total \(GB\): {_N}/{_N})?")
_VERL_STEP = re.compile(rf"perf/(max_memory_allocated|max_memory_reserved|cpu_memory_used)_gb: ?{_N}")
_SLIME = re.compile(r"(?:\[Rank (?P<rank>\d+)\] )?Memory-Usage (?P<phase>[^:{]{1,80}?):? (?P<body>\{[^{}]*\})")
_ITEM = re.compile(r"'(\w+)': '?(-?\d+(?:\.\d+)?)'?(?=[,}])")
_SWIFT = re.compile(
    rf"(?P<phase>(?:after|before|during|at)\b[\w .-]{{0,80}}?|(?<![\w.-])[\w.-]{{1,40}}(?: [\w.-]{{1,40}}){{0,6}}?) "
    rf"GPU memory: {_N}{_U} allocated, {_N}{_U} reserved", re.IGNORECASE)
_FIELD = re.compile(
    r"(?P<name>(?:(?:max|maximum|peak|current|total|gpu|cuda|mem|memory)[ _-]){0,4}(?:allocated|reserved|cached)(?:[ _](?:memory|mem|max|peak)){0,3})"
    r"\s*[:=]\s*(?P<value>-?\d+(?:\.\d+)?)(?![\d.]) ?(?P<unit>[KMGT]i?B)\b", re.IGNORECASE)
_LABEL = re.compile(r"(?:^|\[|[:>|] )(?P<phase>[A-Za-z][\w .,/-]{0,60}?)(?:\]|:|,| -|)[\s:|-]*$")
_DEEPSPEED = re.compile(
    r"\bMA (?P<ma>\d+(?:\.\d+)?) (?P<unit>[KMG]B)\s+Max_MA (?P<max_ma>\d+(?:\.\d+)?) [KMG]B\s+"
    r"CA (?P<ca>\d+(?:\.\d+)?) [KMG]B\s+Max_CA (?P<max_ca>\d+(?:\.\d+)?) [KMG]B")
_HOST = re.compile(rf"CPU Virtual Memory:\s+used = {_N}{_U}, percent = {_N}%")
_SAVER = re.compile(
    rf"torch_memory_saver: (?P<phase>\w{{1,20}} {{1,4}}[^,]{{0,80}}, (?:before|after)): "
    rf"alloc={_N}MiB private={_N}MiB resv-alloc={_N}MiB resv={_N}MiB dev_mem={_N}MiB")
_GRAPH = re.compile(rf"built (?P<graphs>\d+) cuda graph\(s\).{{0,200}}?allocated {_N} ?([kmgt]?b), reserved {_N} ?([kmgt]?b)", re.IGNORECASE)
_CAPTURE = re.compile(rf"create cuda graphs \| mem: alloc {_N} ?([kmgt]?b)(?:ytes)?, res {_N} ?([kmgt]?b)", re.IGNORECASE)
_SLIME_COLUMNS = {"allocated_GB": "allocated_bytes", "reserved_GB": "reserved_bytes", "used_GB": "device_used_bytes",
                  "total_GB": "device_total_bytes", "max_allocated_GB": "max_allocated_bytes", "max_reserved_GB": "max_reserved_bytes"}


class PhaseLines:
    """Rows of `rank_memory` with the printed phase."""

    literals = ("memory allocated (GB)", "Memory-Usage", "GPU memory:", "llocated:", "llocated=", "llocated memory:", "torch_memory_saver:",
                "cuda graph", "see_memory_usage", "Max_MA", "CPU Virtual Memory", "perf/max_memory")

    def take(self, line: LogLine, context: Context) -> bool:
        """At most one record a line and wording."""
        if "memory (MB) |" in line.text or "memory (GB) |" in line.text:
            return False
        return any(one(line, context) for one in (_verl, _verl_step, _slime, _swift, _saver, _graph, _capture, _deepspeed, _host, _print))


def _emit(line: LogLine, context: Context, phase: str, sizes: dict[str, int], error: int, source: str = "phase_log", **more: Any) -> bool:
    named = more.pop("named", None)
    actors.learn(line, context, line.rank if named is None else named)
    rank = named if named is not None else actors.rank_of(line, context)
    who = {} if rank is None else {"rank": rank}
    columns: dict[str, Any] = {"iteration": context.iteration, "scope": "cumulative", "at": line.at, **who, **sizes, **more}
    context.emit("rank_memory", line, phase=phase.strip(), source=source, rounding_bytes=error, valid=believable(*sizes.values()), **columns)
    return True


def _named(text: str) -> int | None:
    match = _RANK.search(text)
    return int(match[1]) if match else None


def _verl(line: LogLine, context: Context) -> bool:
    if not (match := _VERL.search(line.text)):
        return False
    names = ("allocated_bytes", "reserved_bytes", "device_used_bytes", "device_total_bytes")
    texts = dict(zip(names, match.groups()[1:], strict=True))
    return _emit(line, context, match["phase"], {name: size(text, GIB) for name, text in texts.items() if text}, rounding(match[2], GIB),
                 named=_named(line.text[:match.start("phase")]))


def _verl_step(line: LogLine, context: Context) -> bool:
    """A step's metrics: the largest over the workers, which is no single rank's."""
    found = dict(_VERL_STEP.findall(line.text))
    if "max_memory_allocated" not in found:
        return False
    step = re.search(r"\bstep: ?(\d+)", line.text)
    names = {"max_memory_allocated": "max_allocated_bytes", "max_memory_reserved": "max_reserved_bytes"}
    sizes = {column: size(found[name], GIB) for name, column in names.items() if name in found}
    host = {"cpu_memory_used_bytes": str(size(found["cpu_memory_used"], GIB))} if "cpu_memory_used" in found else None
    return _emit(line, context, "step", sizes, rounding(found["max_memory_allocated"], GIB), rank=None, rank_label="largest of the ranks",
                 iteration=int(step[1]) if step else context.iteration, other=host)


def _slime(line: LogLine, context: Context) -> bool:
    if not (match := _SLIME.search(line.text)):
        return False
    items = dict(_ITEM.findall(match["body"]))
    sizes = {column: size(items[name], GIB) for name, column in _SLIME_COLUMNS.items() if name in items}
    if not sizes:
        return False
    other = {(f"{name[:-3]}_bytes" if name.endswith("_GB") else name): (str(size(text, GIB)) if name.endswith("_GB") else text)
             for name, text in items.items() if name not in _SLIME_COLUMNS}
    if "host_total_GB" in items:
        _host_of(line, context, {name: str(size(text, GIB)) for name, text in items.items() if name.startswith("host_")})
    return _emit(line, context, match["phase"], sizes, GIB // 200 + 1, other=other, named=int(match["rank"]) if match["rank"] else None)


def _host_of(line: LogLine, context: Context, sizes: dict[str, str]) -> None:
    known = {f"{name}_bytes": int(sizes.pop(f"host_{name}_GB")) for name in ("used", "total", "free") if f"host_{name}_GB" in sizes}
    context.emit("device_memory", line, rank=None, iteration=context.iteration, host=line.host, source="host", valid=True, at=line.at, **known,
                 other={f"{name[5:-3]}_bytes": value for name, value in sizes.items()} or None)


def _swift(line: LogLine, context: Context) -> bool:
    if not (match := _SWIFT.search(line.text)):
        return False
    _, allocated, unit, reserved, other_unit = match.groups()
    sizes = {"allocated_bytes": size(allocated, unit), "reserved_bytes": size(reserved, other_unit)}
    return _emit(line, context, match["phase"], sizes, rounding(allocated, unit), named=_named(line.text[:match.start("phase")]))


def _print(line: LogLine, context: Context) -> bool:
    """`[label] Allocated: 38011.26 MB, Reserved: 38800.00 MB` in any order and wording: two figures with units at least."""
    found = list(_FIELD.finditer(line.text))
    sizes: dict[str, int] = {}
    for field in found:
        name = field["name"].lower()
        kind = "allocated" if "allocated" in name else "reserved"
        sizes[f"{'max_' if 'max' in name or 'peak' in name else ''}{kind}_bytes"] = size(field["value"], field["unit"])
    if len(sizes) < 2 or not {"allocated_bytes", "max_allocated_bytes"} & sizes.keys():
        return False
    before = line.text[:found[0].start()]
    label = _LABEL.search(_RANK.sub("", before[-200:]).replace("[]", "").rstrip())
    return _emit(line, context, label["phase"].strip(" :,-") if label else "print", sizes,
                 max(rounding(field["value"], field["unit"]) for field in found), named=_named(before))


def _deepspeed(line: LogLine, context: Context) -> bool:
    """Two lines: what is measured, then the figures, whose peaks are reset at each call."""
    if match := _DEEPSPEED.search(line.text):
        names = {"ma": "allocated_bytes", "max_ma": "max_allocated_bytes", "ca": "reserved_bytes", "max_ca": "max_reserved_bytes"}
        sizes = {column: size(match[name], match["unit"]) for name, column in names.items()}
        phase, number = context.facts.pop("see_memory", None) or ["see_memory_usage", line.number]
        known = phase if line.number - number <= 5 else "see_memory_usage"
        rank = actors.rank_of(line, context)
        error = max(rounding(match[name], match["unit"]) for name in names)
        return _emit(line, context, known, sizes, error, scope="interval", named=0 if rank is None else rank)
    if ":see_memory_usage]" in line.text and "CPU Virtual" not in line.text:
        context.facts["see_memory"] = [line.text.split(":see_memory_usage]", 1)[1].strip()[:80], line.number]
    return False


def _host(line: LogLine, context: Context) -> bool:
    if not (match := _HOST.search(line.text)):
        return False
    context.emit("device_memory", line, rank=None, iteration=context.iteration, host=line.host, source="host", used_bytes=size(match[1], match[2]),
                 valid=True, at=line.at, other={"used_percent": match[3]})
    return True


def _saver(line: LogLine, context: Context) -> bool:
    if not (match := _SAVER.search(line.text)):
        return False
    phase, allocated, private, gap, reserved, device = match.groups()
    sizes = {"allocated_bytes": size(allocated, "MiB"), "reserved_bytes": size(reserved, "MiB"), "device_used_bytes": size(device, "MiB")}
    other = {"private_bytes": str(size(private, "MiB")), "reserved_minus_allocated_bytes": str(size(gap, "MiB"))}
    return _emit(line, context, " ".join(phase.split()), sizes, 2**19, "memory_saver", other=other)


def _graph(line: LogLine, context: Context) -> bool:
    """Sizes of what the graphs added, human 1024-based: kept as a measurement of its own source."""
    if not (match := _GRAPH.search(line.text)):
        return False
    graphs, allocated, unit, reserved, other_unit = match.groups()
    sizes = {"allocated_bytes": size(allocated, unit), "reserved_bytes": size(reserved, other_unit)}
    return _emit(line, context, "cuda_graph_built", sizes, rounding(allocated, unit), "cuda_graph", other={"graphs": graphs})


def _capture(line: LogLine, context: Context) -> bool:
    """The progress bar of the capture, redrawn for each graph."""
    if not (match := _CAPTURE.search(line.text)):
        return False
    sizes = {"allocated_bytes": size(match[1], match[2]), "reserved_bytes": size(match[3], match[4])}
    return _emit(line, context, "cuda_graph_capture", sizes, rounding(match[1], match[2]), "cuda_graph")
