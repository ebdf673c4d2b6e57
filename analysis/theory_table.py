"""The printed footprint of an attempt beside what its ranks measured, with the ratio.

Megatron prints the footprint of its most loaded shard, on rank 0: the total stands beside the peak of rank 0 and of the fullest rank, the
weights and optimizer beside what stays allocated after a step. The ratio judges nothing; the branch card says what the formula left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from analysis.database import records
from analysis.rows import Comparison, Rank, Source, Theory

if TYPE_CHECKING:
    import duckdb

_QUERY = """
SELECT report.*, COALESCE(artifacts.path, report.artifact) AS path
FROM theory_reports AS report
LEFT JOIN artifacts ON artifacts.artifact = report.artifact
WHERE report.run = ? AND report.run_index = ?
ORDER BY report.artifact, report.line
"""


def theory_of(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, ranks: Sequence[Rank]) -> Theory | None:
    """The last footprint printed; null where none was."""
    found = records(connection, _QUERY, [run, run_index])
    if not found:
        return None
    last = next((row for row in reversed(found) if row["weight_and_optimizer_bytes"] is not None or row["total_bytes"] is not None), found[-1])
    return Theory(
        weight_and_optimizer_bytes=last["weight_and_optimizer_bytes"], activation_bytes=last["activation_bytes"], total_bytes=last["total_bytes"],
        iteration=last["iteration"], producer=last["producer"], shape=last["shape"], text=last["text"], times_printed=len(found),
        source=Source(last["path"], last["line"]), compared=tuple(_compared(last, ranks)))


def _compared(report: dict[str, Any], ranks: Sequence[Rank]) -> Iterator[Comparison]:
    """Rank 0 and the fullest rank, where they were measured."""
    pairs = (("total", report["total_bytes"], "max allocated", "max_allocated_bytes"),
             ("weight and optimizer", report["weight_and_optimizer_bytes"], "allocated after a step", "allocated_bytes"))
    for printed, size, measured, name in pairs:
        held = [rank for rank in ranks if getattr(rank, name) is not None]
        if not size or not held:
            continue
        fullest = max(held, key=lambda rank: int(getattr(rank, name)))
        first = [rank for rank in held if rank.rank == 0 and rank is not fullest]
        for rank in (*first, fullest):
            found = int(getattr(rank, name))
            yield Comparison(rank.rank, rank.stage, printed, size, measured, found, found / size,
                             rank.peak_source if name == "max_allocated_bytes" else rank.source)
