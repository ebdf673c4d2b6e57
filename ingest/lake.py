"""The lake: one Delta table for each table of `ingest.tables`, below one root (a folder or an object store's address).

How a batch becomes visible, all of it or nothing, however many hosts write and whenever one of them dies:

1. The data tables are written first, one commit a table, carrying one Delta application transaction a piece
   (`app_id` = source, `<source>#tail` for an open end; `version` = last byte). The handle that commits is asked first: a piece
   whose transaction is there already has its rows there (another host, or a run of ours that died here), they are not written again.
2. `artifacts` is written last. It accepts a piece only where the source still stands at the byte from which it was read; a
   source that someone took further meanwhile is left out and reported, to be planned again.
3. Readers count a row only if its `artifact` is a visible row of `artifacts`: `closed`, or the `tail` whose start is the largest
   closed end of its source and whose end is the source's largest end. What step 1 left without step 2 is in no answer.

An artifact's name holds a hash of the piece's content, so that rows left by a run that died are never taken for those of other bytes.
A lake in an object store (`s3://bucket/prefix`, see `ingest.object_store`) is written by the same commits.
Not "check, then append": two hosts that both see nothing would both append.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from ingest import object_store
from ingest.errors import LedgerError
from ingest.evolution import of_known_types
from ingest.tables import BY_NAME, arrow_schema
from ingest.transactions import Transactions
from ingest.upkeep.rollup import rank_day_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from ingest.parsers.base import Row

PARTITION = ["month", "cluster"]
_PART_ROWS = 100_000
_TRIES = 60
_COMMITS_A_CHECKPOINT = "20"
"""A commit of ten thousand growing files names twenty thousand transactions, and each since the last checkpoint costs ten milliseconds to open."""

_ENDINGS = {"closed": "", "tail": "#tail", "quarantined": "#quarantined"}


def default_root() -> str:
    """`HBMLEDGER_LAKE`, else `./lake`."""
    return os.environ.get("HBMLEDGER_LAKE") or "./lake"


@dataclass(frozen=True, slots=True)
class Source:
    """What the lake knows of one source file. `closed_bytes` is None where no piece is closed yet; `size_bytes` includes the open end."""

    source: str
    path: str
    run: str
    cluster: str
    prefix_bytes: int
    prefix_hash: str
    closed_bytes: int | None
    size_bytes: int
    parser: str | None
    parser_state: str | None
    seam_bytes: int
    seam_hash: str | None
    quarantined: bool
    heads: dict[int, str] = field(default_factory=dict)
    """Hashes of shorter prefixes by their length: what a file that became shorter is compared with."""
    whole_hash: str | None = None
    """Hash of all bytes, of kinds that are written whole, read when the file was last modified at `modified_ns`."""
    modified_ns: int | None = None


@dataclass(slots=True)
class Batch:
    """Pieces to commit at once: rows of `artifacts`, rows of the other tables, and where each source stood when it was planned."""

    artifacts: list[Row] = field(default_factory=list)
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    expected: dict[str, int | None] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return int(sum(part.nbytes for parts in self.tables.values() for part in parts)) + 1000 * len(self.artifacts)


class Lake:
    """The tables below one root."""

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self._transactions = Transactions()
        self._sizes: dict[str, int] = {}
        self._options: dict[str, str] | None = None
        self._handles: dict[str, DeltaTable] = {}
        if object_store.is_address(self.root):
            self.root, self._options = object_store.checked(self.root), object_store.options()
        elif (bad := re.search(r"[\[\]]|%[0-9A-Fa-f]{2}", str(Path(self.root).absolute()))):
            raise LedgerError(f"the table format cannot address a folder with {bad[0]!r} in its path", where=self.root,
                              todo="name another place with --lake DIR")

    def exists(self) -> bool:
        """Whether anything was ever ingested here."""
        return self._open("artifacts") is not None

    def create(self) -> None:
        """Make the lake where it is not there yet. Raises `LedgerError` where the place cannot be written."""
        try:
            if self._options is None:
                Path(self.root).mkdir(parents=True, exist_ok=True)
            elif not self.exists():
                object_store.try_conditional_writes(self.root, self._options)
            self._opened("artifacts")
        except (OSError, DeltaError) as error:
            raise _unwritable(self.root, error) from error

    def uris(self, table: str) -> list[str]:
        """Parquet files of the newest version of a table, as DuckDB names them; none where it does not exist yet.

        Those of an object store are `lake://TABLE/...` of `file_system`; `addresses` has the store's own names.
        """
        handle = self._open(table)
        if handle is None or self._options is None:
            return [] if handle is None else [_plain_path(uri, handle.table_uri) for uri in handle.file_uris()]
        actions = pa.table(handle.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
        sizes = {f"{table}/{unquote(action['path'])}": int(action["size_bytes"]) for action in actions}
        self._sizes.update(sizes)
        return [f"lake://{name}" for name in sizes]

    def addresses(self, table: str) -> list[str]:
        """The same files by their paths or addresses (`s3://...`), for other engines."""
        return [f"{self.root}/{uri.removeprefix('lake://')}" if uri.startswith("lake://") else uri for uri in self.uris(table)]

    def file_system(self) -> AbstractFileSystem | None:
        """What DuckDB has to register to read `uris`; null for a folder. Raises LedgerError where the package for it is missing."""
        if self._options is None:
            return None
        try:
            from ingest.lake_files import LakeFiles
        except ModuleNotFoundError as error:
            raise LedgerError("reading a lake in an object store needs the package fsspec", where=self.root,
                              todo="pip install 'hbmledger[objectstore]'") from error
        return LakeFiles(self.root, self._options, self._sizes)

    def version(self) -> str:
        """Changes with every commit that readers can see; `none` where there is no lake."""
        handle = self._open("artifacts")
        return "none" if handle is None else f"{handle.metadata().id}@{handle.version()}"

    def sources(self) -> list[Source]:
        """Every source known, with where it stands."""
        handle = self._open("artifacts")
        return [] if handle is None else _sources(handle)

    def commit(self, batch: Batch) -> set[str]:
        """Write a batch; the sources left out because another writer took them further are returned."""
        self.create()
        left_out = self._ahead(self._opened("artifacts"), batch.artifacts, batch.expected)
        pieces = [piece for piece in batch.artifacts if piece["source"] not in left_out]
        tables = {name: _together(name, parts) for name, parts in batch.tables.items() if parts}
        tables |= {"rank_day": daily} if (daily := rank_day_of(tables)).num_rows else {}
        for name, rows in tables.items():
            self._append_rows(name, rows, pieces, batch.expected)
        return left_out | self._append_artifacts(pieces, batch.expected)

    def _append_rows(self, name: str, rows: pa.Table, pieces: Sequence[Row], expected: dict[str, int | None]) -> None:
        """Step 1 for one table. Rows of a piece that were there once and are gone were folded or dropped by the lake's upkeep, which does so
        only when the source has moved on: asked again, so that a writer that slept meanwhile does not write them anew."""
        pieces, rows = _of_pieces(pieces, rows)
        for attempt in range(_TRIES):
            handle = self._opened(name)
            versions = self._transactions.reached(handle, {_app_id(piece) for piece in pieces})
            reached = {piece["artifact"] for piece in pieces if versions.get(_app_id(piece), -1) >= piece["end_bytes"]}
            written = _present(handle, name, reached)
            gone = [piece for piece in pieces if piece["artifact"] in reached - written]
            if ahead := self._ahead(self._opened("artifacts"), gone, expected) if gone else set():
                pieces, rows = _of_pieces([piece for piece in pieces if piece["source"] not in ahead], rows)
                continue
            todo = rows.filter(pc.invert(pc.is_in(rows["artifact"], pa.array(sorted(written), pa.string())))) if written else rows
            if not todo.num_rows:
                return
            fresh = [piece for piece in pieces if piece["artifact"] not in reached]
            if _write(handle, todo, fresh, attempt, sorted(reached - written)):
                return
        raise _busy(self.root)

    def _append_artifacts(self, pieces: Sequence[Row], expected: dict[str, int | None]) -> set[str]:
        """Step 2: the pieces whose source stands where it stood; the other sources are returned."""
        left_out: set[str] = set()
        for attempt in range(_TRIES):
            handle = self._opened("artifacts")
            left_out |= self._ahead(handle, pieces, expected)
            versions = self._transactions.reached(handle, {_app_id(piece) for piece in pieces})
            todo = [piece for piece in pieces if piece["source"] not in left_out and versions.get(_app_id(piece), -1) < piece["end_bytes"]]
            if not todo or _write(handle, pa.Table.from_pylist(todo, schema=arrow_schema("artifacts")), todo, attempt):
                return left_out
        raise _busy(self.root)

    def _ahead(self, handle: DeltaTable, pieces: Iterable[Row], expected: dict[str, int | None]) -> set[str]:
        """Sources that no longer stand where they were read from."""
        sources = {piece["source"] for piece in pieces}
        standing = self._transactions.reached(handle, sources)
        return {source for source in sources if standing.get(source) != expected.get(source)}

    def _address(self, table: str) -> str:
        return f"{self.root.rstrip('/')}/{table}"

    def _open(self, table: str) -> DeltaTable | None:
        try:
            return of_known_types(self._newest(table), table, self.root)
        except TableNotFoundError as error:
            if self._holds_parquet(table):
                raise LedgerError(f"the log of the table {table} (_delta_log) is lost; its rows cannot be told from left-overs", where=self.root,
                                  todo="put it back from a copy, or ingest the files into a new lake") from error
            return None
        except (OSError, DeltaError) as error:
            todo = "is this a lake of hbmledger?" if self._options is None else "check the address, the credentials and the way to the store"
            raise LedgerError(f"the table {table} cannot be opened: {sentence(error)}", where=self.root, todo=todo) from error

    def _newest(self, table: str) -> DeltaTable:
        """A table at its newest version. In an object store, where each commit is a request, what was read of its log is kept and only what came
        since is asked for."""
        if self._options is None:
            return DeltaTable(self._address(table))
        if handle := self._handles.pop(table, None):
            handle.update_incremental()
        else:
            handle = DeltaTable(self._address(table), storage_options=self._options)
        self._handles[table] = handle
        return handle

    def _holds_parquet(self, table: str) -> bool:
        if self._options is None:
            return next(Path(self._address(table)).rglob("*.parquet"), None) is not None
        return object_store.holds_parquet(self._address(table), self._options)

    def _opened(self, table: str) -> DeltaTable:
        """Open a table, made where it is not there; another host may make it at the same moment."""
        last: Exception | None = None
        for _ in range(_TRIES):
            if handle := self._open(table):
                return handle
            try:
                DeltaTable.create(
                    self._address(table), schema=arrow_schema(table), mode="ignore", partition_by=PARTITION, description=BY_NAME[table].grain,
                    storage_options=self._options, configuration={"delta.checkpointInterval": _COMMITS_A_CHECKPOINT},
                )
            except (OSError, TableNotFoundError) as error:  # the latter: its folder cannot be made
                raise _unwritable(self.root, error) from error
            except DeltaError as error:
                last = error
                time.sleep(random.uniform(0.01, 0.05))
        raise _unwritable(self.root, last or OSError(f"the table {table} cannot be made")) from last


def _together(name: str, parts: Sequence[pa.Table]) -> pa.Table:
    """One table of the parts; keys may be plain text in some and dictionaries in others."""
    alike = all(part.schema.equals(parts[0].schema) for part in parts)
    return pa.concat_tables(parts if alike else [part.cast(arrow_schema(name)) for part in parts])


def _of_pieces(pieces: Sequence[Row], rows: pa.Table) -> tuple[list[Row], pa.Table]:
    """The pieces that have rows here, and their rows."""
    here, wanted = set(pc.unique(rows["artifact"]).to_pylist()), {piece["artifact"] for piece in pieces}
    if not here <= wanted:
        rows = rows.filter(pc.is_in(rows["artifact"], pa.array(sorted(wanted), pa.string())))
    return [piece for piece in pieces if piece["artifact"] in here], rows


def _write(handle: DeltaTable, rows: pa.Table, pieces: Sequence[Row], attempt: int, overtaken: Sequence[str] = ()) -> bool:
    """One commit with a transaction a piece; False where another writer came first, to look again.

    `overtaken` are artifacts whose source's transaction another cut of the same bytes took (its writer died, or was left out): they carry one
    of their own name, so that of two writers who both miss their rows one is told.
    """
    reached: dict[str, int] = {}
    for piece in pieces:
        reached[_app_id(piece)] = max(piece["end_bytes"], reached.get(_app_id(piece), 0))
    transactions = [Transaction(app_id, version) for app_id, version in reached.items()] + [Transaction(artifact, 1) for artifact in overtaken]
    known = {column.name for column in handle.schema().fields}
    try:
        write_deltalake(
            handle, rows, mode="append", commit_properties=CommitProperties(app_transactions=transactions),
            schema_mode=None if known == set(rows.column_names) else "merge",
        )
    except CommitFailedError:
        time.sleep(random.uniform(0.0, min(0.02 * 2**attempt, 1.0)))
        return False
    except (OSError, DeltaError) as error:
        raise _unwritable(unquote(handle.table_uri.removeprefix("file://")), error) from error
    return True


def _app_id(piece: Row) -> str:
    return f"{piece['source']}{_ENDINGS[piece['status']]}"


def _present(handle: DeltaTable, name: str, artifacts: set[str]) -> set[str]:
    """Which of these pieces have rows in a table: asked only where a transaction says that some may."""
    if not artifacts:
        return set()
    return set(pc.unique(_read(handle, name, ["artifact"], sorted(artifacts))["artifact"]).to_pylist())


def _read(handle: DeltaTable, name: str, columns: list[str], artifacts: Sequence[str] | None = None) -> pa.Table:
    """Columns of a table's newest version, of some artifacts or all.

    Local files are read by Arrow itself, others by the engine of delta-rs: Arrow's threads, where they read through delta-rs, may still hold
    Python objects when the process ends, and abort it (about one end in fifteen on a busy machine, deltalake 1.6.6 with pyarrow 26).
    """
    paths, schema = [_plain_path(uri, handle.table_uri) for uri in handle.file_uris()], arrow_schema(name)
    if any("://" in path for path in paths):
        chosen = "" if artifacts is None else f" WHERE artifact IN ({', '.join(_quoted(artifact) for artifact in artifacts)})"
        names = ", ".join(f'"{column}"' for column in columns)
        query = f"SELECT {names} FROM stored{chosen}"
        found = pa.table(QueryBuilder().register("stored", handle).execute(query).read_all())
        return found.cast(pa.schema([schema.field(column) for column in columns]))
    wanted = None if artifacts is None else pc.field("artifact").isin(artifacts)
    return _dataset(paths, schema).to_table(columns=columns, filter=wanted)


def _dataset(paths: list[str], schema: pa.Schema) -> ds.Dataset:
    kept = ds.partitioning(pa.schema([schema.field(one) for one in PARTITION]), flavor="hive")
    return ds.dataset(paths, schema=schema, format="parquet", partitioning=kept)


def _parts(handle: DeltaTable, name: str, columns: list[str]) -> Iterator[pa.Table]:
    """`_read` in parts of bounded size, where the files are local."""
    paths = [_plain_path(uri, handle.table_uri) for uri in handle.file_uris()]
    if any("://" in path for path in paths):
        yield _read(handle, name, columns)
        return
    batches: list[pa.RecordBatch] = []
    for batch in _dataset(paths, arrow_schema(name)).to_batches(columns=columns, fragment_readahead=1, batch_readahead=2):
        batches.append(batch)
        if sum(len(one) for one in batches) >= _PART_ROWS:
            yield pa.Table.from_batches(batches)
            batches = []
    if batches:
        yield pa.Table.from_batches(batches)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _plain_path(uri: str, root: str) -> str:
    """A local file as the file system names it: `file_uris` escapes the root (a blank is %20) but not what stands below it."""
    base = root.removeprefix("file://")
    return unquote(base) + uri.removeprefix(base) if root.startswith("file://") and uri.startswith(base) else uri


def sentence(error: Exception) -> str:
    """What an error of the table format says, in one line: its first line and, where it goes on with causes, its last cause.

    Colours, a backtrace, and the frame of an object store's or the system's message are left out.
    """
    first, *rest = re.sub(r"\x1b\[[0-9;]*m", "", str(error).strip()).split("\n")
    causes = [line.partition("↳")[2].strip() for line in rest if "↳" in line]
    if told := re.search(r'<Message>(.*?)</Message>|message: "(.*?)"', str(error), re.DOTALL):
        causes.append(" ".join((told[1] or told[2]).split()))
    return f"{first}: {causes[-1]}" if causes else first


def _unwritable(where: str, error: Exception) -> LedgerError:
    full = "No space left" in str(error) or "quota" in str(error)
    todo = "make room" if full else "check permissions and limits, or name another place with --lake"
    return LedgerError(f"the lake cannot be written: {sentence(error)}", where=where.rstrip("/"),
                       todo=f"{todo}; nothing is lost: the same command goes on where this one stopped")


def _busy(root: str) -> LedgerError:
    return LedgerError("other writers kept coming first", where=root, todo="run the same command again")


def _sources(handle: DeltaTable) -> list[Source]:
    """Fold the pieces of each source: its path and run are those of its newest piece, its prefix the longest seen."""
    columns = [
        "source", "path", "run", "cluster", "prefix_bytes", "prefix_hash", "end_bytes", "status", "state", "parser", "ingested_at",
    ]
    telling = arrow_schema("artifacts").empty_table().select(columns)
    for part in _parts(handle, "artifacts", columns):
        telling = _telling(pa.concat_tables([telling, part]))
    pieces: dict[str, list[dict[str, Any]]] = {}
    for piece in telling.to_pylist():
        pieces.setdefault(piece["source"], []).append(piece)
    return [_folded(of_source) for of_source in pieces.values()]


def _telling(pieces: pa.Table) -> pa.Table:
    """The pieces that say something of their source, by time of ingest: its first and newest ones, the longest prefix, the furthest end; a
    source has a piece for each of its growths, hundreds a day."""
    pieces = pieces.sort_by("ingested_at")
    source = pieces["source"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    prefix, end = (pieces[name].fill_null(0).to_numpy() for name in ("prefix_bytes", "end_bytes"))
    status = pieces["status"].to_numpy(zero_copy_only=False)
    order, told = np.arange(len(source)), np.zeros(len(source), bool)
    earlier = order / max(len(source), 1)  # of equal ones the first counts
    every, read, closed = np.ones(len(source), bool), status != "quarantined", status == "closed"
    for measure, among in ((-order, every), (order, every), (order, read), (prefix - earlier, every), (end - earlier, read), (end - earlier, closed)):
        chosen = order[among]
        by_source = chosen[np.lexsort((measure[chosen], source[chosen]))]
        last = np.append(source[by_source][1:] != source[by_source][:-1], True) if len(by_source) else np.zeros(0, bool)
        told[by_source[last]] = True
    return pieces.filter(pa.array(told))


def _folded(pieces: list[dict[str, Any]]) -> Source:
    first, newest = pieces[0], pieces[-1]
    prefix = max(pieces, key=lambda piece: piece["prefix_bytes"] or 0)
    read = [piece for piece in pieces if piece["status"] != "quarantined"]
    closed = max((piece for piece in read if piece["status"] == "closed"), key=lambda piece: piece["end_bytes"], default=None)
    state = _state(closed) if closed else {}
    return Source(
        source=first["source"], path=newest["path"], run=first["run"], cluster=first["cluster"],
        prefix_bytes=prefix["prefix_bytes"] or 0, prefix_hash=prefix["prefix_hash"] or "",
        closed_bytes=closed["end_bytes"] if closed else None, size_bytes=max((piece["end_bytes"] for piece in read), default=0),
        parser=read[-1]["parser"] if read else None, parser_state=state.get("parser"),
        seam_bytes=state.get("seam_bytes", 0), seam_hash=state.get("seam_hash"),
        quarantined=newest["status"] == "quarantined", heads={int(size): head for size, head in _state(prefix).get("heads", {}).items()},
        whole_hash=state.get("whole_hash"), modified_ns=state.get("modified_ns"),
    )


def _state(piece: dict[str, Any]) -> dict[str, Any]:
    """What a piece says of where it ended, see `ingest.units`."""
    said = json.loads(piece["state"] or "{}")
    return said if isinstance(said, dict) else {}
