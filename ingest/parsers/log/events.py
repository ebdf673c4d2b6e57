"""What happened to the job: checkpoints, printed moments, snapshots, CUDA graphs, failed ranks, kills by the host.

torchelastic prints its summary with the root cause LAST: the section named so, not the first entry, is the first failure.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from ingest.parsers.log.records import Context, Fed, LogLine

_T = r"\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d(?:\.\d+)?"
_EVENTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple((name, re.compile(pattern)) for name, pattern in (
    ("checkpoint_save_started", r"saving checkpoint at iteration\s+(?P<iteration>\d+) to (?P<detail>\S+)(?: in (?P<format>\w+) format)?"),
    ("checkpoint_saved", r"successfully saved checkpoint (?:from|at) iteration\s+(?P<iteration>\d+) to (?P<detail>\S+)"),
    ("checkpoint_loaded", r"successfully loaded checkpoint from (?P<detail>\S+).*? at iteration (?P<iteration>\d+)"),
    ("checkpoint_load_started", r"loading (?:distributed |release )?checkpoint from (?P<detail>\S+)(?: at iteration (?P<iteration>\d+))?"),
    ("snapshot_written", r"\[OOM\] rank (?P<rank>\d+) saved memory snapshot to (?P<detail>\S+)"),
    ("snapshot_written", r"(?P<detail>saving allocated state during OOM)"),
    ("snapshot_enabled", r"Memory history recording enabled(?: \(rank (?P<rank>\d+)\))?; snapshots will be written to '?(?P<detail>[^'\s]+)"),
    ("evaluation", r"(?P<detail>[Ee]valuating (?:on \d+ samples|iter \d+/\d+))"),
    ("datetime", rf"\[(?P<detail>[^\[\]]+)\] datetime: (?P<at>{_T})"),
    ("cuda_graph_built", r"(?P<detail>built \d+ cuda graph\(s\) in [\d.]+ sec.*)"),
    ("host_killed", r"slurmstepd: error: Detected (?P<events>\d+) oom[_-]kill event.*?in (?:StepId=|step )(?P<detail>\w+(?:\.\w+)*)"),
    ("host_killed", r"srun: error: (?P<host>[\w.-]+): tasks? (?P<task>[\d,-]+): (?P<detail>Out Of Memory)"),
    ("host_killed", r"(?P<detail>(?:Out of memory|[Mm]emory cgroup out of memory): Kill(?:ed)? process (?P<pid>\d+).*|oom-kill:.*)"),
    ("host_killed", r"(?P<detail>\bOOMKilled\b.*|DataLoader worker \(pid\(?s?\)? ?(?P<worker>\d+)\S* (?:is killed|exited)[^:]*: ?Killed.*)"),
    ("host_killed", r"(?P<detail>ray\.exceptions\.OutOfMemoryError: .*|Workers? \(tasks / actors\) killed due to memory pressure.*)"),
    ("rank_killed", r"Signal 9 \(SIGKILL\) received by PID (?P<pid>\d+)|(?P<detail>Fatal Python error: Killed)"),
    ("worker_failed", r"failed \(exitcode: (?P<exitcode>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)(?P<detail>.*)"),
    ("cann_error", r"(?P<detail>\bE[A-Z]\d{4}: (?:\[PID: (?P<pid>\d+)\] )?.*)"),
    ("cann_error", r"\[ERROR\] (?P<moment>\S+) \(PID:(?P<pid>\d+), Device:(?P<device>-?\d+), RankID:(?P<rank>-?\d+)\) (?P<detail>ERR\d+.*)"),
    ("dist_backend_error", r"(?P<detail>DistBackendError: NCCL error.*)"),
))
_OTHER = ("format", "events", "pid", "device", "moment", "task", "exitcode", "worker")
_ENTRY = re.compile(r"^\s*\[(\d+)\]:\s*$")
_KEY = re.compile(r"^\s*(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)$")


class JobEvents:
    """Rows of `job_events` from single lines; opens torchelastic's summary."""

    literals = ("checkpoint", "snapshot", "during OOM", "valuating", "datetime:", "cuda graph", "oom_kill", "oom-kill", "Out Of Memory",
                "illed process", "OOMKilled", "DataLoader worker", "OutOfMemoryError", "memory pressure", "SIGKILL", "failed (exitcode",
                "ERR0", "EL0004", "EE1001", "EL0", "EZ9", "Failures:", "Root Cause", "DistBackendError")

    def take(self, line: LogLine, context: Context) -> bool:
        """True where something happened."""
        if re.match(r"^\s*(?:Failures:|Root Cause \(first observed failure\):)", line.text):
            context.open(Failures(root="Root" in line.text))
            return True
        for event, pattern in _EVENTS:
            if match := pattern.search(line.text):
                _emit(line, context, event, match.groupdict())
                return True
        return False


def _emit(line: LogLine, context: Context, event: str, found: dict[str, str | None]) -> None:
    columns: dict[str, Any] = {"iteration": int(found["iteration"] or 0) if found.get("iteration") else context.iteration,
                               "host": found.get("host") or line.host,
                               "at": _moment(found.get("at")) or line.at, "detail": (found.get("detail") or "").strip()[:2000] or None}
    if (rank := found.get("rank")) and int(rank) >= 0:
        columns["rank"] = int(rank)
    if local := found.get("local"):
        columns.update(rank=None, rank_label=f"local {local}")
    if task := found.get("task"):
        columns.update(rank=None, rank_label=f"task {task}")
    other = {key: value for key, value in found.items() if value and key in _OTHER}
    context.emit("job_events", line, event=event, other=other or None, **columns)


class Failures:
    """torchelastic's summary: entries of `key : value` lines, the root cause in its own section."""

    def __init__(self, *, root: bool) -> None:
        self.root = root
        self.entry: dict[str, str] = {}
        self.line: LogLine | None = None
        self.strange = 0

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Entries until the closing rule of the root cause, or lines that are none."""
        if match := _KEY.match(line.text):
            self.line = self.line or line
            self.entry[match["key"]] = match["value"].strip()
            self.strange = 0
            return Fed.TAKEN
        if _ENTRY.match(line.text):
            self._emit(context)
            return Fed.TAKEN
        if "Root Cause" in line.text:
            self._emit(context)
            self.root = True
            return Fed.TAKEN
        if re.match(r"^\s*[-=]{20,}", line.text) and not (self.root and self.entry):
            return Fed.TAKEN
        self.strange += 1
        if self.strange > 20 or re.match(r"^\s*[-=]{20,}", line.text):
            self.finish(context)
            return Fed.CLOSED_BEFORE
        return Fed.FOREIGN

    def finish(self, context: Context) -> None:
        """The last entry."""
        self._emit(context)

    def _emit(self, context: Context) -> None:
        rank = re.match(r"(\d+)(?: \(local_rank: (\d+)\))?", self.entry.get("rank", ""))
        if rank and self.line:
            code = re.match(r"(-?\d+)(?: \(pid: (\d+)\))?", self.entry.get("exitcode", ""))
            other = {"local_rank": rank[2], "exitcode": code and code[1], "pid": code and code[2], "error_file": self.entry.get("error_file")}
            context.emit("job_events", self.line, rank=int(rank[1]), iteration=context.iteration, event="rank_failed", host=self.entry.get("host"),
                         at=_moment(self.entry.get("time")), first_failure=self.root, detail=self.entry.get("traceback"),
                         other={key: value for key, value in other.items() if value})
        self.entry, self.line = {}, None


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text.replace("_", " ")) if text else None
    except ValueError:
        return None
