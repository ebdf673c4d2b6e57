"""A DuckDB file with the views over a lake's files of this moment: what the DuckDB command line, DBeaver or a notebook open without this package.

The file holds the addresses of the lake's Parquet files, not their rows: it is small, and a picture of one version of the lake (the table `about`
says which). What only Python can work out (where ranks sit, what a stage was expected to hold, the branch card, ...) is stored in it as tables.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from analysis.database import TYPES, VIEWS, WORKED_OUT, connect, lake_files, view_text, visible_text
from analysis.query.check import COMPUTED
from analysis.query.computed import filled
from ingest.errors import LedgerError
from ingest.tables import TABLES, Table, arrow_schema

if TYPE_CHECKING:
    from ingest.lake import Lake

_STORAGE = "v1.2.0"
"""The oldest DuckDB that opens the file; the newest format would shut out what people have installed."""


def export_db(lake: Lake, path: Path) -> str:
    """Write the file `path`, which must not be there; the version of the lake it shows is returned.

    Raises LedgerError where the file is there, the lake cannot be read, or lies in an object store, which another program could not read by address.
    """
    if "://" in lake.root:
        raise LedgerError("a DuckDB file can only name files of a folder", where=lake.root, todo="copy the lake to a folder, or use `hbmledger sql`")
    if path.exists():
        raise LedgerError("the file is there already and is not overwritten", where=str(path), todo="name another")
    made = path.with_name(f"{path.name}.part")
    made.unlink(missing_ok=True)
    try:
        with connect(lake) as source, duckdb.connect(str(made), config={"storage_compatibility_version": _STORAGE}) as target:
            shown = lake.version()
            _write(lake, source, target, shown)
        made.rename(path)
    except duckdb.Error as error:
        raise LedgerError(f"the file cannot be written: {str(error).strip().partition(chr(10))[0]}", where=str(path),
                          todo="check space and permissions") from error
    finally:
        made.unlink(missing_ok=True)
    return shown


def _write(lake: Lake, source: duckdb.DuckDBPyConnection, target: duckdb.DuckDBPyConnection, shown: str) -> None:
    uris = lake_files(lake)
    target.execute("CREATE SCHEMA stored")
    for table in TABLES:
        here = [str(Path(uri).absolute()) for uri in uris[table.name]]
        if here:
            target.execute(f"CREATE VIEW stored.{table.name} AS {_portable(target, table, here)}")
        else:
            _copied(target, f"stored.{table.name}", arrow_schema(table.name).empty_table())
        _described(target, "VIEW" if here else "TABLE", f"stored.{table.name}", table.grain)
    for name in ("artifacts", *WORKED_OUT):
        _copied(target, name, source.sql(f"SELECT * FROM {name}").to_arrow_table())
    for table in TABLES:
        if table.name != "artifacts":
            target.execute(f"CREATE VIEW {table.name} AS {visible_text(table)}")
            _described(target, "VIEW", table.name, table.grain)
    for name in VIEWS:
        target.execute(f"CREATE VIEW {name} AS {view_text(name)}")
        _described(target, "VIEW", name, heading(name))
    for module in COMPUTED:
        filled(source, set(module.COLUMNS), module.COLUMNS, module.make)
        for name in module.COLUMNS:
            _copied(target, name, source.sql(f"SELECT * FROM {name}").to_arrow_table())
            _described(target, "TABLE", name, module.GRAIN[name])
    target.execute("CREATE TABLE about (lake VARCHAR, version VARCHAR, made_at TIMESTAMP, made_by VARCHAR)")
    target.execute("INSERT INTO about VALUES (?, ?, ?, ?)", [str(Path(lake.root).absolute()), shown, datetime.now(UTC).replace(tzinfo=None),
                                                             f"hbmledger {version('hbmledger')}"])


def _portable(target: duckdb.DuckDBPyConnection, table: Table, uris: list[str]) -> str:
    """Every column of the table's files by name, in the words that DuckDB 1.2 reads too; null of the right type where no file has it."""
    listed = ", ".join("'" + uri.replace("'", "''") + "'" for uri in uris)
    source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = true, hive_types_autocast = false)"
    present = {row[0] for row in target.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    columns = []
    for one in table.columns:
        found = f'"{one.name}"' if one.name in present else "NULL"
        columns.append(f'CAST({found} AS {TYPES[one.type]}) AS "{one.name}"')
    return f"SELECT {', '.join(columns)} FROM {source}"


def heading(name: str) -> str:
    """What a view holds: the comment above its SELECT."""
    lines = (line.strip() for line in view_text(name).splitlines())
    found = []
    for line in lines:
        if not line.startswith("--"):
            break
        found.append(line.lstrip("- "))
    return " ".join(found)


def _copied(target: duckdb.DuckDBPyConnection, name: str, rows: object) -> None:
    target.register("given_rows", rows)
    target.execute(f"CREATE TABLE {name} AS SELECT * FROM given_rows")
    target.unregister("given_rows")


def _described(target: duckdb.DuckDBPyConnection, kind: str, name: str, text: str) -> None:
    quoted = text.replace("'", "''")
    target.execute(f"COMMENT ON {kind} {name} IS '{quoted}'")
