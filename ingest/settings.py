"""`hbmledger.toml`: what an ingest reads, where it goes and how runs are named, as data that is checked before anything is read.

Found by `--config FILE`, else `HBMLEDGER_CONFIG`, else `./hbmledger.toml`. Every mistake is told with its key, its line and what would fit; an
unknown key is refused, since a misspelt `exclude` that is passed over would read what was to be left out. The table `[retention]` is kept as
it is for those commands that thin a lake.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ingest.errors import LedgerError
from ingest.globs import Pattern, filled, pattern

FILE = "hbmledger.toml"
MOST_BYTES = 1 << 20
CLUSTER = re.compile(r"[\w.@-]{1,100}")
RUN = re.compile(r"[^\x00-\x1f\ud800-\udfff]{1,200}")
_AGE = re.compile(r"(\d{1,6})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class Naming:
    """How files whose path fits a pattern are named: templates of its names, None where it does not say."""

    path: Pattern
    run: str | None
    cluster: str | None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a settings file says; None or empty where it does not. Seconds in `every_seconds`."""

    lake: str | None = None
    cluster: str | None = None
    paths: tuple[str, ...] = ()
    include: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    since: str | None = None
    every_seconds: int | None = None
    workers: int | None = None
    snapshot_detail: str | None = None
    names: tuple[Naming, ...] = ()
    retention: Mapping[str, Any] = field(default_factory=dict)

    def named(self, path: str) -> tuple[str | None, str | None]:
        """Run and cluster of an absolute path by the first pattern that fits."""
        for naming in self.names:
            if (names := naming.path.match(path)) is not None:
                run, cluster = (template and filled(template, names) for template in (naming.run, naming.cluster))
                return (run if run and RUN.fullmatch(run) else None), (re.sub(r"[^\w.@-]", "_", cluster)[:100] if cluster else None)
        return None, None


def read_settings(given: str | None) -> Settings:
    """The settings from the file given, or found; empty ones where none is there. Raises `LedgerError`."""
    path = given or os.environ.get("HBMLEDGER_CONFIG") or (FILE if os.path.isfile(FILE) else None)
    if path is None:
        return Settings()
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise LedgerError(f"the settings cannot be read: {error.strerror or error}", where=path, todo="check --config or HBMLEDGER_CONFIG") from error
    if len(content) > MOST_BYTES:
        raise LedgerError(f"the settings are longer than {MOST_BYTES >> 20} MiB", where=path, todo="is this the right file?")
    return settings_of(content, path)


def settings_of(content: bytes, path: str) -> Settings:
    """The settings of a file's content, `path` for its messages and for relative paths in it. Raises `LedgerError`."""
    try:
        text = content.decode("utf-8-sig")
        said = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"the settings are no TOML: {error}", where=path, todo="strings stand in quotes, lists in [ ]") from error
    return _Reader(path, text).settings(said)


def moment(text: str, now: datetime | None = None) -> datetime:
    """`2026-11-01`, `2026-11-01T12:00`, or an age such as 90m, 36h, 7d, 2w; UTC without a zone. Raises ValueError."""
    if match := _AGE.fullmatch(text.strip()):
        try:
            return (now or datetime.now(UTC)) - timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
        except OverflowError as error:
            raise ValueError("reaches before all dates") from error
    given = datetime.fromisoformat(text.strip())
    return given.replace(tzinfo=UTC) if given.tzinfo is None else given


def seconds(text: str) -> int:
    """`60s`, `5m`, `1h` as seconds, from 1 s to 7 days. Raises ValueError."""
    match = _AGE.fullmatch(text.strip())
    if not match or not 1 <= int(match[1]) * _SECONDS[match[2]] <= 7 * 86400:
        raise ValueError("is no duration from 1s to 7d")
    return int(match[1]) * _SECONDS[match[2]]


