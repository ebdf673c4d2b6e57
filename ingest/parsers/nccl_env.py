"""Environment dumps, one a host or rank: `env`, `printenv`, `export -p`, and JSON of variables and versions.

A dump is one record: its own RANK and HOSTNAME (or the file's name) tell whose it is, so it is read whole, when the file ends. Only
variables that bear on memory, communication or the job's shape become rows, and a value whose name says it is a secret is not kept:
a lake outlives the shell that held the token. A shell function or a value of several lines is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import msgspec

from ingest.errors import LedgerError
from ingest.parsers.base import Piece, Row
from ingest.parsers.log.nccl_env import PREFIXES, shown
from ingest.parsers.names import rank_of

LARGEST_DUMP_BYTES = 16 * 2**20
_ASSIGNMENT = re.compile(r"(?P<how>export |declare -x |setenv )?(?P<name>[A-Za-z_][A-Za-z0-9_]{0,120})[= ](?P<value>.*)$")
_PLAIN = re.compile(rb"(?:export |declare -x |setenv )?[A-Za-z_][A-Za-z0-9_.]{0,120}(?:=|$)|\s|\}|BASH_FUNC")
_ENV = ("env", "environ", "environment", "environment_variables", "Env")
_VERSIONS = ("versions", "packages", "software")
_LISTS = ("gpus", "nics", "nodes", "devices", "node_list")
_HOST, _RANK = ("host", "hostname", "node", "HOSTNAME"), ("rank", "global_rank", "RANK", "OMPI_COMM_WORLD_RANK")
_KEPT = (*PREFIXES, "RANK", "LOCAL_RANK", "NODE_RANK", "MASTER_", "OMPI_COMM_WORLD_", "KUBERNETES_NODE", "NVIDIA_", "OMP_", "LD_LIBRARY_PATH",
         "CUDNN_", "MLX5_", "IBV_", "GLOO_", "TRITON_", "TE_", "MALLOC_", "NPROC", "JOB_NAME", "HOSTNAME")
Values = list[tuple[str, str, str]]


class EnvironmentDump:
    """The parser; see `Parser` for what is promised."""

    name = "environment"
    version = 1

    def matches(self, head: bytes, path: str) -> bool:
        """Whether nearly all lines are assignments, some of variables known here, or a JSON object holds such variables."""
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text.startswith((b"{", b"[")):
            return (any(f'"{key}"'.encode() in text for key in _ENV) and _known(text) is not None) or _is_flat(text)
        lines = [line for line in head.splitlines() if line.strip()]
        plain = sum(_PLAIN.match(line) is not None for line in lines)
        return len(lines) >= 2 and plain >= 0.9 * len(lines) and bool(_known(head)) and sum(b"=" in line for line in lines) >= 0.7 * len(lines)

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """One piece, of the whole dump, when it ends. Raises LedgerError above `LARGEST_DUMP_BYTES`."""
        data = stream.read(LARGEST_DUMP_BYTES + 1) if final else b""
        if len(data) > LARGEST_DUMP_BYTES:
            raise LedgerError(f"an environment dump of more than {LARGEST_DUMP_BYTES >> 20} MiB", where=path, todo="give the dump alone")
        yield Piece(_rows(data, path) if data.strip() else {}, start + len(data), None)


def _known(text: bytes) -> re.Match[bytes] | None:
    return re.search(rb"(?:^|[\s\"'{,\[])(?:NCCL|RCCL|HCCL|PYTORCH|TORCH|CUDA|NVTE|SLURM|MASTER|NVIDIA|CUBLAS)_[A-Z_]*[A-Z\"']", text)


def _is_flat(text: bytes) -> bool:
    """A JSON object whose first key is a variable of the environment."""
    return re.match(rb"\{\s*\"[A-Z][A-Z0-9_]+\"\s*:\s*\"", text) is not None and _known(text) is not None


def _rows(data: bytes, path: str) -> dict[str, list[Row]]:
    text = data.replace(b"\0", b"\n").decode("utf-8", "replace").lstrip("\ufeff")
    if text.lstrip().startswith(("{", "[")) and "environment" in (told := _from_json(text, path)):
        return told
    rows = _lines(text.split("\n"), path)
    return {"environment": rows} if rows else _from_json(text, path) if text.lstrip().startswith("{") else {}


def _lines(lines: list[str], path: str) -> list[Row]:
    found: list[tuple[int, str, str, str]] = []
    for number, line in enumerate(lines, 1):
        if (match := _ASSIGNMENT.match(line)) and ("=" in line[: match.start("value")] or match["how"] == "setenv "):
            how = (match["how"] or "env").strip()
            found.append((number, match["name"], _unquoted(match["value"].strip()), how))
    told = {name: value for _, name, value, _ in found}
    return [_row(told, path, name, value, how, number) for number, name, value, how in found if name.startswith(_KEPT)]


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _from_json(text: str, path: str) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for number, document in _documents(text):
        if document is None:
            rows.setdefault("rejects", []).append({"run_index": 0, "line": number, "offset_bytes": 0, "text": text[:2000],
                                                   "reason": "an environment dump that is not whole"})
            continue
        for one in document if isinstance(document, list) else [document]:
            if isinstance(one, dict):
                told = _flattened(one)
                rows.setdefault("environment", []).extend(_row(_about(one, told), path, *entry, number) for entry in told)
    return {table: found for table, found in rows.items() if found}


def _documents(text: str) -> Iterator[tuple[int, Any]]:
    """The whole text as one document, else a document a line."""
    if (whole := _decoded(text)) is not None:
        yield 1, whole
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, _decoded(line)


def _decoded(text: str) -> Any | None:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None


def _flattened(document: Mapping[str, Any]) -> Values:
    """(name, value, origin) of variables, versions and lists; a document that has no such part is one of variables itself."""
    found: Values = []
    for key in _ENV:
        held = document.get(key)
        pairs = held.items() if isinstance(held, dict) else (str(one).partition("=")[::2] for one in held) if isinstance(held, list) else ()
        found += [(str(name), str(value), "json") for name, value in pairs if str(name).startswith(_KEPT)]
    for key in _VERSIONS:
        if isinstance(held := document.get(key), dict):
            found += [(f"{name} version", str(value), "json") for name, value in held.items() if value is not None]
    found += [(key, ", ".join(map(str, held)) if isinstance(held, list) else str(held), "json") for key in _LISTS if (held := document.get(key))]
    if not any(key in document for key in _ENV):
        found += [(name, str(value), "json") for name, value in document.items() if name.startswith(_KEPT) and isinstance(value, str | int | float)]
    return found


def _about(document: Mapping[str, Any], told: Values) -> dict[str, str]:
    variables = {name: value for name, value, _ in told}
    return variables | {key: str(document[key]) for key in (*_HOST, *_RANK) if document.get(key) is not None}


def _row(told: Mapping[str, str], path: str, name: str, value: str, origin: str, number: int) -> Row:
    rank = rank_of(path)
    if rank is None:
        rank = next((int(text) for key in _RANK if (text := told.get(key, "")).isascii() and text.isdigit() and len(text) < 8), None)
    host = next((told[key] for key in _HOST if told.get(key)), None)
    return {"run_index": 0, "line": number, "host": host, "rank": rank, "name": name, "value": shown(name, value)[:4000], "origin": origin}


ENVIRONMENT = EnvironmentDump()
