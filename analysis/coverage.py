"""Which ranks the artifacts show, of how many, and which would have printed memory at all.

Coverage is part of every answer: only data-parallel rank 0 prints `[Rank r] ... memory`, so an expert rank outside it is never seen, and
a quiet log proves nothing about the ranks it lacks. No rank is named that no record names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.database import records
from analysis.rank_layout import RANK_TABLES, sizes_of
from analysis.rows import Coverage
from analysis.theory.layout import ParallelSizes, report_memory_ranks

if TYPE_CHECKING:
    import duckdb

_COUNTS = "SELECT * FROM coverage WHERE run = ? AND run_index = ?"
_NOTHING: dict[str, Any] = {"world_size": None, "unplaced_records": 0, "invalid_records": 0}


def coverage(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, measured: tuple[int, ...]) -> Coverage:
    """The coverage of one attempt; `measured` are the ranks whose memory is known, ascending."""
    sizes = sizes_of(connection, run, run_index)
    every = " UNION ".join(f"SELECT rank FROM {table} WHERE run = $1 AND run_index = $2 AND rank IS NOT NULL" for table in RANK_TABLES)
    ranks = tuple(row["rank"] for row in records(connection, f"{every} ORDER BY 1", [run, run_index]))
    counts = next(iter(records(connection, _COUNTS, [run, run_index])), _NOTHING)
    expected = tuple(report_memory_ranks(sizes)) if isinstance(sizes, ParallelSizes) else None
    missing = tuple(sorted(set(expected or ()) - set(measured)))
    world = counts["world_size"] or (sizes.world_size if isinstance(sizes, ParallelSizes) else None)
    return Coverage(world, ranks, measured, expected, missing, counts["unplaced_records"], counts["invalid_records"],
                    _sentence(world, ranks, measured, expected, missing, counts))


def _sentence(world: int | None, ranks: tuple[int, ...], measured: tuple[int, ...], expected: tuple[int, ...] | None, missing: tuple[int, ...],
              counts: dict[str, Any]) -> str:
    unplaced, invalid = counts["unplaced_records"], counts["invalid_records"]
    beyond = tuple(rank for rank in ranks if world is not None and rank >= world)
    parts = [f"seen {len(ranks) - len(beyond)} of {world if world is not None else 'an unknown number of'} ranks"]
    if beyond:
        parts.append(f"rank {shown_ranks(beyond)} contradicts the world size of {world}")
    if len(measured) != len(ranks):
        parts.append(f"memory of {len(measured)}")
    if expected is not None and world is not None and len(expected) < world and len(measured) < world:
        lacking = f", {len(missing)} of them missing" if missing and measured else ""
        parts.append(f"only the {len(expected)} of data-parallel rank 0 print memory{lacking}")
    if unplaced:
        parts.append(f"{unplaced} memory record{'s' * (unplaced > 1)} without a rank")
    if invalid:
        parts.append(f"{invalid} memory record{'s' * (invalid > 1)} left out: the figures cannot be true")
    return "; ".join(parts)


def shown_ranks(ranks: tuple[int, ...]) -> str:
    """Ranks as short text: `0-3, 8, 12-15`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(f"{low}-{high}" if high > low else str(low) for low, high in spans)
