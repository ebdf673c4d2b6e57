"""Iteration lines of every Megatron release and fork: generic `key: value |` segments.

Releases and forks add, drop and reorder fields, so none is expected at a place: known names become columns, losses go to `losses`
by their printed names, all else to `other`. Elapsed time comes in s or ms; Primus prints `now/average` and the last rank's device memory.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from ingest.parsers.base import Row
from ingest.parsers.log import actors
from ingest.parsers.log.quantities import GIB, LARGEST_COLUMN, NUMBER, believable, number, size
from ingest.parsers.log.records import Context, LogLine
from ingest.parsers.log.wrapped import Wrapped

_HEAD = re.compile(
    r"(?:\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\]\s*)?"
    r"(?<![\w-])iteration\s+(?P<n>\d+)\s*/\s*(?P<of>\d+)\s*\|")
_UNNUMBERED = re.compile(
    r"(?<![\w-])iteration:?\s+[^\s/|]{1,40}\s*/\s*[^\s/|]{1,40}\s*\|[^\n]{0,400}?(?:consumed samples|elapsed time per iteration)")
"""A line whose numbers are none (`-5/`, `1e30/`, stars of a field that was too narrow), or whose head is another's (`iteration: 5/`)."""
_STOP = re.compile(
    r"\[Rank \S+\]|Theoretical memory footprints|(?:Total n|N)umber of parameters in |compute_activation_memory|\[default\d+\]:|NCCL INFO")
_GROUPED = r"-?\d{1,3}(?:(?:,\d{3})+\.\d+|(?:,\d{3}){2,})"
"""Thousands where nothing else can be meant; one comma alone may be a decimal one."""
_PAIR = re.compile(
    rf"(?P<name>[A-Za-z](?:[\w.()/%-]| (?! )){{0,80}}?)\s*[:=]\s*(?P<value>{_GROUPED}|{NUMBER}|nan|-?inf)"
    rf"(?:/(?P<average>{NUMBER})|\s*\(avg (?P<avg>{NUMBER})\))?(?![\w.]|,\d)",
    re.IGNORECASE)
_SEGMENT = re.compile(rf"\s*{_PAIR.pattern}\s*$", re.IGNORECASE)
_COUNT = re.compile(r"\s*(?P<name>consumed[ _]samples|global[ _]batch[ _]size)\s*:\s*(?P<value>\d{1,3},\d{3})\s*$")
"""One comma in a number that has no decimals."""
_COMMA = re.compile(r"[:=]\s*-?\d+,\d")
_DEVICE = re.compile(rf"(?:rank[-_ ](?P<first>\d+) +)?(?P<kind>hip|rocm) (?P<max>max )?mem usage/free/total/usage_ratio(?P<who>[^:|]*):"
                     rf"\s*(?P<label>[^\d|-]*(?:rank[-_ ]?\d+\D*)?)"
                     rf"(?P<used>{NUMBER})GB/(?P<free>{NUMBER})GB/(?P<total>{NUMBER})GB/(?P<ratio>{NUMBER})%", re.IGNORECASE)
_WORST = re.compile(rf"rank-(?P<rank>\d+) (?P<kind>rocm|hip) max mem usage/usage_ratio:\s*(?P<used>{NUMBER})GB/(?P<ratio>{NUMBER})%", re.IGNORECASE)
_ENDS = re.compile(r"(?:\|[^|]*(?:nan iterations|TFLOPs)[^|]*\||\})\s*$")
"""How a line that lacks nothing ends; any other may go on in the next one, which a wrap made."""
_KNOWN = {"lm loss", "num zeros", "params norm", "number of nan iterations", "number of skipped iterations", "consumed tokens", "z_loss",
          "skipped samples", "decoupled learning rate", "samples per second", "mtp_1 loss", "load_balancing_loss"}
_GIGABYTES = re.compile(r"\((?:GB|GiB)\)$")
_LOSS = re.compile(r"-?\d\.\d{6}E[+-]\d+$")
_INTEGERS = {"consumed samples": "consumed_samples", "global batch size": "global_batch_size",
             "number of skipped iterations": "skipped", "number of nan iterations": "nan", "consumed_samples": "consumed_samples",
             "global_batch_size": "global_batch_size"}
_FLOATS = {"learning rate": "learning_rate", "lr": "learning_rate", "loss scale": "loss_scale", "grad norm": "grad_norm", "grad_norm": "grad_norm",
           "elapsed time per iteration (ms)": "elapsed_ms",
           "throughput per GPU (TFLOP/s/GPU)": "tflops_per_gpu", "compute per GPU (TFLOP/s/GPU)": "tflops_per_gpu", "TFLOPs": "tflops_per_gpu"}
_SWIFT = re.compile(r"\{[^{}]*'iteration': '(\d+)/(\d+)'[^{}]*\}|\{[^{}]*'global_step/max_steps': '(\d+)/(\d+)'[^{}]*\}")
_ITEM = re.compile(r"'([^']+)':\s*(?:'([^']*)'|([^,'}]+))")
_VALIDATION = re.compile(r"validation(?P<set>[\w -]*) loss at (?P<at>[^|]*)\|(?P<rest>.*)")
_VALUE = re.compile(rf"(?P<name>[A-Za-z][^|:]{{0,80}}?) (?P<what>value|PPL):\s*(?P<value>{NUMBER})(?![\w.]|,\d)")


