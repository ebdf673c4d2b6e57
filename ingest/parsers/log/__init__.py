"""The Megatron log, of every release and fork: any text is read as one, and what holds no record gives no row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from ingest.parsers.base import Piece
from ingest.parsers.log.engine import Engine
from ingest.parsers.log.recognizers import RECOGNIZERS


class MegatronLog:
    """Obeys `ingest.parsers.base.Parser`."""

    name = "megatron_log"
    version = 1

    def matches(self, head: bytes, path: str) -> bool:
        """Any bytes that are not plainly binary: text may hold NULs after a crash, so only known magics are refused."""
        return not head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PAR1", b"\x89PNG", b"\x7fELF", b"%PDF"))

    def parse(self, stream: BinaryIO, path: str, *, start: int = 0, state: str | None = None, final: bool = True) -> Iterator[Piece]:
        """Pieces of rows; see `Engine.run`."""
        yield from Engine(RECOGNIZERS, path, state).run(stream, start, final)


MEGATRON_LOG = MegatronLog()
