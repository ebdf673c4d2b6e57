"""An answer as a file that other programs read: CSV, or Parquet with the types kept."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.errors import LedgerError

if TYPE_CHECKING:
    from analysis.query.ask import Answer

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(answer: Answer) -> str:
    """A header line and a line a row; nulls are empty, lists and maps as Python writes them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([answer.columns, *answer.rows])
    return text.getvalue()


def csv_for_spreadsheets(answer: Answer) -> str:
    """The same, with texts that a spreadsheet would run as a formula led by an apostrophe: they may come from anybody's log."""
    text = io.StringIO()
    rows = ([f"'{one}" if isinstance(one, str) and one.startswith(_FORMULA) else one for one in row] for row in (answer.columns, *answer.rows))
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def parquet(answer: Answer) -> bytes:
    """A Parquet file. Columns of one name get a number: no reader takes two. Raises LedgerError where a type has no form in Parquet."""
    names = answer.columns
    apart = [name if names.index(name) == at else f"{name}_{at}" for at, name in enumerate(names)]
    sink = io.BytesIO()
    try:
        pq.write_table(answer.table.rename_columns(apart), sink, compression="zstd")
    except pa.ArrowException as error:
        raise LedgerError(f"the answer does not fit Parquet: {str(error).partition(chr(10))[0]}", todo="CAST the column to another type") from error
    return sink.getvalue()