class IterationLines:
    """One row a printed training or validation line."""

    literals = ("iteration", "validation", "global_step/max_steps")

    def take(self, line: LogLine, context: Context) -> bool:
        """Iteration lines, ms-swift's dictionaries, validation lines."""
        heads = list(_HEAD.finditer(line.text))
        for at, head in enumerate(heads):
            end = heads[at + 1].start() if at + 1 < len(heads) else len(line.text)
            stop = _STOP.search(line.text, head.end(), end)
            body = line.text[head.end():stop.start() if stop else end]
            if not stop and end == len(line.text) and not _ENDS.search(body):
                context.iteration, context.phase = int(head["n"]), "train"
                context.open(Wrapped(line, line.text[head.start():], _whole, _joined, _alone, closes=False))
            else:
                _emit(line, context, head, body)
        if heads:
            return True
        if "{" in line.text and (match := _SWIFT.search(line.text)):
            _swift(line, context, match)
            return True
        if match := _VALIDATION.search(line.text):
            return _validation(line, context, match)
        if match := _UNNUMBERED.search(line.text):
            context.reject(line, line.text[match.start():], "an iteration line whose iteration is no whole number")
        return bool(match)


def _whole(text: str) -> int:
    """How many segments a line that a wrap tore shows, where it ends as Megatron's do: with a bar, and all of them read."""
    head = _HEAD.search(text)
    if not head or not text.rstrip().endswith("|"):
        return 0
    segments = text[head.end():].rstrip().removesuffix("|").split("|")
    names = [match["name"].strip() if (match := _SEGMENT.match(one)) else None for one in segments]
    if any(name is None and not _DEVICE.search(one) for name, one in zip(names, segments, strict=True)):
        return 0
    return 2 * len(names) + sum(name in _KNOWN or name in _INTEGERS or name in _FLOATS for name in names)


def _joined(line: LogLine, context: Context, text: str) -> None:
    if head := _HEAD.search(text):
        _emit(line, context, head, text[head.end():], None if text in line.text else {"wrapped": "true"})


def _alone(line: LogLine, context: Context, text: str) -> None:
    if head := _HEAD.search(text):
        _emit(line, context, head, text[head.end():])


def _emit(line: LogLine, context: Context, head: re.Match[str], body: str, more: dict[str, str] | None = None) -> None:
    """One line; what stands after its last bar is kept as a measure only where its digits show that it is not cut."""
    row: Row = {"iteration": int(head["n"]), "train_iterations": int(head["of"]), "phase": "train", "timestamp": _moment(head["at"]) or line.at}
    losses: dict[str, float] = {}
    other: dict[str, str] = dict(more or {})
    context.iteration, context.phase = row["iteration"], "train"
    row["rank"] = actors.rank_of(line, context)
    if row["rank"] is None:
        row["rank"] = context.file_rank
    for device in _DEVICE.finditer(body):
        _device(line, context, row, device, other)
    for device in _WORST.finditer(body):
        _worst(line, context, row, device, other)
    segments = _WORST.sub("", _DEVICE.sub("", body)).split("|")
    if _COMMA.search(body) and any(_COMMA.search(_PAIR.sub("", segment)) and not _COUNT.match(segment) for segment in segments):
        context.reject(line, head.group() + body, "an iteration line with commas in numbers that may mean two things")
    _last(segments.pop().strip(), row, losses, other)
    for segment in segments:
        _segment(segment, row, losses, other)
    _peaks(line, context, row, other)
    context.emit("iterations", line, **row, losses=losses or None, other=other or None)


def _segment(segment: str, row: Row, losses: dict[str, float], other: dict[str, str]) -> None:
    found = False
    for pair in _PAIR.finditer(segment):
        found = True
        _field(pair["name"].strip(), pair["value"], row, losses, other)
        if average := pair["average"] or pair["avg"]:
            other[f"{pair['name'].strip()} average"] = average
    if not found and (count := _COUNT.match(segment)):
        _field(count["name"], count["value"], row, losses, other)
    elif not found and segment.strip():
        other.setdefault("unread", segment.strip())


def _last(segment: str, row: Row, losses: dict[str, float], other: dict[str, str]) -> None:
    """The segment that no bar closes: a loss with all its digits is whole, other figures may be cut and measure nothing."""
    match = _SEGMENT.match(segment)
    if match and _LOSS.match(match["value"]):
        _field(match["name"].strip(), match["value"], row, losses, other)
    elif match:
        other[f"{match['name'].strip()} (unterminated)"] = match["value"]
    elif segment:
        other["unterminated"] = segment


