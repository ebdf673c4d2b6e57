"""The same overview without names of hosts, people and places: for a report that leaves the house.

Every text of the overview is rewritten: absolute paths keep their last part, hosts that any table names and addresses become `host-1`, ... by order
of appearance, users of home folders become `user`. What is not recognised as such stays, so read before sending.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from analysis.database import records
from analysis.rows import Overview
from ingest.tables import BY_NAME

if TYPE_CHECKING:
    import duckdb

_PATH = re.compile(r"(?<![\w/.])(?:~|\.{1,2})?/(?:[^\s/:'\",;()|<>]+/)*([^\s/:'\",;()|<>]+)")
_RELATIVE = re.compile(r"(?<![\w/])(?:[\w.@+-]+/)+([\w.@+-]+)(?=[:\s]|$)")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}\b")


def hosts_of(connection: duckdb.DuckDBPyConnection, run: str) -> list[str]:
    """Hosts that any table of the run names."""
    tables = [name for name, table in BY_NAME.items() if "host" in table.names]
    query = " UNION ".join(f"SELECT DISTINCT host FROM {name} WHERE run = $1 AND host IS NOT NULL" for name in tables)
    return [row["host"] for row in records(connection, query, [run])]


def redacted(found: Overview, hosts: Iterable[str] = ()) -> Overview:
    """The overview with hosts, addresses, users and folders replaced; `hosts` are those that tables name."""
    names = {host: f"host-{number}" for number, host in enumerate(sorted(set(hosts), key=len, reverse=True), 1)}
    known = re.compile("|".join(rf"(?<![\w.-]){re.escape(host)}(?![\w-])" for host in names)) if names else None
    rewritten = _rewritten(found, partial(_hidden, names, known))
    assert isinstance(rewritten, Overview)
    return rewritten


def _hidden(names: dict[str, str], known: re.Pattern[str] | None, text: str) -> str:
    text = _PATH.sub(r"\1", text)
    text = _RELATIVE.sub(r"\1", text)
    text = known.sub(lambda match: names[match[0]], text) if known else text
    return _ADDRESS.sub("address", text)


def _rewritten(value: Any, hide: Any) -> Any:
    if isinstance(value, str):
        return hide(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _rewritten(getattr(value, one.name), hide) for one in fields(value) if one.init})
    if isinstance(value, tuple):
        return tuple(_rewritten(one, hide) for one in value)
    if isinstance(value, list):
        return [_rewritten(one, hide) for one in value]
    if isinstance(value, dict):
        return {name: _rewritten(one, hide) for name, one in value.items()}
    return value
