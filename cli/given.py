"""What a user hands over as JSON or text: read up to a limit, `-` for standard input, with a sentence where it cannot be.

`json.load(open(path))` would do for a good file. A device, a wrong file of many gigabytes or brackets nested thousands deep would end in
a full memory or a traceback; and one bad line of a batch must not cost the answers to the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import IO, Any

from ingest.errors import OK, QUARANTINED, USAGE, LedgerError

MOST_JSON_BYTES = 64 << 20
MOST_TEXT_BYTES = 256 << 20
MOST_LINE_BYTES = 16 << 20


def read_json(path: str, *, what: str) -> Any:
    """The content of a JSON file. `what` names it in the plural. Raises LedgerError."""
    todo = "give one JSON object of argument names and values"
    content = read_bytes(path, what=what, most_bytes=MOST_JSON_BYTES)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except RecursionError as error:
        raise LedgerError(f"{what} are nested too deeply to be argument values", where=path, todo=todo) from error
    except ValueError as error:
        raise LedgerError(f"{what} are no JSON: {error}", where=path, todo=todo) from error


def read_bytes(path: str, *, what: str, most_bytes: int | None = None) -> bytes:
    """The bytes of a file, a pipe or standard input. Raises LedgerError where it cannot be read, or is longer than `most_bytes`."""
    most_bytes = MOST_TEXT_BYTES if most_bytes is None else most_bytes
    with _opened(path, what) as stream:
        content: bytes = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise LedgerError(f"{what}: longer than {most_bytes >> 20} MiB", where=path, todo="give the part that is asked about")
    return content


def read_lines(path: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Each line of a JSON-lines file as an object, or an empty one with the sentence that says why not: as many as the file has lines."""
    with _opened(path, "the batch") as stream:
        for number, line in enumerate(_lines(stream), 1):
            yield _object(line, number) if line.strip() else ({}, f"line {number} is empty")


def print_answers(answers: Iterable[Any]) -> int:
    """Print each answer of a batch as a line of JSON; the exit code tells whether all (2) or some (3) of them are errors."""
    total = wrong = 0
    for answer in answers:
        print(json.dumps(answer))
        total += 1
        wrong += isinstance(answer, dict) and "error" in answer
    return OK if not wrong else USAGE if wrong == total else QUARANTINED


def args_of(value: Any, *, where: str, what: str = "the arguments") -> dict[str, Any]:
    """A JSON value as arguments: an object, possibly under the key `args`."""
    if isinstance(value, dict) and isinstance(value.get("args"), dict):
        value = value["args"]
    if not isinstance(value, dict):
        raise LedgerError(f"{what} are no JSON object", where=where, todo='give {"name": value, ...}, such as {"hidden_size": 4096, ...}')
    return value


def _opened(path: str, what: str) -> Any:
    if path == "-":
        return nullcontext(_Given(sys.stdin))
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise LedgerError(f"cannot read {what}: {said}", where=path or "''", todo="give a file that exists") from error


class _Given:
    """Standard input as bytes, also where it was replaced by text."""

    def __init__(self, stream: Any) -> None:
        self._bytes: IO[bytes] | None = getattr(stream, "buffer", None)
        self._text: IO[str] = stream

    def read(self, size: int) -> bytes:
        """Up to `size` bytes (characters of a text)."""
        return self._bytes.read(size) if self._bytes is not None else self._text.read(size).encode("utf-8", "surrogatepass")

    def readline(self, size: int) -> bytes:
        """One line, cut at `size`."""
        return self._bytes.readline(size) if self._bytes is not None else self._text.readline(size).encode("utf-8", "surrogatepass")


def _lines(stream: Any) -> Iterator[bytes]:
    """Lines; of one longer than the limit the first bytes alone, one more than the limit."""
    while line := stream.readline(MOST_LINE_BYTES + 1):
        yield line
        rest = line
        while rest and len(rest) > MOST_LINE_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(MOST_LINE_BYTES + 1)


def _object(line: bytes, number: int) -> tuple[dict[str, Any], str | None]:
    if len(line) > MOST_LINE_BYTES:
        return {}, f"line {number} is longer than {MOST_LINE_BYTES >> 20} MiB"
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except RecursionError:
        return {}, f"line {number} is nested too deeply"
    except ValueError as error:
        return {}, f"line {number} is no JSON: {error}"
    return (value, None) if isinstance(value, dict) else ({}, f"line {number} is no JSON object")