def _field(name: str, text: str, row: Row, losses: dict[str, float], other: dict[str, str]) -> None:
    value = number(text)
    if name in ("elapsed time per iteration (s)", "train_step_timing in s") and value is not None:
        row["elapsed_ms"] = float(value * 1000)
    elif name in _INTEGERS and value is not None and abs(value) <= LARGEST_COLUMN:
        row[_INTEGERS[name]] = int(value)
    elif name in _FLOATS and value is not None:
        row[_FLOATS[name]] = value
    elif value is not None and "learning rate" not in name and ("loss" in name.lower() or _LOSS.match(text)):
        losses[name] = value
    elif _GIGABYTES.search(name) and value is not None:
        other[f"{_GIGABYTES.sub('', name)}_bytes"] = str(size(text, GIB))
    else:
        other[name] = text
        if name == "mem_usages" and value is not None and value < 0:
            other["mem_usages_valid"] = "false"


def _device(line: LogLine, context: Context, row: Row, match: re.Match[str], other: dict[str, str]) -> None:
    """Primus: the whole device of the printing rank, or of the rank that the field names."""
    kind = match["kind"].lower()
    named = match["first"] or next(iter(re.findall(r"(?i)rank[-_ ]?(\d+)", match["label"] + match["who"])), None)
    sizes = {name: size(match[name], GIB) for name in ("used", "free", "total")}
    prefix = "max_rank" if match["max"] else kind
    other.update({f"{prefix}_{name}_bytes": str(value) for name, value in sizes.items()})
    other[f"{prefix}_usage_percent"] = match["ratio"]
    if named and match["max"]:
        other["max_rank"] = named
    who: dict[str, Any] = {"rank": int(named)} if named else {}
    context.emit("device_memory", line, iteration=row["iteration"], used_bytes=sizes["used"], free_bytes=sizes["free"], total_bytes=sizes["total"],
                 source="iteration_line", valid=believable(*sizes.values()), host=line.host, at=row["timestamp"], **who)


def _worst(line: LogLine, context: Context, row: Row, match: re.Match[str], other: dict[str, str]) -> None:
    """Primus: the device of the rank that uses most, with no more than its figure and share."""
    used = size(match["used"], GIB)
    other["max_rank"], other["max_rank_used_bytes"] = match["rank"], str(used)
    other["max_rank_usage_percent"] = match["ratio"]
    context.emit("device_memory", line, iteration=row["iteration"], rank=int(match["rank"]), used_bytes=used, source="iteration_line",
                 valid=believable(used), at=row["timestamp"], other={"usage_ratio_percent": match["ratio"]})


def _peaks(line: LogLine, context: Context, row: Row, other: dict[str, str]) -> None:
    """MindSpeed prints the peaks of the printing rank, reset each step."""
    allocated, reserved = other.get("max_memory_allocated_bytes"), other.get("max_memory_reserved_bytes")
    if allocated or reserved:
        sizes = [int(one) if one else None for one in (allocated, reserved)]
        context.emit("rank_memory", line, iteration=row["iteration"], phase="train", source="iteration_line", scope="interval",
                     max_allocated_bytes=sizes[0], max_reserved_bytes=sizes[1], rounding_bytes=GIB // 200,
                     valid=believable(*sizes), at=row["timestamp"])


def _swift(line: LogLine, context: Context, match: re.Match[str]) -> None:
    """ms-swift's dictionary; `memory(GiB)` is the largest reserved over the model-parallel group, no single rank's."""
    items = {name: (quoted or bare).strip() for name, quoted, bare in _ITEM.findall(match.group())}
    row: Row = {"iteration": int(match[1] or match[3]), "train_iterations": int(match[2] or match[4]), "phase": "train", "timestamp": line.at}
    losses: dict[str, float] = {}
    other: dict[str, str] = {}
    context.iteration, context.phase = row["iteration"], "train"
    for name, text in items.items():
        value = number(text)
        if name in ("iteration", "global_step/max_steps"):
            continue
        if name in ("grad_norm", "learning_rate") and value is not None:
            row[name] = value
        elif name == "train_speed(s/it)" and value is not None:
            row["elapsed_ms"] = value * 1000
        elif name == "memory(GiB)" and value is not None:
            other["max_reserved_bytes"] = str(size(text, GIB))
        elif "loss" in name and value is not None:
            losses[name] = value
        else:
            other[name] = text
    context.emit("iterations", line, **row, losses=losses or None, other=other or None)


def _validation(line: LogLine, context: Context, match: re.Match[str]) -> bool:
    """An evaluation; a row of `iterations` too where no training line of that iteration stands, so that one iteration is one row."""
    values = list(_VALUE.finditer(match["rest"]))
    if _COMMA.search(match["rest"]):
        context.reject(line, match.group(), "a validation line with commas in its numbers")
    if not values:
        return False
    at = re.search(r"iteration (\d+)", match["at"])
    losses = {one["name"].strip(): float(one["value"]) for one in values if one["what"] == "value"}
    other = {f"{one['name'].strip()} PPL": one["value"] for one in values if one["what"] == "PPL"}
    other["at"] = match["at"].strip()
    iteration = int(at[1]) if at else context.iteration
    context.emit("job_events", line, iteration=iteration, event="evaluation", at=line.at, detail=match.group().strip())
    if iteration is None or iteration != context.iteration:
        context.emit("iterations", line, iteration=iteration, phase="validation", timestamp=line.at, losses=losses, other=other)
    return True


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
