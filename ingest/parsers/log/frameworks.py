"""Which program wrote the log, by what only its own lines have, and the times between which an attempt printed.

Forks inherit Megatron's lines, so Megatron-LM itself is told by the absence of every other mark when its first iteration is printed. Marks are
data, the first that matches wins its line, and each framework is told once an attempt.
"""

from __future__ import annotations

import re
from datetime import datetime

from ingest.parsers.log.prefixes import moment
from ingest.parsers.log.records import Context, LogLine

MARKS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("flagscale", ("[FS]", "FlagScale", "flagscale"), r">>> \[FS\]|\bFlagScale\b|\bflagscale[/.]"),
    ("mindspeed", ("MindSpeed", "mindspeed"), r"\bMindSpeed\b|\bmindspeed(?:_\w+)?[/.]"),
    ("primus", ("[rank-", "Primus", "primus/"), r"\[rank-\d+/\d+\]\[|\bprimus/"),
    ("ms-swift", ("INFO:swift]", "global_step/max_steps", "train_speed(", "swift/megatron", "GPU memory:"),
     r"\[INFO:swift\]|'train_speed\(|swift/megatron"),
    ("verl", ("WorkerDict pid=", "verl/", "perf/max_memory_allocated_gb", "memory allocated (GB)"),
     r"WorkerDict pid=|\bverl/|perf/max_memory_allocated_gb"),
    ("slime", ("MegatronTrainRayActor", "Memory-Usage ", "slime/"), r"MegatronTrainRayActor|Memory-Usage [\w ]+:? ?\{|\bslime/"),
    ("megatron-bridge", ("megatron.bridge", "megatron/bridge", "mem-allocated-gigabytes"), r"\bmegatron[./]bridge\b|mem-allocated-gigabytes"),
    ("nemo", ("[NeMo ", "nemo/", "Training epoch "), r"\[NeMo [IWED] |\bnemo/(?:lightning|collections)|Training epoch \d+, iteration"),
    ("megatron-deepspeed", ("Megatron-DeepSpeed", "deepspeed_config ..", "see_memory_usage", "DeepSpeed info", "tgs)", "consumed tokens:"),
     r"Megatron-DeepSpeed|deepspeed_config \.\.|:see_memory_usage\]|DeepSpeed info|tokens per gpu per second"),
)
_PATTERNS = tuple((name, literals, re.compile(pattern)) for name, literals, pattern in MARKS)
_GENERIC = "megatron-lm"
_ITERATION = re.compile(r"(?:\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\]\s*)?\biteration\s+\d+\s*/\s*\d+\s*\|")
_DATETIME = re.compile(r"\] datetime: (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)")


class Frameworks:
    """Rows of `runs` with the framework, and with the first and last time printed."""

    literals = (*(one for _, literals, _ in MARKS for one in literals), "iteration", "datetime:")

    def take(self, line: LogLine, context: Context) -> bool:
        """Tell what the line is the first to prove."""
        text = line.text if "launcher" not in line.prefix else f"{_prefix(line)}{line.text}"
        for name, literals, pattern in _PATTERNS:
            if any(one in text for one in literals) and pattern.search(text):
                _tell(line, context, name)
                break
        _time(line, context)
        if "iteration" in line.text and "framework" not in context.facts and _ITERATION.search(line.text) and _is_megatron(context):
            _tell(line, context, _GENERIC)
        return False

    def settled(self, context: Context, timed: bool) -> bool:
        """Whether memory and iteration lines (`timed`: with a time) tell nothing more in this attempt: then the fast path reads them alone."""
        return ("framework" in context.facts or not _is_megatron(context)) and ("started" in context.facts or not timed)


def _prefix(line: LogLine) -> str:
    """What of the taken prefix is a mark."""
    known = {"primus": "[rank-0/0][", "nemo": "[NeMo I ", "mindspeed": "MindSpeed "}.get(line.prefix["launcher"], "")
    actor, logger = line.prefix.get("actor"), line.prefix.get("logger")
    return known + (f"({actor} pid=" if actor else "") + (f"[INFO:{logger}]" if logger else "")


def _is_megatron(context: Context) -> bool:
    return bool(context.facts.get("world_seen") or context.facts.get("dump_seen"))


def _tell(line: LogLine, context: Context, name: str) -> None:
    known = context.facts.setdefault("framework", [])
    if name not in known and (not known or known == [_GENERIC]):
        known.append(name)
        context.emit("runs", line, rank=None, framework=name)


def _time(line: LogLine, context: Context) -> None:
    """The first time of the attempt, and each that Megatron announces; iterations carry their own."""
    announced = _DATETIME.search(line.text)
    at = moment(announced[1]) if announced else line.at or _printed(line)
    if at and "started" not in context.facts:
        context.facts["started"] = True
        context.emit("runs", line, rank=None, started_at=at, ended_at=at if announced else None)
    elif at and announced:
        context.emit("runs", line, rank=None, ended_at=at)


def _printed(line: LogLine) -> datetime | None:
    match = _ITERATION.search(line.text)
    return moment(match["at"]) if match and match["at"] else None
