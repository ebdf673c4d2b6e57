"""Rows of bytes, for tests: all pieces together, and in an order that cuts do not change."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

from ingest.parsers.base import Piece
from ingest.parsers.log import MEGATRON_LOG

Rows = dict[str, list[dict[str, Any]]]


def merged(pieces: Iterable[Piece]) -> Rows:
    rows: Rows = {}
    for piece in pieces:
        for table, found in piece.records().items():
            if found:
                rows.setdefault(table, []).extend(found)
    return rows


def read(data: bytes | str, path: str = "train.log", **options: Any) -> Rows:
    data = data.encode() if isinstance(data, str) else data
    return merged(MEGATRON_LOG.parse(io.BytesIO(data), path, **options))


def read_in_two(data: bytes, cut: int) -> Rows:
    """The closed pieces of the first `cut` bytes, then the rest of the whole from where they ended."""
    first = list(MEGATRON_LOG.parse(io.BytesIO(data[:cut]), "train.log", final=False))
    end, state = first[-1].end_bytes, first[-1].state
    second = MEGATRON_LOG.parse(io.BytesIO(data[end:]), "train.log", start=end, state=state)
    return merged([*first, *second])


def canonical(rows: Rows) -> dict[str, list[str]]:
    """Sorted; a null says what an absent column says."""
    return {table: sorted(json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True, default=str) for row in found)
            for table, found in rows.items()}