class _Reader:
    """Checks values, knowing where they stand."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._lines, self._table = path, text.splitlines(), ("", 0)

    def settings(self, said: Mapping[str, Any]) -> Settings:
        """Every key read by what it must be."""
        readers: dict[str, Callable[[str, Any], Any]] = {
            "lake": self._place, "cluster": self._cluster, "paths": self._paths, "include": self._patterns, "exclude": self._patterns,
            "since": self._since, "every": self._every, "workers": self._workers, "snapshot_detail": self._detail, "names": self._names,
            "retention": self._any_table,
        }
        read = self._read(said, readers)
        if "every" in read:
            read["every_seconds"] = read.pop("every")
        return Settings(**read)

    def _read(self, said: Mapping[str, Any], readers: Mapping[str, Callable[[str, Any], Any]]) -> dict[str, Any]:
        for key in said:
            if key not in readers:
                near = difflib.get_close_matches(key, readers, 1)
                known = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(readers)}"
                raise self._error(key, "is no setting", known)
        return {key: readers[key](key, value) for key, value in said.items()}

    def _error(self, key: str, what: str, todo: str) -> LedgerError:
        line, table = self._line(key), self._table[0]
        return LedgerError(f"{table}.{key} {what}" if table else f"{key} {what}", where=f"{self._path}:{line}" if line else self._path, todo=todo)

    def _line(self, key: str) -> int | None:
        """The line of a key in the table that is read; where it is not found, that of the table's header."""
        at, counts, header_line = "", dict[str, int](), None
        own = re.compile(rf'\s*["\']?{re.escape(key)}["\']?\s*[.=]')
        for line, text in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[\[?\s*[\"']?([\w-]+)", text):
                at = header[1]
                counts[at] = counts.get(at, -1) + 1
                if (at, counts[at]) == self._table or (not self._table[0] and at == key):
                    header_line = header_line or line
            elif (at, counts.get(at, 0)) == self._table and own.match(text):
                return line
        return header_line

    def _text(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self._error(key, f"is {_short(value)}", 'give a text in quotes, "..."')
        return value

    def _texts(self, key: str, value: Any) -> tuple[str, ...]:
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list):
            raise self._error(key, f"is {_short(value)}", 'give a list of texts, ["...", "..."]')
        return tuple(self._text(key, one) for one in values)

    def _place(self, key: str, value: Any) -> str:
        text = self._text(key, value)
        return text if "://" in text else self._from_here(text)

    def _from_here(self, text: str) -> str:
        """A relative path is seen from the settings file, whatever folder a timer starts in; `~` is the user's home."""
        return str(Path(self._path).absolute().parent / Path(text).expanduser())

    def _paths(self, key: str, value: Any) -> tuple[str, ...]:
        return tuple(self._from_here(text) for text in self._texts(key, value))

    def _cluster(self, key: str, value: Any) -> str:
        text = self._text(key, value)
        if not CLUSTER.fullmatch(text):
            raise self._error(key, f"is {_short(value)}", "a cluster's name has letters, digits, `.`, `_`, `-` and `@` only")
        return text

    def _patterns(self, key: str, value: Any) -> tuple[Pattern, ...]:
        return tuple(self._pattern(key, text) for text in self._texts(key, value))

    def _pattern(self, key: str, text: str) -> Pattern:
        try:
            return pattern(text)
        except ValueError as error:
            raise self._error(key, f"{text!r} {error}", "a pattern is such as *.log, checkpoints/** or /data/{cluster}/{run}/**") from error

    def _since(self, key: str, value: Any) -> str:
        text = value.isoformat() if hasattr(value, "isoformat") else self._text(key, value)
        try:
            moment(text)
        except ValueError as error:
            raise self._error(key, f"is {_short(value)}", "a date such as 2026-11-01 or an age such as 90m, 36h or 7d would fit") from error
        return str(text)

    def _every(self, key: str, value: Any) -> int:
        try:
            return seconds(self._text(key, value))
        except ValueError as error:
            raise self._error(key, f"is {_short(value)}", "a duration such as 60s, 5m or 1h would fit") from error

    def _workers(self, key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 256:
            raise self._error(key, f"is {_short(value)}", "give a number of processes from 1 to 256")
        return value

    def _detail(self, key: str, value: Any) -> str:
        if value not in ("full", "summary"):
            raise self._error(key, f"is {_short(value)}", 'give "full" or "summary"')
        return str(value)

    def _any_table(self, key: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._error(key, f"is {_short(value)}", f"write it as a table, [{key}]")
        return value

    def _names(self, key: str, value: Any) -> tuple[Naming, ...]:
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self._error(key, f"is {_short(value)}", "write each as a table of its own, [[names]] with path = \"...\"")
        found = []
        for number, one in enumerate(value):
            self._table = (key, number)
            found.append(self._naming(one))
        self._table = ("", 0)
        return tuple(found)

    def _naming(self, said: Mapping[str, Any]) -> Naming:
        read = self._read(said, {"path": self._pattern_of, "run": self._text, "cluster": self._text})
        if "path" not in read:
            raise self._error("path", "is missing", 'give path = "/data/{cluster}/{run}/**"')
        path: Pattern = read["path"]
        for key in ("run", "cluster"):
            unknown = set(re.findall(r"\{(\w*)\}", read.get(key, ""))) - path.names
            if re.search(r"[{}]", re.sub(r"\{\w+\}", "", read.get(key, ""))):
                raise self._error(key, f"is {_short(read[key])}", "a brace closes around a name that the path keeps, as in {run}")
            if unknown:
                raise self._error(key, f"uses {{{min(unknown)}}}, which its path does not keep", f"its path keeps {sorted(path.names) or 'nothing'}")
        run, cluster = (read.get(key) or (f"{{{key}}}" if key in path.names else None) for key in ("run", "cluster"))
        if cluster and not CLUSTER.fullmatch(re.sub(r"\{\w+\}", "x", cluster)):
            raise self._error("cluster", f"is {_short(cluster)}", "a cluster's name has letters, digits, `.`, `_`, `-` and `@` only")
        if not run and not cluster:
            raise self._error("path", "names neither {run} nor {cluster}", 'keep one in the path, or give run = "..." or cluster = "..."')
        return Naming(path, run, cluster)

    def _pattern_of(self, key: str, value: Any) -> Pattern:
        return self._pattern(key, self._text(key, value))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
