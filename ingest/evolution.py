"""Lakes of other releases: columns may be missing or be more than this release knows, but a known column has its type.

A column that a lake lacks reads as null and is added by the first writer that has it; one that this release does not know is left as it is.
A column of another type can be neither: read with a cast it would answer wrongly in silence, written it would break the lake for the other release.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable

from ingest.errors import LedgerError
from ingest.tables import BY_NAME, arrow_schema


def of_known_types(handle: DeltaTable, table: str, root: str) -> DeltaTable:
    """The handle itself. Raises LedgerError where a column that this release knows has another type there."""
    if table not in BY_NAME:
        return handle
    known = arrow_schema(table)
    for field in pa.schema(handle.schema().to_arrow()):
        if field.name in known.names and field.type != (expected := known.field(field.name).type):
            raise LedgerError(f"the column {field.name} of the table {table} holds {field.type}, and this release expects {expected}", where=root,
                              todo="use the release of hbmledger that wrote this lake, or ingest the artifacts into a new one")
    return handle
