"""The same question asked of other tools: each extracts memory, iteration, theory and OOM records, single thread, written to be fast.

Lines without any of four short strings are dropped first, by plain search; only what is left meets a regular expression, one a kind. They
read what the benchmark's own log holds and no more: no line numbers, no attempts, no launcher prefixes, no damage, no rejects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Counts = dict[str, int]
N = r"(-?[\d.]+)"
MARKS = {"rank_memory": "memory (MB) |", "iterations": "] iteration ", "theory_reports": "Theoretical memory footprints",
         "oom_events": "out of memory."}
PATTERNS = {
    "rank_memory": (rf"\[Rank (\d+)\] \(after (\d+) iterations\) memory \(MB\) \| allocated: {N} \| max allocated: {N} \| "
                    rf"reserved: {N} \| max reserved: {N}"),
    "iterations": (
        rf"\[([^\]]+)\] iteration +(\d+)/ *(\d+) \| consumed samples: +(\d+) \| elapsed time per iteration \(ms\): {N} \| "
        rf"throughput per GPU \(TFLOP/s/GPU\): {N} \| learning rate: (\S+) \| global batch size: +(\d+) \| lm loss: (\S+) \| "
        rf"load_balancing_loss: (\S+) \| loss scale: {N} \| grad norm: {N} \| number of skipped iterations: +(\d+) \| "
        r"number of nan iterations: +(\d+) \|"),
    "theory_reports": rf"Theoretical memory footprints: weight and optimizer={N} MB, activation={N} MB, total={N} MB",
    "oom_events": (
        rf"\[rank(\d+)\]: .*Tried to allocate {N} (\wiB).*GPU (\d+) has a total capacity of {N} (\wiB) of which {N} (\wiB) is free.*"
        rf"this process has {N} (\wiB).*Of the allocated memory {N} (\wiB).*and {N} (\wiB) is reserved by PyTorch but"),
}
TYPES = {  # i: integer, f: number, m: MiB to bytes, s: text, u: number whose unit follows
    "rank_memory": "iimmmm", "iterations": "siiiffffffffii", "theory_reports": "mmm", "oom_events": "iusiususususus"}
_UNITS = {b"KiB": 2**10, b"MiB": 2**20, b"GiB": 2**30, b"TiB": 2**40}


def python_loop(path: Path) -> Counts:
    """One regular expression over every line of a file opened as bytes."""
    search = re.compile("|".join(f"(?P<{table}>{pattern})" for table, pattern in PATTERNS.items()).encode()).search
    rows: dict[str, list[tuple[object, ...]]] = {table: [] for table in PATTERNS}
    with path.open("rb") as lines:
        for line in lines:
            if match := search(line):
                for table, start in match.re.groupindex.items():
                    if match.start(start) >= 0:
                        rows[table].append(tuple(_value(kind, match, start + 1 + at) for at, kind in enumerate(TYPES[table])))
    return {table: len(found) for table, found in rows.items()}


def _value(kind: str, match: re.Match[bytes], group: int) -> object:
    text = match[group]
    if kind == "i":
        return int(text)
    if kind == "s":
        return text
    if kind == "u":
        return round(float(text) * _UNITS[match[group + 1]])
    return round(float(text) * 2**20) if kind == "m" else float(text)


def duckdb_query(path: Path) -> Counts:
    """The file as one column of text, the few lines kept in a temporary table, then one extraction a kind to Arrow."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    kept = " OR ".join(f"contains(line, '{mark}')" for mark in MARKS.values())
    connection.execute(
        "CREATE TEMP TABLE kept AS SELECT line FROM read_csv(?, columns = {'line': 'VARCHAR'}, header = false, auto_detect = false, delim = '\x01', "
        f"quote = '', escape = '', comment = '', new_line = '\\n', strict_mode = false) WHERE {kept}", [str(path)])
    counts = {}
    for table, pattern in PATTERNS.items():
        kinds = TYPES[table]
        names = ", ".join(f"'c{at}'" for at in range(len(kinds)))
        columns = ", ".join(_duckdb_column(kind, at) for at, kind in enumerate(kinds))
        query = (f"SELECT {columns} FROM (SELECT regexp_extract(line, $1, [{names}]) AS r FROM kept WHERE contains(line, '{MARKS[table]}')) "
                 "WHERE r.c0 <> ''")
        counts[table] = connection.sql(query, params=[pattern]).to_arrow_table().num_rows
    return counts


def _duckdb_column(kind: str, at: int) -> str:
    if kind == "u":
        unit = f"CASE r.c{at + 1} WHEN 'KiB' THEN 1024 WHEN 'MiB' THEN 1048576 WHEN 'GiB' THEN 1073741824 END"
        return f"CAST(round(TRY_CAST(r.c{at} AS DOUBLE) * {unit}) AS BIGINT)"
    wanted = {"i": f"TRY_CAST(r.c{at} AS BIGINT)", "f": f"TRY_CAST(r.c{at} AS DOUBLE)", "s": f"r.c{at}",
              "m": f"CAST(round(TRY_CAST(r.c{at} AS DOUBLE) * 1048576) AS BIGINT)"}
    return wanted[kind]


def polars_query(path: Path) -> Counts:
    """`scan_lines`, one search for the four strings (its fastest form: four plain searches took longer), then one extraction of all groups a kind."""
    import polars as pl

    line = pl.col("line")
    wanted = line.str.contains("|".join(re.escape(mark) for mark in MARKS.values()))
    kept = pl.scan_lines(path).filter(wanted).collect(engine="streaming")
    counts = {}
    for table, pattern in PATTERNS.items():
        kinds = TYPES[table]
        groups = kept.lazy().filter(line.str.contains(MARKS[table], literal=True)).select(line.str.extract_groups(pattern).alias("r")).unnest("r")
        found = groups.filter(pl.col("1").is_not_null()).select(_polars_column(pl, kind, at) for at, kind in enumerate(kinds)).collect()
        counts[table] = found.height  # a polars frame is Arrow in memory already
    return counts


def _polars_column(pl: Any, kind: str, at: int) -> Any:
    column = pl.col(str(at + 1))
    number = column.cast(pl.Float64, strict=False)
    if kind == "i":
        return column.cast(pl.Int64, strict=False)
    if kind == "s":
        return column
    if kind == "u":
        unit = pl.col(str(at + 2)).replace_strict({"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}, default=None)
        return (number * unit).round().cast(pl.Int64).alias(str(at + 1))
    return (number * 2**20).round().cast(pl.Int64) if kind == "m" else number


PEERS: dict[str, Callable[[Path], Counts]] = {"Python, one regex": python_loop, "DuckDB": duckdb_query, "Polars": polars_query}
