"""Out-of-memory errors of one attempt: the numbers of each message, those it lacks, the case (`analysis.oom.case`), and which came first.

The message's totals are joined with the rank's own history before it died (`analysis/sql/asked/before_oom.sql`). A tip that the message
prints is repeated only where it is not in force already and could have turned this case; else it is named with the reason. Kills by the
host that the job's events tell, without any message of an allocator, are case F too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.database import asked_text, records
from analysis.oom.case import Before, Verdict, judge
from analysis.oom.snapshot import Snapshots, Told
from analysis.rows import Oom, RunSnapshot, Source, Tip

if TYPE_CHECKING:
    import duckdb

NUMBERS = ("requested_bytes", "capacity_bytes", "free_bytes", "process_bytes", "allocated_bytes", "private_pool_bytes", "reserved_unallocated_bytes",
           "reserved_bytes", "allowed_bytes")
_NEEDED = ("requested_bytes", "capacity_bytes", "free_bytes", "allocated_bytes")
_QUERY = """
SELECT event.*, COALESCE(artifacts.path, event.artifact) AS path, layout.pp
FROM oom_events AS event
LEFT JOIN artifacts ON artifacts.artifact = event.artifact
LEFT JOIN rank_layout AS layout ON layout.run = event.run AND layout.run_index = event.run_index AND layout.rank = event.rank
WHERE event.run = ? AND event.run_index = ?
ORDER BY event.at NULLS LAST, event.artifact, event.line
"""
_KILLS = """
SELECT event.*, COALESCE(artifacts.path, event.artifact) AS path
FROM job_events AS event
LEFT JOIN artifacts ON artifacts.artifact = event.artifact
WHERE event.run = ? AND event.run_index = ? AND event.event = 'host_killed'
ORDER BY event.at NULLS LAST, event.artifact, event.line
"""
_FIRST = "SELECT rank FROM job_events WHERE run = ? AND run_index = ? AND first_failure AND rank IS NOT NULL"
_SETTINGS = """
SELECT name, value FROM run_args WHERE run = $1 AND run_index = $2 AND UPPER(name) IN ('PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF')
UNION ALL
SELECT name, value FROM environment
WHERE run = $1 AND run_index = $2 AND name IN ('PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF', 'PYTORCH_HIP_ALLOC_CONF', 'PYTORCH_NPU_ALLOC_CONF')
"""
_TURNED_BY_SETTINGS = ("B", "B1", "E")
_OF_TORCH = ("cuda", "hip", "npu", None)


def oom_table(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, snapshots: Sequence[RunSnapshot] = ()) -> tuple[Oom, ...]:
    """One row a message, in the order of time or of the artifact, then the host's kills. `snapshots` of the run tell the cache apart."""
    rows = records(connection, _QUERY, [run, run_index])
    before = {row["rank"]: Before(row["steady_bytes"], row["outside_bytes"], row["allocated_bytes"], row["reserved_bytes"])
              for row in records(connection, asked_text("before_oom"), {"run": run, "run_index": run_index})} if rows else {}
    settings = ",".join(row["value"] for row in records(connection, _SETTINGS, [run, run_index])) if rows else ""
    first = {row["rank"] for row in records(connection, _FIRST, [run, run_index])} if rows else set()
    laid = Snapshots(connection, run, snapshots)
    found = [_oom(row, before.get(row["rank"]), settings, first, _told(laid, row)) for row in rows]
    return (*found, *(_kill(row) for row in records(connection, _KILLS, [run, run_index])))


def _told(laid: Snapshots, row: Mapping[str, Any]) -> Told | None:
    """What a snapshot tells of an error of torch's own allocator."""
    return laid.of(row["rank"], row["requested_bytes"]) if row["kind"] in _OF_TORCH else None


def _oom(row: dict[str, Any], before: Before | None, settings: str, first: set[int], told: Told | None) -> Oom:
    numbers = {name: row[name] for name in NUMBERS if row[name] is not None}
    verdict = judge(row["kind"], numbers, _others(row["other"]), before, told.cached if told else None)
    missing = tuple(name for name in _NEEDED if name not in numbers)
    if row["reserved_unallocated_bytes"] is None and row["reserved_bytes"] is None:
        missing += ("reserved_bytes",)
    if verdict.case == "B" and not (told and told.cached):
        missing += ("snapshot",)
    return Oom(row["rank"], row["rank_label"], row["pp"], row["iteration"], row["kind"], verdict.case, verdict.reason, numbers, missing, row["frame"],
               row["allocator_hint"], row["text"], Source(row["path"], row["line"]), dict(verdict.figures), row["rank"] in first if first else None,
               _tips(row["allocator_hint"], verdict, settings), told.snapshot if told else None)


def _kill(row: dict[str, Any]) -> Oom:
    return Oom(row["rank"], row["rank_label"], None, row["iteration"], "host", "F", "the host killed the process for its own memory", {}, (),
               None, None, row["detail"], Source(row["path"], row["line"]))


def _others(other: Mapping[str, str] | None) -> int:
    """Bytes that other processes hold, as the message names them."""
    return sum(int(value) for name, value in (other or {}).items() if name.startswith("process_") and value.isdigit())


def _tips(hint: str | None, verdict: Verdict, settings: str) -> tuple[Tip, ...]:
    """What the message recommends, and whether it would help here."""
    if not hint:
        return ()
    name = hint.rpartition("=")[2].partition(":")[0]
    if f"{name}:" in settings.replace(" ", ""):
        return (Tip(hint, "in force", f"the run's allocator settings already say {name}"),)
    if verdict.case not in _TURNED_BY_SETTINGS:
        return (Tip(hint, "useless here", f"case {verdict.case} is not turned by allocator settings: {verdict.reason}"),)
    return (Tip(hint, "may help", "cached memory that it did not use would have let the request fit"),)
