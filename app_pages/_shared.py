"""What the pages share: the lake and its database, the runs in it, sizes and text made safe to show.

One database is open for each lake: a commit to the lake opens a new one in its place, and a rerun of a page reads nothing twice.
Text that comes from files is shown by widgets that do not interpret it, or escaped: Streamlit's messages are Markdown.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import streamlit as st

from analysis.rows import Source
from analysis.scope import clusters_of, listed, narrow, within_cluster
from app_pages._lakes import lake_root, own_root
from app_pages._upload import SPOOL
from app_pages._words import told
from ingest.errors import LedgerError
from ingest.lake import Lake, default_root

if TYPE_CHECKING:
    import duckdb

GIB, MIB = 2**30, 2**20
SERVER_ROOT = "HBMLEDGER_SERVER_ROOT"
"""Variable that names the folder whose paths may be read on the server."""

DEVICE_MEMORY = "device_memory"
"""Where a session keeps the device memory that its pages count with."""

_SPOOLED = re.compile(rf"[^\s:]*{SPOOL}[^/\s]*/")
_RUNS = """
WITH rejected AS (
    SELECT run, COALESCE(run_index, 0) AS run_index, COUNT(*) AS rejects FROM rejects GROUP BY run, COALESCE(run_index, 0)
), read_at AS (
    SELECT run, MAX(ingested_at) AS ingested_at FROM artifacts GROUP BY run
)
SELECT
    attempt.run, attempt.run_index, attempt.framework, attempt.world_size, attempt.tensor_model_parallel_size AS tp,
    attempt.pipeline_model_parallel_size AS pp, attempt.ranks_seen, attempt.first_iteration, attempt.last_iteration,
    COALESCE(rejected.rejects, 0) AS rejects, read_at.ingested_at
FROM run_attempts AS attempt
LEFT JOIN rejected ON rejected.run = attempt.run AND rejected.run_index = attempt.run_index
LEFT JOIN read_at ON read_at.run = attempt.run
"""


def lake_version() -> str:
    """Changes with each commit to the lake: the key of everything cached."""
    return Lake(lake_root()).version()


class _Opened:
    """The database on the newest version of one lake that was asked for; the one before is closed once nobody reads from it any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version: str | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None

    def at(self, root: str, version: str) -> duckdb.DuckDBPyConnection:
        """The lake's database, opened anew where the version is another."""
        from analysis.database import connect

        with self._lock:
            if self._connection is None or self._version != version:
                self._connection, self._version = connect(Lake(root)), version
            return self._connection


@st.cache_resource(max_entries=16, show_spinner=False)
def _lake(root: str) -> _Opened:
    return _Opened()


def _database(root: str, version: str) -> duckdb.DuckDBPyConnection:
    return _lake(root).at(root, version)


def cursor() -> duckdb.DuckDBPyConnection:
    """A cursor of this run of the script on the lake's database."""
    return _database(lake_root(), lake_version()).cursor()


def asked(run: str) -> tuple[duckdb.DuckDBPyConnection, str]:
    """A cursor to ask about a run as `attempts` calls it, and the run's name in its records."""
    return asked_of(lake_root(), lake_version(), run)


def asked_of(root: str, version: str, run: str) -> tuple[duckdb.DuckDBPyConnection, str]:
    """The same of a lake that is given."""
    own = _database(root, version).cursor()
    row = next((one for one in _attempts(root, version) if one["run"] == run), None)
    if row is None or row["run"] == row["name"]:
        return own, run
    narrow(own, row["cluster"])
    return own, row["name"]


def attempts_of(root: str, version: str, run: str) -> list[int]:
    """The attempts of a run, ascending, as the list of a lake names them."""
    return sorted(row["run_index"] for row in _attempts(root, version) if row["run"] == run)


def called(name: str, cluster: str | None = None) -> str:
    """What `attempts` calls a run of this name, of that cluster where it is known."""
    return next((row["run"] for row in attempts() if row["name"] == name and cluster in (None, row["cluster"])), name)


@st.cache_resource(max_entries=16, show_spinner="Opening the lake")
def _attempts(root: str, version: str) -> list[dict[str, Any]]:
    from analysis.database import records

    own = _database(root, version).cursor()
    found: list[dict[str, Any]] = []
    with listed(own):
        for cluster in clusters_of(own):
            with within_cluster(own, cluster):
                found += ({**row, "name": row["run"], "cluster": cluster} for row in records(own, _RUNS))
    twice = Counter(name for name, _ in {(row["name"], row["cluster"]) for row in found})
    named = [{**row, "run": f"{row['cluster']}/{row['name']}" if twice[row["name"]] > 1 else row["name"]} for row in found]
    return sorted(named, key=_newest_first)


def _newest_first(row: dict[str, Any]) -> tuple[bool, float, str, int]:
    minute = row["ingested_at"].replace(second=0, microsecond=0).timestamp() if row["ingested_at"] else 0.0
    return row["ingested_at"] is None, -minute, row["run"], row["run_index"]


def attempts() -> list[dict[str, Any]]:
    """Every attempt of the lake, newest ingest first, those of one minute by name; none where there is no lake.

    A run that two clusters gave one name is called `CLUSTER/RUN`, as on the command line.
    """
    version = lake_version()
    return [] if version == "none" else _attempts(lake_root(), version)


def run_names(own: bool = True) -> set[str]:
    """Names that runs have in the shared lake or, with `own`, in the session's own."""
    roots = (default_root(), *([own_root()] if own else []))
    versions = {root: Lake(root).version() for root in roots if root}
    return {row["name"] for root, version in versions.items() if version != "none" for row in _attempts(root, version)}


def none_yet() -> None:
    """What an empty lake says, and the way on."""
    st.info("No run in this lake yet.", icon=":material/inbox:")
    st.page_link("app_pages/start.py", label="Bring the artifacts of a run", icon=":material/upload_file:")


@contextmanager
def told_errors() -> Iterator[None]:
    """Show a mistake of a user, of the lake or of the disk as what, where and what to do, and end the page there.

    The frame puts it around each page as well: a file of the lake may be lost while any query of any page reads it.
    """
    try:
        yield
    except LedgerError as error:
        _tell(error)
    except OSError as error:
        _tell(LedgerError(error.strerror or str(error), where=str(error.filename or "the server"),
                          todo="whoever runs the app can help: the path, its permissions, or the room left on its disk"))
    except Exception as error:
        from analysis.database import damage

        if (damaged := damage(error)) is None:
            raise
        _tell(damaged)


def _tell(error: LedgerError) -> None:
    st.error(safe(f"{shown(error.where)}: {error.what}" if error.where else error.what), icon=":material/error:")
    if error.todo:
        st.caption(safe(error.todo))
    st.stop()


def safe(text: str) -> str:
    """Text of a file or user, harmless where Streamlit reads Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>()#+\-.!|~$:&@^=])", r"\\\1", re.sub(r"\s+", " ", text))


def section(text: str, *words: str) -> None:
    """A small heading inside a page, with the meaning of these words of the glossary beside it; all are ours, never a file's."""
    st.markdown(f"### {text}", help=told(*words) if words else None)


def shown(path: str) -> str:
    """A path as its owner knows it: without the temporary folder an upload was spooled to."""
    return _SPOOLED.sub("", path)


def place(source: Source) -> str:
    """Where a figure was read, as people write it."""
    return shown(str(source))


def gib(size: float | None) -> float | None:
    """Bytes as GiB for a column that people read."""
    return None if size is None else size / GIB


def mib(size: float | None) -> float | None:
    """Bytes as MiB, for a column whose sizes may be far below a GiB."""
    return None if size is None else size / MIB
