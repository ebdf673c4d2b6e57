"""One query that a person wrote, answered from a locked connection: a single SELECT, with limits of time, rows and size that say so.

What a statement is and what it names is told by DuckDB's own parser (`analysis.query.check`), not by looking for words. `ask` runs it in this
process, for connections that are trusted not to be overwhelmed; `analysis.query.process` runs it in a child that can be.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from analysis.database import damage
from analysis.query.check import COMPUTED, checked
from analysis.query.computed import filled, listed_empty
from ingest.errors import LedgerError

ROW_LIMIT = 10_000
SECONDS_LIMIT = 30.0
ANSWER_BYTES = 128 * 2**20
_BATCH_ROWS = 2048
_TODO = '`hbmledger sql "SHOW TABLES"` lists the tables'


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer as an Arrow table; `capped` tells that there were more rows than the limit."""

    table: pa.Table
    capped: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, as the query gives them: one may come twice."""
        return tuple(self.table.column_names)

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """The rows as Python's own values: maps and structs as dictionaries, whole numbers of any size as `int`."""
        columns = [[_value(one) for one in _listed(column)] for column in self.table.columns]
        return tuple(zip(*columns, strict=True))


def ask(connection: duckdb.DuckDBPyConnection, query: str, *, rows: int = ROW_LIMIT, seconds: float = SECONDS_LIMIT) -> Answer:
    """The answer to one SELECT on a connection of `analysis.database.locked`. Raises LedgerError for anything else, an error in it, or a time-out."""
    wanted = checked(connection, query)
    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    try:
        with ExitStack() as listed:
            for tables in COMPUTED:
                filled(connection, wanted.relations, tables.COLUMNS, tables.make)
                if wanted.catalogue:
                    listed.enter_context(listed_empty(connection, tables.COLUMNS))
            return _read(connection.sql(wanted.statement).to_arrow_reader(_BATCH_ROWS), rows)
    except duckdb.InterruptException as error:
        raise too_slow(seconds) from error
    except duckdb.OutOfMemoryException as error:
        raise LedgerError("the query needs more memory than it may take", todo="narrow it") from error
    except (duckdb.Error, pa.ArrowException) as error:
        raise damage(error) or LedgerError(f"the query failed: {one_line(error)}", todo=_TODO) from error
    finally:
        timer.cancel()


def too_slow(seconds: float) -> LedgerError:
    """What is told where a query did not end in time."""
    return LedgerError(f"the query ran longer than {seconds:g} s and was stopped", todo="narrow it, or on the command line give it more --seconds")


def one_line(error: Exception) -> str:
    """The first line of the engine's message: those below it are a drawing of the place and advice on settings."""
    return str(error).strip().partition("\n")[0].strip()


def answer_of(table: pa.Table, rows: int) -> Answer:
    """The first `rows` rows of a table as an answer. Raises LedgerError where they hold more bytes than an answer may have."""
    if table.nbytes > ANSWER_BYTES:
        raise _too_large()
    return Answer(_plain(table.slice(0, rows)), table.num_rows > rows)


def _read(batches: pa.RecordBatchReader, rows: int) -> Answer:
    """At most `rows` rows, and not more bytes than an answer may have; what follows is not asked for."""
    kept: list[pa.RecordBatch] = []
    left, nbytes = rows + 1, 0
    for batch in batches:
        kept.append(batch.slice(0, left))
        left -= kept[-1].num_rows
        nbytes += kept[-1].nbytes
        if nbytes > ANSWER_BYTES:
            raise _too_large()
        if not left:
            break
    return answer_of(pa.Table.from_batches(kept, schema=batches.schema), rows)


def _too_large() -> LedgerError:
    return LedgerError(f"the answer is larger than {ANSWER_BYTES // 2**20} MiB", todo="select fewer columns or rows, or shorten long texts")


def _plain(table: pa.Table) -> pa.Table:
    """Sums of BIGINT, 128 bits wide in DuckDB, as 64 bits where they fit: other programs read them as numbers, not as decimals."""
    for at, column in enumerate(table.schema):
        if pa.types.is_decimal(column.type) and column.type.scale == 0:
            try:
                table = table.set_column(at, pa.field(column.name, pa.int64()), table.column(at).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table


def _listed(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python's own values; of days and moments outside of what Python's calendar has, DuckDB's own `infinity` among them, as text."""
    try:
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    except (OverflowError, ValueError):
        return [_moment(one) for one in column]


def _moment(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        raw = getattr(scalar, "value", None)
        if not isinstance(raw, int):
            return "outside the calendar"
        last = 2**31 - 1 if pa.types.is_date32(scalar.type) else 2**63 - 1
        return "infinity" if raw == last else "-infinity" if raw == -last else f"{raw:,} {getattr(scalar.type, 'unit', 'days')} since 1970"


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        return "".join(chr(one) if 32 <= one < 127 and one != 92 else f"\\x{one:02X}" for one in value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else float(value)
    return value
